"""CheckpointSaverHook, at which steps it saves: HK-CKPT-1 to 4, 12 to 14, 16."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.checkpoint import CheckpointReader, Saver, get_checkpoint_state, latest_checkpoint
from asyncmon.checkpoint.saver import WhenBusy
from asyncmon.checkpoint.throttle import current
from asyncmon.errors import AbortedError, FailedPreconditionError, UnavailableError
from asyncmon.hooks import CheckpointSaverHook, CheckpointSaverListener, NanTensorHook
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.hook import SessionRunHook, overrides
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.program import program_scope
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator
from asyncmon.system.files import FileCalls
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedProgram,
    ScriptedSession,
    assert_nothing_left_behind,
    fail_in,
)
from tests.hooks.conftest import Train

Lasting = Callable[..., Iterable[Any]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def hook_for(folder: Path, **arguments: Any) -> CheckpointSaverHook:
    arguments.setdefault("saver", Saver(max_to_keep=None))
    return CheckpointSaverHook(folder, **arguments)


async def saved(folder: Path) -> list[int]:
    """Return the steps of the checkpoints, in the order in which they were committed."""
    state = await get_checkpoint_state(folder)
    return (
        [] if state is None else [int(p.rpartition("-")[2]) for p in state.all_model_checkpoint_paths]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"save_steps": 1, "saver": Saver(), "scaffold": Scaffold()},
            "You cannot provide both saver and scaffold.",
        ),
        ({}, "Either every_secs or every_steps should be provided."),
        ({"save_steps": 1, "save_secs": 1}, "Can not provide both every_secs and every_steps."),
        ({"save_steps": 0}, "invalid save_steps=0"),
        ({"save_secs": 0}, "invalid save_secs=0"),
        ({"save_steps": 1, "timeout_secs": -1}, "invalid timeout_secs=-1"),
    ],
)
async def test_wrong_arguments_hk_ckpt_1(tmp_path: Path, arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CheckpointSaverHook(tmp_path, **arguments)


async def test_a_hook_without_a_saver_makes_one_for_any_program(tmp_path: Path, train: Train) -> None:
    await train(CheckpointSaverHook(tmp_path / "scripted", save_steps=1), runs=1)
    assert await saved(tmp_path / "scripted") == [0, 1]
    program = FunctionProgram({"n": 0})

    @program.step
    def count(state: Any) -> None:
        state["n"] += 1

    hook = CheckpointSaverHook(tmp_path / "functions", save_steps=5)
    async with MonitoredSession(ChiefSessionCreator(program=program), [hook]) as sess:
        for _ in range(7):
            await sess.run("count")
    assert await saved(tmp_path / "functions") == [0, 5, 7]


async def test_two_savers_in_the_collection_are_too_many_hk_ckpt_1(tmp_path: Path) -> None:
    with g.Graph().as_default() as graph:
        g.create_global_step()
        for _ in range(2):
            graph.add_to_collection(g.GraphKeys.SAVERS, Saver())
        hook = CheckpointSaverHook(tmp_path, save_steps=1)
        await hook.begin()
        with pytest.raises(RuntimeError, match="More than one item in collection savers"):
            await hook.after_create_session(ScriptedSession(), None)  # type: ignore[arg-type]  # refused
        await hook.cleanup(None)


async def test_a_fresh_session_is_saved_at_once_hk_ckpt_2(tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_steps=10)
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]):
        assert await saved(tmp_path) == [0]


@pytest.mark.parametrize("own_saver", [False, True])
async def test_what_was_just_restored_is_not_saved_again_hk_ckpt_2(
    tmp_path: Path, own_saver: bool
) -> None:
    """Also MT-20 and KC-7; whichever saver has restored it."""
    for expected in ([0, 2, 3], [0, 2, 3, 5, 6]):
        scaffold = Scaffold(saver=Saver(max_to_keep=None))
        creator = ChiefSessionCreator(scaffold, program=ScriptedProgram(), checkpoint_dir=tmp_path)
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("model.ckpt-3*")}  # noqa: ASYNC240 -- a test
        given: Any = {"saver": Saver(max_to_keep=None)} if own_saver else {"scaffold": scaffold}
        hook = CheckpointSaverHook(tmp_path, save_steps=2, **given)
        async with MonitoredSession(creator, [hook]) as sess:
            for _ in range(3):
                await sess.run("train")
        assert await saved(tmp_path) == expected
        assert before == {path: path.stat().st_mtime_ns for path in before}


async def test_a_second_process_that_restores_is_warned_at_once_kc_7(tmp_path: Path) -> None:
    async def train() -> None:
        scaffold = Scaffold(saver=Saver())
        creator = ChiefSessionCreator(scaffold, program=ScriptedProgram(), checkpoint_dir=tmp_path)
        hook = CheckpointSaverHook(tmp_path, save_secs=600, scaffold=scaffold)
        async with MonitoredSession(creator, [hook]) as sess:
            await sess.run("train")

    await train()
    descriptor = os.open(tmp_path / ".asyncmon.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as another process does
    before = set(os.listdir(tmp_path))
    with pytest.raises(FailedPreconditionError, match="Another process saves checkpoints into"):
        await train()
    assert set(os.listdir(tmp_path)) == before  # no START, which hides events of the other process
    os.close(descriptor)
    await train()


async def test_a_recovered_session_is_saved_at_once_if_not_restored_hk_ckpt_2(tmp_path: Path) -> None:
    scaffold = Scaffold(saver=Saver(max_to_keep=None))
    failing = iter([None, None, None, AbortedError("gone")])

    class Program(ScriptedProgram):
        def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
            return ScriptedSession([*failing] or None)

    recorder = RecordingHook()
    creator = ChiefSessionCreator(scaffold, program=Program(), checkpoint_dir=tmp_path)
    hook = CheckpointSaverHook(tmp_path, save_steps=2, scaffold=scaffold)
    async with MonitoredSession(creator, [hook, recorder]) as sess:
        for _ in range(5):
            await sess.run("train")
    assert recorder.steps("after_run") == [1, 2, 3, 3, 4], "WR-4"
    assert await saved(tmp_path) == [0, 2, 4]


@pytest.mark.parametrize(
    ("period", "stride", "steps"), [(2, 1, [0, 2, 4, 6]), (10, 7, [0, 14, 28, 42])]
)
async def test_by_steps_hk_ckpt_3(
    train: Train, tmp_path: Path, period: int, stride: int, steps: list[int]
) -> None:
    await train(
        hook_for(tmp_path, save_steps=period), runs=6, session=ScriptedSession(steps_per_run=stride)
    )
    assert await saved(tmp_path) == steps


async def test_a_hundred_steps_apart_however_quick_the_steps_mt_14(
    train: Train, tmp_path: Path
) -> None:
    await train(hook_for(tmp_path, save_steps=100), runs=250)
    assert await saved(tmp_path) == [0, 100, 200, 250]


async def test_by_seconds_hk_ckpt_3(train: Train, tmp_path: Path, lasting: Lasting) -> None:
    """Steps of 4 s: when 10, 20 and 30 s have passed, steps 2, 4 (5 is just ending) and 7 are done."""
    await train(hook_for(tmp_path, save_secs=10), runs=9, session=ScriptedSession(lasting(4)))
    assert await saved(tmp_path) == [0, 2, 4, 7, 9]


async def test_by_seconds_in_the_middle_of_a_long_step_hk_ckpt_3(
    train: Train, tmp_path: Path, lasting: Lasting
) -> None:
    """AX-11: the state is that of the step before."""

    async def long() -> None:
        await asyncio.sleep(600)
        assert await saved(tmp_path) == [0, 1]
        reader = await CheckpointReader.open(f"{tmp_path}/model.ckpt-1")
        assert int(await reader.get_tensor("global_step")) == 1
        await reader.close()

    session = ScriptedSession([lambda: asyncio.sleep(1), long])
    await train(hook_for(tmp_path, save_secs=60), runs=2, session=session)
    assert await saved(tmp_path) == [0, 1, 2]


async def test_by_seconds_not_while_nothing_runs_hk_ckpt_3(tmp_path: Path) -> None:
    creator = ScriptedCreator(ScriptedSession())
    async with MonitoredSession(creator, [hook_for(tmp_path, save_secs=10)]) as sess:
        await asyncio.sleep(100)
        assert await saved(tmp_path) == [0]
        await sess.run("train")
        await asyncio.sleep(5)
        assert await saved(tmp_path) == [0, 1]
        await asyncio.sleep(100)
        assert await saved(tmp_path) == [0, 1]


async def test_by_seconds_failures_that_come_oftener_do_not_prevent_all_saves(
    tmp_path: Path, lasting: Lasting
) -> None:
    """Each session is gone after 7 s, and saves are due at 10, 20 and 30 s of all of them."""
    scaffold = Scaffold(saver=Saver(max_to_keep=None))

    class Program(ScriptedProgram):
        def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
            return ScriptedSession(lasting(1, [None] * 6 + [AbortedError("gone")]))

    creator = ChiefSessionCreator(scaffold, program=Program(), checkpoint_dir=tmp_path)
    hook = CheckpointSaverHook(tmp_path, save_secs=10, scaffold=scaffold)
    async with MonitoredSession(creator, [hook]) as sess:
        while (sess.global_step or 0) < 12:
            await sess.run("train")
    assert await saved(tmp_path) == [0, 2, 7, 12]


async def test_by_seconds_a_run_costs_nothing(tmp_path: Path) -> None:
    assert not overrides(hook_for(tmp_path, save_secs=1), "after_run")
    assert not overrides(hook_for(tmp_path, save_steps=1), "background")


async def test_the_end_saves_only_a_step_that_is_not_saved_hk_ckpt_4(
    train: Train, tmp_path: Path
) -> None:
    await train(hook_for(tmp_path / "a", save_steps=3), runs=6)
    assert await saved(tmp_path / "a") == [0, 3, 6]
    await train(hook_for(tmp_path / "b", save_steps=3), runs=0)
    assert await saved(tmp_path / "b") == [0]


async def test_an_error_saves_nothing_hk_ckpt_4(train: Train, tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        await train(hook_for(tmp_path, save_steps=9), session=ScriptedSession([None, KeyError("x")]))
    assert await saved(tmp_path) == [0]


async def test_a_cancellation_saves_if_so_configured_ax_27(tmp_path: Path, lasting: Lasting) -> None:
    for folder, save_on_cancel, expected in (("a", True, [0, 3]), ("b", False, [0])):
        hook = hook_for(tmp_path / folder, save_steps=100, save_on_cancel=save_on_cancel)

        async def train(hook: CheckpointSaverHook = hook) -> None:
            async with MonitoredSession(ScriptedCreator(ScriptedSession(lasting(1))), [hook]) as sess:
                while True:
                    await sess.run("train")

        task = asyncio.create_task(train())
        await asyncio.sleep(3.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await saved(tmp_path / folder) == expected


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3)], ids=["stray", "exit"])
async def test_the_last_state_is_saved_even_if_another_end_raises_hk_ckpt_4(
    train: Train, tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises((RuntimeError, SystemExit)):
        await train(fail_in("end", error), hook_for(tmp_path, save_steps=9), runs=2)
    assert await saved(tmp_path) == [0, 2]
    await train(hook_for(tmp_path, save_steps=9), runs=0)  # the directory has no owner any more


@pytest.mark.parametrize("save_on_cancel", [False, True])
async def test_the_last_state_is_saved_where_another_end_hangs_ax_27(
    train: Train, tmp_path: Path, save_on_cancel: bool
) -> None:
    class Hanging(RecordingHook):
        async def end(self, session: Any) -> None:
            await asyncio.Event().wait()

    saver = hook_for(tmp_path, save_steps=9, save_on_cancel=save_on_cancel)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await train(Hanging(), saver, runs=2)
    assert await saved(tmp_path) == [0, 2]


async def test_an_error_or_a_recovery_is_no_cancellation_ax_27(train: Train, tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_steps=100, save_on_cancel=True)
    sessions = (
        ScriptedSession([None, AbortedError("gone")]),
        ScriptedSession([None, None, KeyError("x")]),
    )

    async def fail() -> None:
        async with MonitoredSession(ScriptedCreator(*sessions), [hook]) as sess:
            while True:
                await sess.run("train")

    with pytest.raises(KeyError):
        await fail()
    # that of the first session, then that of the second, which began at 0 as well
    assert await saved(tmp_path) == [0]


async def test_a_nan_is_not_saved_mt_3(train: Train, tmp_path: Path) -> None:
    """HK-NAN-2 and MT-3: neither when it is due, nor at the end."""
    session = ScriptedSession([{"loss": 1}, {"loss": 1}, {"loss": float("nan")}])
    hooks = hook_for(tmp_path, save_steps=1), NanTensorHook("loss", fail_on_nan_loss=False)
    await train(*hooks, session=session)
    assert session.global_step == 3
    assert await saved(tmp_path) == [0, 1, 2]


async def test_a_nan_is_not_saved_by_seconds_either(
    train: Train, tmp_path: Path, lasting: Lasting
) -> None:
    session = ScriptedSession(lasting(10, [{"loss": 1}, {"loss": float("nan")}]))
    hooks = hook_for(tmp_path, save_secs=10), NanTensorHook("loss", fail_on_nan_loss=False)
    await train(*hooks, session=session)
    assert await saved(tmp_path) in ([0], [0, 1])


class Lingering(ScriptedSession):
    """Its steps are committed three seconds before their runs return."""

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        result = await super().run(*args, **kwargs)
        await asyncio.sleep(3)
        return result


async def test_by_seconds_a_committed_step_is_saved_only_when_it_is_judged(
    train: Train, tmp_path: Path
) -> None:
    """Ticks at 10 and 20 s fall between the commits of steps 4 and 7 and the guard's verdicts."""
    losses = [1.0] * 6 + [float("nan")]
    hooks = hook_for(tmp_path, save_secs=10), NanTensorHook("loss", fail_on_nan_loss=False)
    session = Lingering([{"loss": loss} for loss in losses])
    await train(*hooks, session=session)
    assert session.global_step == 7
    assert await saved(tmp_path) == [0, 4]


async def test_by_seconds_steps_that_no_guard_sees_are_saved(
    tmp_path: Path,
) -> None:
    session = ScriptedSession(values={"loss": 1.0})
    hooks = [hook_for(tmp_path, save_secs=10), NanTensorHook("loss")]
    async with MonitoredSession(ScriptedCreator(session), hooks) as sess:
        for _ in range(45):
            await sess.run("train", hooks=False)
            await asyncio.sleep(1.01)
    assert (await saved(tmp_path))[:2] == [0, 10]


async def test_by_seconds_a_save_that_cannot_begin_ends_training(
    tmp_path: Path, train: Train, lasting: Lasting
) -> None:
    def metrics() -> dict[str, float]:
        if session.global_step:
            raise KeyError("no accuracy yet")
        return {}

    session = ScriptedSession(lasting(4))
    with pytest.raises(KeyError, match="no accuracy yet"):
        await train(hook_for(tmp_path, save_secs=10, metrics=metrics), session=session)


async def test_directories_are_made_and_retention_is_the_savers_hk_ckpt_12(
    train: Train, tmp_path: Path
) -> None:
    folder = tmp_path / "a" / "b"
    await train(hook_for(folder, save_steps=1, saver=Saver(max_to_keep=2)), runs=5)
    assert await saved(folder) == [4, 5]
    assert await latest_checkpoint(folder) == f"{folder}/model.ckpt-5"


async def test_a_second_hook_for_a_directory_is_refused_hk_ckpt_13(
    train: Train, tmp_path: Path
) -> None:
    hooks = hook_for(tmp_path, save_steps=3), hook_for(tmp_path / ".", save_steps=2)
    with pytest.raises(ValueError, match="Two CheckpointSaverHooks save to"):
        await train(*hooks, runs=1)
    await train(hook_for(tmp_path, save_steps=3), runs=1)
    assert await saved(tmp_path) == [0, 1]


async def test_a_hook_that_is_gone_holds_no_directory(train: Train, tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_steps=3)
    with program_scope(ScriptedProgram()):
        await hook.begin()
    del hook
    gc.collect()
    await train(hook_for(tmp_path, save_steps=3), runs=1)


async def test_hook_without_a_session_releases_its_directory(train: Train, tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_steps=3)
    with program_scope(ScriptedProgram()):
        await hook.begin()
        await hook.cleanup(None)
    await train(hook_for(tmp_path, save_steps=3), runs=1)


async def test_savers_come_last_in_every_phase_hk_ckpt_16(tmp_path: Path) -> None:
    """KC-20: so a user's ``end`` comes before the final save."""
    hook, other = hook_for(tmp_path, save_steps=1), RecordingHook()
    assert check_hooks([hook, other]) == (other, hook)


async def test_the_metrics_of_each_save_are_kept(train: Train, tmp_path: Path) -> None:
    accuracies = iter([0.1, 0.9, 0.5])
    hook = hook_for(tmp_path, save_steps=1, metrics=lambda: {"accuracy": next(accuracies)})
    await train(hook, runs=2)
    async with await CheckpointReader.open(f"{tmp_path}/model.ckpt-1") as reader:
        assert reader.facts.metrics == {"accuracy": 0.9}


@pytest.mark.parametrize("error", [None, KeyError("x")])
async def test_nothing_is_left_behind(train: Train, tmp_path: Path, error: Exception | None) -> None:
    script = [None] * 5 + [error] * (error is not None)
    async with assert_nothing_left_behind(tmp_path):
        try:
            session = ScriptedSession(script, state={"w": np.zeros(100_000)})
            await train(hook_for(tmp_path, save_steps=2), session=session)
        except KeyError:
            pass


async def test_by_seconds_failures_that_come_oftener_do_not_keep_saves_from_being_made(
    tmp_path: Path, lasting: Lasting
) -> None:
    """AX-11: each session lives for 7 s; saves are due at 10, 20 and 30 s all the same."""
    scripts = [lasting(1, [None] * 6 + [AbortedError("gone")]) for _ in range(4)]
    sessions = [
        ScriptedSession(script, state={"global_step": 100 * i}) for i, script in enumerate(scripts)
    ]
    async with MonitoredSession(
        ScriptedCreator(*sessions, ScriptedSession(lasting(1))), [hook_for(tmp_path, save_secs=10)]
    ) as sess:
        while asyncio.get_running_loop().time() < 32:
            await sess.run("train")
    assert {102, 205}.issubset(await saved(tmp_path))


async def test_the_session_has_the_saved_step_and_the_duration_of_the_last_save(tmp_path: Path) -> None:
    facts: list[Any] = []

    class Asks(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            self.saves = coord.saves
            facts.append((self.saves.step, self.saves.secs()))

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            facts.append((self.saves.step, 0 < self.saves.secs() < 60))

        async def cleanup(self, error: Any) -> None:
            facts.append((self.saves.step, self.saves.unsaved()))

    hooks = [Asks(), hook_for(tmp_path, save_steps=2)]
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), hooks) as sess:
        for _ in range(2):
            await sess.run("train")
    assert facts == [(None, 0), (0, True), (0, True), (2, None)]


async def test_a_save_that_is_requested_at_a_saved_step_writes_nothing(tmp_path: Path) -> None:
    began: list[int] = []

    class Noting(CheckpointSaverListener):
        async def before_save(self, session: Any, global_step: int) -> None:
            began.append(global_step)

    hook = hook_for(tmp_path, save_steps=2, listeners=[Noting()])
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        for _ in range(2):
            await sess.run("train")
        assert await sess.save() == f"{tmp_path}/model.ckpt-2"
        assert began == [0, 2]


async def test_the_last_save_is_written_without_pauses(tmp_path: Path) -> None:
    urgent: list[bool] = []

    class Look(FileCalls):
        def fsync(self, descriptor: int) -> None:
            if (control := current.get()) is not None:
                urgent.append(control.is_urgent)
            super().fsync(descriptor)

    hook = hook_for(tmp_path, save_steps=1000, saver=Saver(calls=Look()))
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        first = len(urgent)
        await sess.run("train")
    assert set(urgent[:first]) == {False}
    assert set(urgent[first:]) == {True}


@pytest.mark.parametrize("error", [UnavailableError, AbortedError])
@pytest.mark.parametrize(("failures", "secs"), [(0, 0), (1, 0.5), (2, 2.5), (3, None)])
async def test_the_last_save_is_tried_three_times_while_the_servers_fail(
    tmp_path: Path, error: type[Exception], failures: int, secs: float | None
) -> None:
    left = 0

    class Fails(FileCalls):
        def fsync(self, descriptor: int) -> None:
            nonlocal left
            if left:
                left -= 1
                raise error("down")
            super().fsync(descriptor)

    hook = hook_for(tmp_path, save_steps=1000, saver=Saver(calls=Fails()))
    with nullcontext() if secs is not None else pytest.raises(error, match="down"):
        async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
            await sess.run("train")
            left, began = failures, asyncio.get_running_loop().time()
    assert left == 0
    assert await saved(tmp_path) == ([0] if secs is None else [0, 1])
    if secs is not None:
        assert asyncio.get_running_loop().time() - began == pytest.approx(secs, abs=0.1)


async def test_a_restored_checkpoint_that_is_not_the_newest_is_saved_again(tmp_path: Path) -> None:
    """So that it is the newest: a recovery restores it, and not the later one."""
    async with MonitoredSession(
        ScriptedCreator(ScriptedSession()), [hook_for(tmp_path, save_steps=1)]
    ) as sess:
        for _ in range(3):
            await sess.run("train")
            await sess.save()
    creator = ChiefSessionCreator(
        program=ScriptedProgram(), checkpoint_filename_with_path=tmp_path / "model.ckpt-2"
    )
    async with MonitoredSession(creator, [hook_for(tmp_path, save_steps=100)]):
        assert await latest_checkpoint(tmp_path) == f"{tmp_path}/model.ckpt-2"


@pytest.mark.parametrize("when_busy", ["coalesce", "skip", "wait"])
async def test_a_save_that_is_requested_follows_the_one_in_flight(
    tmp_path: Path, when_busy: WhenBusy
) -> None:
    """With every policy, also where due saves are skipped or replaced."""
    is_open = threading.Event()

    class Gate(FileCalls):
        def fsync(self, descriptor: int) -> None:
            assert is_open.wait(60)
            super().fsync(descriptor)

    is_open.set()
    hook = hook_for(
        tmp_path, save_steps=2, timeout_secs=0, saver=Saver(when_busy=when_busy, calls=Gate())
    )
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        is_open.clear()
        for _ in range(5):
            await sess.run("train")
        asked = asyncio.create_task(sess.save())
        for _ in range(20):
            await asyncio.sleep(0)
        await sess.run("train")  # due, and not a reason to save a later state
        is_open.set()
        assert await asked == f"{tmp_path}/model.ckpt-5"
