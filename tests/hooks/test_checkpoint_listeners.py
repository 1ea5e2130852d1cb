"""CheckpointSaverHook, what goes with a save: HK-CKPT-5 to 11 and 15, AX-12, and failures."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from asyncmon.checkpoint import Saver, get_checkpoint_state
from asyncmon.errors import AbortedError, CancelledError, InvalidArgumentError, OpError
from asyncmon.hooks import CheckpointSaverHook, CheckpointSaverListener, StepCounterHook
from asyncmon.runtime import ChiefSessionCreator, Scaffold
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.protocols import Session
from asyncmon.summary import Event, SessionLog, summary_iterator
from asyncmon.system.files import FileCalls
from asyncmon.system.snapshot import HeldArray, Snapshot
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedProgram,
    ScriptedSession,
    wait_all_tasks_blocked,
)
from tests.hooks.conftest import Train

Lines = Callable[..., list[str]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Listener(CheckpointSaverListener):
    """Writes down its calls; asks for a stop after the save of one step."""

    def __init__(
        self, name: str, record: list[str], folder: Path, stop_after: int | None = None
    ) -> None:
        self.name = name
        self.record = record
        self.folder = folder
        self.stop_after = stop_after

    async def begin(self) -> None:
        self.record.append(f"{self.name} begin")

    async def before_save(self, session: Session, global_step_value: int) -> None:
        self.record.append(
            f"{self.name} before {global_step_value} {await self.has(global_step_value)}"
        )

    async def after_save(self, session: Session, global_step_value: int) -> bool:
        self.record.append(f"{self.name} after {global_step_value} {await self.has(global_step_value)}")
        return global_step_value == self.stop_after

    async def end(self, session: Session, global_step_value: int) -> None:
        self.record.append(f"{self.name} end {global_step_value}")

    async def has(self, step: int) -> bool:
        return step in await saved(self.folder)


async def saved(folder: Path) -> list[int]:
    state = await get_checkpoint_state(folder)
    return (
        [] if state is None else [int(p.rpartition("-")[2]) for p in state.all_model_checkpoint_paths]
    )


def hook_for(folder: Path, *listeners: Any, **arguments: Any) -> CheckpointSaverHook:
    saver = arguments.pop("saver", None) or Saver(max_to_keep=None)
    return CheckpointSaverHook(folder, saver=saver, listeners=listeners, **arguments)


async def events(folder: Path) -> list[Event]:
    [name] = [name for name in os.listdir(folder) if "tfevents" in name]
    return [event async for event in summary_iterator(folder / name)]


async def test_the_lines_of_a_save_hk_ckpt_5(train: Train, tmp_path: Path, lines: Lines) -> None:
    await train(hook_for(tmp_path, save_steps=5), runs=0)
    said = lines("checkpoint_saver", "saves")
    prefix = f"{tmp_path}/model.ckpt-0"
    assert said[:3] == [
        "Create CheckpointSaverHook.",
        "Calling checkpoint listeners before saving checkpoint 0...",
        f"Saving checkpoints for 0 into {prefix}.",
    ]
    assert said[3].startswith(f"Saved checkpoint {prefix} in 0.")
    assert said[4:] == ["Calling checkpoint listeners after saving checkpoint 0..."]


async def test_all_before_then_the_save_then_all_after_hk_ckpt_6(train: Train, tmp_path: Path) -> None:
    record: list[str] = []
    listeners = Listener("a", record, tmp_path), Listener("b", record, tmp_path)
    await train(hook_for(tmp_path, *listeners, save_steps=2), runs=3)
    assert record == [
        *("a begin", "b begin"),
        *("a before 0 False", "b before 0 False", "a after 0 True", "b after 0 True"),
        *("a before 2 False", "b before 2 False", "a after 2 True", "b after 2 True"),
        *("a before 3 False", "b before 3 False", "a after 3 True", "b after 3 True"),
        *("a end 3", "b end 3"),
    ]


@pytest.mark.parametrize(("stop_after", "steps"), [(4, 4), (0, 0)])
async def test_a_listener_stops_training_hk_ckpt_7(
    train: Train, tmp_path: Path, lines: Lines, stop_after: int, steps: int
) -> None:
    """Also after the initial save. All listeners are still called."""
    record: list[str] = []
    listeners = Listener("a", record, tmp_path, stop_after), Listener("b", record, tmp_path)
    session = await train(hook_for(tmp_path, *listeners, save_steps=2), session=ScriptedSession())
    assert session.global_step == steps
    assert f"b after {stop_after} True" in record
    line = f"A CheckpointSaverListener requested that training be stopped. listener: {listeners[0]}"
    assert line in lines("checkpoint_saver", "saves")


async def test_the_stop_comes_at_the_exact_step_hk_ckpt_7(tmp_path: Path) -> None:
    """As in TF1, ``after_save`` is a part of the run; the listener is called before the next run."""
    record: list[str] = []
    hook = hook_for(tmp_path, Listener("a", record, tmp_path, stop_after=3), save_steps=1)
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        for step in (1, 2, 3):
            assert not sess.should_stop()
            await sess.run("train")
            assert record[-1] == f"a after {step} True"
        assert sess.should_stop()


@pytest.mark.parametrize(
    ("arguments", "secs"), [({}, 1.0), ({"timeout_secs": 2.5}, 2.5), ({"timeout_secs": 0}, 0)]
)
async def test_a_slow_listener_holds_a_run_for_timeout_secs_only(
    tmp_path: Path, arguments: dict[str, float], secs: float
) -> None:
    """Run 2 waits for its own ``after_save``, run 4 for that of run 2 and its own."""

    class Slow(CheckpointSaverListener):
        async def after_save(self, session: Session, global_step_value: int) -> None:
            if global_step_value:
                await asyncio.sleep(600)

    loop = asyncio.get_running_loop()
    hook = hook_for(tmp_path, Slow(), save_steps=2, **arguments)
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        began = loop.time()
        for run in range(1, 5):
            await sess.run("train")
            assert loop.time() - began == pytest.approx([0, 0, 1, 1, 3][run] * secs)


async def test_a_run_does_not_wait_for_a_save_without_listeners(tmp_path: Path) -> None:
    gate, session = Gate(), ScriptedSession()
    before_only = type("BeforeOnly", (CheckpointSaverListener,), {})()
    hook = hook_for(tmp_path, before_only, save_steps=1, saver=Saver(max_to_keep=None, calls=gate))
    async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
        gate.open_gate.clear()
        await sess.run("train")
        assert await saved(tmp_path) == [0]
        gate.open_gate.set()
    assert await saved(tmp_path) == [0, 1]


async def test_listeners_end_also_without_a_final_save_hk_ckpt_8(train: Train, tmp_path: Path) -> None:
    record: list[str] = []
    await train(hook_for(tmp_path, Listener("a", record, tmp_path), save_steps=2), runs=2)
    assert record[-2:] == ["a after 2 True", "a end 2"]


async def test_an_error_before_a_save_prevents_it_hk_ckpt_9(train: Train, tmp_path: Path) -> None:
    class Failing(CheckpointSaverListener):
        async def before_save(self, session: Session, global_step_value: int) -> None:
            if global_step_value == 2:
                raise KeyError("x")

    with pytest.raises(KeyError):
        await train(hook_for(tmp_path, Failing(), save_steps=2))
    assert await saved(tmp_path) == [0]


async def test_an_error_after_a_save_leaves_the_run_hk_ckpt_9(train: Train, tmp_path: Path) -> None:
    class Failing(CheckpointSaverListener):
        async def after_save(self, session: Session, global_step_value: int) -> None:
            if global_step_value == 2:
                raise KeyError("x")

    script: Iterable[Any] = (lambda: asyncio.sleep(1) for _ in range(100))
    with pytest.raises(KeyError):
        await train(hook_for(tmp_path, Failing(), save_steps=2), session=ScriptedSession(script))
    assert await saved(tmp_path) == [0, 2]


async def test_each_save_is_an_event_of_its_step_with_its_path_hk_ckpt_11(
    train: Train, tmp_path: Path
) -> None:
    """AX-11, and MT-19: the path is the whole prefix."""
    await train(hook_for(tmp_path, save_steps=2), runs=3)
    logs = [
        event for event in await events(tmp_path) if event.session_log.status == SessionLog.CHECKPOINT
    ]
    assert [(event.step, event.session_log.checkpoint_path) for event in logs] == [
        (step, f"{tmp_path}/model.ckpt-{step}") for step in (0, 2, 3)
    ]


@pytest.mark.parametrize("error", [None, KeyError("x"), asyncio.CancelledError()])
async def test_one_event_file_begins_with_start_and_ends_with_stop_hk_ckpt_15(
    train: Train, tmp_path: Path, error: BaseException | None
) -> None:
    """FW-9, MT-16 and MT-17, at a successful end, an error and a cancellation."""
    counter = StepCounterHook(1, output_dir=tmp_path)
    script = [None, None, *([error] if error else [])]
    with contextlib.suppress(KeyError, asyncio.CancelledError):
        await train(counter, hook_for(tmp_path, save_steps=2), session=ScriptedSession(script))
    statuses = [event.session_log.status for event in await events(tmp_path)]
    assert [status for status in statuses if status] == [
        SessionLog.START,
        SessionLog.CHECKPOINT,
        SessionLog.CHECKPOINT,
        SessionLog.STOP,
    ]


class Gate(FileCalls):
    """System calls that wait at each fsync while the gate is shut, or fail."""

    def __init__(self) -> None:
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.error: OSError | None = None

    def fsync(self, descriptor: int) -> None:
        self.open_gate.wait(timeout=60)
        if self.error is not None:
            raise self.error
        super().fsync(descriptor)


async def test_steps_continue_during_a_slow_save_and_further_ones_are_coalesced_ax_12(
    tmp_path: Path,
) -> None:
    gate, session = Gate(), ScriptedSession()
    hook = hook_for(tmp_path, save_steps=2, timeout_secs=0, saver=Saver(max_to_keep=None, calls=gate))
    async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
        gate.open_gate.clear()
        for _ in range(9):
            await sess.run("train")
            await asyncio.sleep(0)
        assert session.global_step == 9
        assert await saved(tmp_path) == [0]
        gate.open_gate.set()
    assert await saved(tmp_path) == [0, 2, 8, 9]


async def test_a_run_waits_for_the_save_before_the_one_that_it_makes_due(tmp_path: Path) -> None:
    gate, session = Gate(), ScriptedSession()
    hook = hook_for(tmp_path, save_steps=1, saver=Saver(max_to_keep=None, calls=gate))
    async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
        gate.open_gate.clear()
        await sess.run("train")
        second = asyncio.create_task(sess.run("train"))
        await turns()
        assert not second.done()
        assert session.global_step == 2
        gate.open_gate.set()
        await second
    assert await saved(tmp_path) == [0, 1, 2]


async def test_a_failed_save_interrupts_the_run_and_leaves_the_session(tmp_path: Path) -> None:
    gate, recorder = Gate(), RecordingHook()
    hook = hook_for(tmp_path, save_steps=2, saver=Saver(calls=gate))
    script: Iterable[Any] = (lambda: asyncio.sleep(10) for _ in range(100))

    async def fill_the_disk() -> None:
        async with MonitoredSession(ScriptedCreator(ScriptedSession(script)), [hook, recorder]) as sess:
            await sess.run("train")
            gate.error = OSError(errno.ENOSPC, "No space left on device")
            while not sess.should_stop():
                await sess.run("train")

    with pytest.raises(OpError, match="No space left"):
        await fill_the_disk()
    assert recorder.steps("after_run") == [1, 2]
    assert await saved(tmp_path) == [0]


async def turns() -> None:
    """Let the event loop go round, also while a thread waits."""
    for _ in range(50):
        await asyncio.sleep(0)


class Preempted(ScriptedProgram):
    """Sessions of which the first is gone at its fourth run."""

    def __init__(self, first: Callable[[list[Any]], ScriptedSession] = ScriptedSession) -> None:
        super().__init__()
        self.first: ScriptedSession | None = first([None, None, None, AbortedError("gone")])

    def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
        first, self.first = self.first, None
        return first or ScriptedSession()


async def recover_during_a_save(folder: Path, *listeners: Any, error: OSError | None = None) -> None:
    """Run four steps; a save at the second continues, or fails, while the session is replaced."""
    gate = Gate()
    scaffold = Scaffold(saver=Saver(max_to_keep=None, calls=gate))
    creator = ChiefSessionCreator(scaffold, program=Preempted(), checkpoint_dir=folder)
    hook = CheckpointSaverHook(
        folder, save_steps=2, scaffold=scaffold, listeners=listeners, timeout_secs=0
    )
    async with MonitoredSession(creator, [hook]) as sess:
        await sess.run("train")
        gate.open_gate.clear()
        gate.error = error
        await sess.run("train")
        await sess.run("train")
        recovering = asyncio.create_task(sess.run("train"))
        await turns()
        gate.open_gate.set()
        await recovering
        gate.error = None
        await sess.run("train")


async def test_a_recovery_leaves_nothing_unsaid_of_a_save_under_way_hk_ckpt_11(
    tmp_path: Path, lines: Lines
) -> None:
    """HK-CKPT-7: its listeners are called too, with the session that took over."""
    record: list[str] = []
    await recover_during_a_save(tmp_path, Listener("a", record, tmp_path))
    assert [line for line in record if "after" in line] == [
        f"a after {step} True" for step in (0, 2, 4)
    ]
    saves = [event.step for event in await events(tmp_path) if event.session_log.checkpoint_path]
    assert saves == [0, 2, 4]
    written = [line for line in lines("saves") if line.startswith("Saved checkpoint")]
    assert len(written) == 3


async def test_a_listener_that_a_recovery_interrupts_is_not_called_again(tmp_path: Path) -> None:
    """Later saves are reported when the new session is there."""
    record: list[str] = []

    class Slow(CheckpointSaverListener):
        async def after_save(self, session: Session, global_step_value: int) -> None:
            record.append(f"slow after {global_step_value}")
            if global_step_value == 2:
                await asyncio.get_running_loop().create_future()

    gate = Gate()
    scaffold = Scaffold(saver=Saver(max_to_keep=None, calls=gate))
    creator = ChiefSessionCreator(scaffold, program=Preempted(), checkpoint_dir=tmp_path)
    listeners = Slow(), Listener("a", record, tmp_path)
    hook = CheckpointSaverHook(
        tmp_path, save_steps=2, scaffold=scaffold, listeners=listeners, timeout_secs=0
    )
    async with MonitoredSession(creator, [hook]) as sess:
        await sess.run("train")
        await sess.run("train")
        await wait_all_tasks_blocked()
        assert record[-1] == "slow after 2"
        await sess.run("train")
        await sess.run("train")
    assert [line for line in record if "after 2" in line] == ["slow after 2", "a after 2 True"]


async def test_a_save_that_fails_during_a_recovery_interrupts_the_session_that_takes_over(
    tmp_path: Path,
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OpError, match="No space left"):
        await recover_during_a_save(tmp_path, error=error)


@pytest.mark.parametrize(
    "error", [RuntimeError("Session is closed."), CancelledError("Session has been closed.")]
)
async def test_a_save_whose_snapshot_is_lost_with_its_session_is_a_warning(
    tmp_path: Path, error: Exception, lines: Lines
) -> None:
    """With any error that the session has for it."""

    class Waiting(ScriptedSession):
        """Its snapshot after the second run waits until it is closed."""

        waiting: asyncio.Future[Any] | None = None

        def snapshot(self) -> Any:
            if self.global_step != 2:
                return super().snapshot()
            self.waiting = asyncio.get_running_loop().create_future()
            return self.waiting

        async def close(self) -> None:
            if self.waiting is not None:
                self.waiting.set_exception(error)
            await super().close()

    await lose_a_save(Preempted(Waiting), tmp_path, lines)


async def lose_a_save(program: Preempted, folder: Path, lines: Lines) -> None:
    scaffold = Scaffold(saver=Saver(max_to_keep=None))
    creator = ChiefSessionCreator(scaffold, program=program, checkpoint_dir=folder)
    hook = CheckpointSaverHook(folder, save_steps=2, scaffold=scaffold, timeout_secs=0)
    async with MonitoredSession(creator, [hook]) as sess:
        for _ in range(6):
            await sess.run("train")
        assert sess.global_step == 3
    assert any("was lost with its session" in line for line in lines("saves"))
    assert await saved(folder) == [0, 2, 3]


class Elsewhere(ScriptedSession):
    """Its arrays are in another process, which ends when the session is closed."""

    def __init__(self, script: list[Any], ended: Exception) -> None:
        super().__init__(script)
        self.ended, self.is_gone = ended, threading.Event()

    async def snapshot_to_write(self) -> Snapshot:
        held = {"__weights": HeldArray("__weights", np.dtype(np.float32), (1 << 20,))}
        return Snapshot({"global_step": np.asarray(self.global_step), **held}, None, None, self)

    def write_file(self, path: str, header: bytes, arrays: Any, control: Any) -> dict[str, int]:
        if self.global_step >= 2:
            assert self.is_gone.wait(60)
            raise self.ended
        found = {**arrays, "__weights": np.zeros(1 << 20, np.float32)}
        content = {name: found[name].tobytes() for name in arrays}
        Path(path).write_bytes(header + b"".join(content.values()))
        return {name: google_crc32c.value(data) for name, data in content.items()}

    async def close(self) -> None:
        self.is_gone.set()
        await super().close()


@pytest.mark.parametrize(
    "ended", [CancelledError("Session has been closed."), InvalidArgumentError("There is no snapshot.")]
)
async def test_a_save_whose_arrays_are_lost_with_their_process_is_a_warning(
    tmp_path: Path, ended: Exception, lines: Lines
) -> None:
    """With any error that the session has for it, also after the snapshot was ordered there."""

    await lose_a_save(Preempted(lambda script: Elsewhere(script, ended)), tmp_path, lines)


async def test_an_end_within_the_deadline_still_records_committed_saves(tmp_path: Path) -> None:
    """HK-CKPT-11: the session is closed by then, so that no listener is called."""
    record: list[str] = []
    gate, listener = Gate(), Listener("a", record, tmp_path)
    saver = Saver(max_to_keep=None, calls=gate)
    hook = hook_for(tmp_path, listener, save_steps=1, saver=saver, timeout_secs=0)
    failed = asyncio.Event()

    async def fail() -> None:
        creator = ScriptedCreator(ScriptedSession([None]))
        async with MonitoredSession(creator, [hook], stop_grace_period_secs=0) as sess:
            gate.open_gate.clear()
            await sess.run("train")
            failed.set()
            raise KeyError("x")

    failing = asyncio.create_task(fail())
    await failed.wait()
    await turns()  # to where the end waits for the save
    gate.open_gate.set()
    with pytest.raises(KeyError):
        await failing
    assert [event.step for event in await events(tmp_path) if event.session_log.checkpoint_path] == [
        0,
        1,
    ]
    assert "a after 1 True" not in record


async def test_a_save_that_failed_is_tried_again_at_the_end(tmp_path: Path) -> None:
    gate = Gate()
    hook = hook_for(tmp_path, save_steps=2, saver=Saver(calls=gate))

    async def fill_the_disk_for_a_moment() -> None:
        async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
            gate.error = OSError(errno.ENOSPC, "No space left on device")
            await sess.run("train")
            await sess.run("train")
            await wait_all_tasks_blocked()
            gate.error = None

    with pytest.raises(OpError, match="No space left"):
        await fill_the_disk_for_a_moment()
    assert await saved(tmp_path) == [0, 2]


@pytest.mark.parametrize("moment", ["before_save", "after_save"])
@pytest.mark.parametrize("period", [{"save_secs": 2}, {"save_steps": 2}])
async def test_an_error_of_a_listener_is_not_the_last_save_if_so_configured(
    train: Train, tmp_path: Path, period: dict[str, Any], moment: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(Listener):
        async def before_save(self, session: Session, global_step_value: int) -> None:
            await self.fail_at("before_save", global_step_value)
            await super().before_save(session, global_step_value)

        async def after_save(self, session: Session, global_step_value: int) -> bool:
            await self.fail_at("after_save", global_step_value)
            return await super().after_save(session, global_step_value)

        async def fail_at(self, now: str, step: int) -> None:
            if now == moment and step == 2:
                raise KeyError("x")

    record: list[str] = []
    failing, other = Failing("a", record, tmp_path), Listener("b", record, tmp_path)
    hook = hook_for(tmp_path, failing, other, **period)
    hook.on_error = "log"
    script: Iterable[Any] = (lambda: asyncio.sleep(0.9) for _ in range(100))
    await train(hook, runs=9, session=ScriptedSession(script))
    kept = await saved(tmp_path)
    assert kept[-1] == 9
    assert len(kept) >= 5
    assert ("b after 2 True" in record) == (moment == "after_save")
    assert "a after 2 True" not in record
    assert "KeyError" in caplog.text


@pytest.mark.parametrize("period", [{"save_secs": 2}, {"save_steps": 2}])
async def test_a_save_that_failed_is_not_the_last_if_so_configured(
    tmp_path: Path, period: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    hook = hook_for(tmp_path, saver=Saver(calls=gate), **period)
    hook.on_error = "log"
    script: Iterable[Any] = (lambda: asyncio.sleep(1.1) for _ in range(100))
    async with MonitoredSession(ScriptedCreator(ScriptedSession(script)), [hook]) as sess:
        gate.error = OSError(errno.ENOSPC, "No space left on device")
        await sess.run("train")
        await sess.run("train")
        await asyncio.sleep(1)
        gate.error = None
        await sess.run("train")
        await sess.run("train")
        await asyncio.sleep(1)
    assert await saved(tmp_path) == [0, 4] if "save_steps" in period else [0, 3, 4]
    assert "No space left on device" in caplog.text


async def test_a_hook_whose_listener_fails_is_taken_out_at_the_next_save_if_so_configured(
    train: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(CheckpointSaverListener):
        async def after_save(self, session: Session, global_step_value: int) -> None:
            if global_step_value == 2:
                raise KeyError("x")

    hook, after = hook_for(tmp_path, Failing(), save_steps=2), RecordingHook()
    hook.on_error = "detach"
    session = await train(hook, after, runs=9)
    assert session.global_step == 9
    assert await saved(tmp_path) == [0, 2]
    assert "The checkpoint of step 2: on_error='detach', at the next save." in caplog.text
    assert "CheckpointSaverHook.after_run failed; on_error='detach'." in caplog.text


class PlainListener(CheckpointSaverListener):
    def after_save(self, session: Session, global_step_value: int) -> None:  # type: ignore[override]  # plain, as in TF1
        """As in TF1, where no caller awaits it."""


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ([CheckpointSaverListener], r"got the class 'CheckpointSaverListener'. Write `"),
        (CheckpointSaverListener(), r"Write `listeners=\[...\]`"),
        ([3], "3 is no listener, it has no method 'begin'"),
        ([PlainListener()], "PlainListener.after_save is a plain function .*; listeners are awaited"),
    ],
)
async def test_wrong_listeners_are_refused_before_the_first_save(
    tmp_path: Path, listeners: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        CheckpointSaverHook(tmp_path, save_steps=1, listeners=listeners)
