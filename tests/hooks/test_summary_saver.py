"""SummarySaverHook: HK-SUM-1 to 7."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from asyncmon import graph as g
from asyncmon.errors import AbortedError, InvalidArgumentError
from asyncmon.hooks import SummarySaverHook
from asyncmon.runtime.hook import overrides
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.summary import (
    Event,
    FileWriter,
    SessionLog,
    Summary,
    merge_all,
    scalar,
    summary_iterator,
)
from asyncmon.testing import ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

Lasting = Callable[..., Iterable[Any]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Summarised(ScriptedSession):
    """A session whose fetch "summary" gives the step before the run, serialized."""

    def __init__(self, script: Iterable[Any] | None = None, **kwargs: Any) -> None:
        super().__init__(script, values={"summary": self.summary, "other": {"b": 2.0}}, **kwargs)

    def summary(self) -> bytes:
        value = Summary.Value(tag="step", simple_value=float(self.global_step))
        return Summary(value=[value]).SerializeToString()


async def events(folder: Path) -> list[Event]:
    [name] = os.listdir(folder)
    return [event async for event in summary_iterator(folder / name)]


async def steps(folder: Path, tag: str = "step") -> list[int]:
    """Return the steps at which a summary was written, each made in the run of that very step."""
    found = []
    for event in await events(folder):
        for value in event.summary.value:
            if value.tag == tag:
                found.append(event.step)
                assert value.tag != "step" or value.simple_value == event.step
    return found


def hook_for(folder: Path, **arguments: Any) -> SummarySaverHook:
    return SummarySaverHook(output_dir=folder, **({"summary_op": "summary"} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"save_steps": 1}, "Exactly one of scaffold or summary_op must be provided."),
        (
            {"save_steps": 1, "scaffold": Scaffold(), "summary_op": "x"},
            "Exactly one of scaffold or summary_op must be provided.",
        ),
        (
            {"summary_op": "x", "output_dir": "x"},
            "Either every_secs or every_steps should be provided.",
        ),
        (
            {"summary_op": "x", "save_steps": 1, "save_secs": 1},
            "Can not provide both every_secs and every_steps.",
        ),
        ({"summary_op": "x", "output_dir": "x", "save_steps": 0}, "invalid save_steps=0"),
        ({"summary_op": "x", "output_dir": "x", "save_secs": 0}, "invalid save_secs=0"),
        ({"summary_op": "x", "save_steps": 1}, "nowhere to write"),
    ],
)
async def test_wrong_arguments_hk_sum_1(arguments: dict[str, Any], message: str) -> None:
    """HK-SUM-5, last case, and TM-1, too."""
    with pytest.raises(ValueError, match=message):
        SummarySaverHook(**arguments)


@pytest.mark.parametrize(
    ("period", "runs", "expected"),
    [(8, 30, [1, 9, 17, 25]), (100, 250, [1, 101, 201]), (1, 3, [1, 2, 3])],
)
async def test_the_first_run_and_then_every_n_steps_hk_sum_2(
    train: Train, tmp_path: Path, period: int, runs: int, expected: list[int]
) -> None:
    await train(hook_for(tmp_path, save_steps=period), runs=runs, session=Summarised())
    assert await steps(tmp_path) == expected


async def test_steps_that_jump_hk_sum_2(train: Train, tmp_path: Path) -> None:
    """HK-SUM-3: a run is expected to advance by one. One jumps from 14 past 17; the next is asked."""
    await train(hook_for(tmp_path, save_steps=10), runs=6, session=Summarised(steps_per_run=7))
    assert await steps(tmp_path) == [7, 28]


async def test_a_run_that_was_expected_to_jump_further_is_not_written_hk_sum_2(
    train: Train, tmp_path: Path
) -> None:
    """After 7 steps at once the run from 7 on might reach 12, and does not."""
    script = [{"global_step": step, "summary": {"step": step}} for step in (7, 8, 9, 10, 11, 12, 13)]
    await train(hook_for(tmp_path, save_steps=5), runs=7, session=Summarised(script))
    assert await steps(tmp_path) == [7, 12]


async def test_start_comes_first_with_the_step_the_session_begins_at_hk_sum_2(
    train: Train, tmp_path: Path
) -> None:
    """FW-9 and MT-20: a restart at 250 begins with step 251."""
    session = Summarised(state={"global_step": 250})
    await train(hook_for(tmp_path, save_steps=100), runs=2, session=session)
    first = next(event for event in await events(tmp_path) if event.session_log.status)
    assert (first.session_log.status, first.step) == (SessionLog.START, 251)
    assert await steps(tmp_path) == [251]


async def test_by_seconds_hk_sum_2(train: Train, tmp_path: Path, lasting: Lasting) -> None:
    """Runs of 3.7 s: the first, and the first that begin after 13.7, 23.7 and 33.7 s."""
    await train(hook_for(tmp_path, save_secs=10), runs=11, session=Summarised(lasting(3.7)))
    assert await steps(tmp_path) == [1, 5, 8, 11]


async def test_by_seconds_a_run_costs_nothing_hk_sum_2(tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_secs=10)
    assert not overrides(hook, "before_run")
    assert not overrides(hook, "after_run")


async def test_the_summary_is_fetched_only_in_runs_that_are_due_hk_sum_3(
    train: Train, tmp_path: Path
) -> None:
    session = await train(hook_for(tmp_path, save_steps=3), runs=6, session=Summarised())
    assert [fetches != "train" for fetches in session.runs] == [True, False, False, True, False, False]


@pytest.mark.parametrize("error", [None, KeyError("x")])
async def test_everything_is_on_disk_at_any_end_hk_sum_4(
    train: Train, tmp_path: Path, error: Exception | None
) -> None:
    script = [None, None, *([error] if error else [])]
    try:
        await train(hook_for(tmp_path, save_steps=1), session=Summarised(script))
    except KeyError:
        assert error is not None
    assert await steps(tmp_path) == [1, 2]
    assert (await events(tmp_path))[-1].session_log.status == SessionLog.STOP


async def test_several_summaries_of_several_kinds_hk_sum_5(train: Train, tmp_path: Path) -> None:
    hook = hook_for(tmp_path, save_steps=2, summary_op=["summary", "other", "missing"])
    await train(hook, runs=3, session=Summarised())
    assert await steps(tmp_path) == [1, 3]
    assert await steps(tmp_path, "b") == [1, 3]


async def test_a_scaffold_without_summaries_writes_only_start_hk_sum_5(
    train: Train, tmp_path: Path
) -> None:
    for number, period in enumerate(({"save_steps": 1}, {"save_secs": 1})):
        folder = tmp_path / str(number)
        hook = hook_for(folder, scaffold=Scaffold(), summary_op=None, **period)
        await train(hook, runs=3, session=Summarised())
        statuses = [event.session_log.status for event in await events(folder)]
        assert [status for status in statuses if status] == [SessionLog.START, SessionLog.STOP]
        assert await steps(folder) == []


@pytest.mark.parametrize(("failing_run", "before"), [(11, [1]), (15, [1, 11])])
async def test_a_recovery_begins_again_hk_sum_6(
    tmp_path: Path, failing_run: int, before: list[int]
) -> None:
    """Whether the run that failed was due or not."""
    first = Summarised([None] * (failing_run - 1) + [AbortedError("gone")])
    sessions = ScriptedCreator(first, Summarised(state={"global_step": 5}))
    async with MonitoredSession(sessions, [hook_for(tmp_path, save_steps=10)]) as sess:
        for _ in range(30):
            await sess.run("train")
    assert await steps(tmp_path) == [*before, 6, 16]
    starts = [e.step for e in await events(tmp_path) if e.session_log.status == SessionLog.START]
    assert starts == ([1, 6] if 11 in before else [1]), "FW-9: what lost steps wrote is forgotten"


@pytest.mark.parametrize("back_at", [14, 11])
async def test_a_step_that_goes_back_begins_again_tm_4(
    train: Train, tmp_path: Path, back_at: int
) -> None:
    """Whether the run that goes back was due or not; and FW-9: what undone steps wrote is forgotten."""
    script = [None] * (back_at - 1) + [{"global_step": 3, "summary": {"step": 3}}] + [None] * 15
    await train(hook_for(tmp_path, save_steps=5), runs=back_at + 15, session=Summarised(script))
    written = [1, 6, 11] if back_at == 14 else [1, 6]
    assert await steps(tmp_path) == [*written, 4, 9, 14]
    starts = [e.step for e in await events(tmp_path) if e.session_log.status == SessionLog.START]
    assert starts == [1, 4]


async def test_runs_that_do_no_step_are_not_written(train: Train, tmp_path: Path) -> None:
    """MT-26 and KC-10."""
    script = [
        {"global_step": 0},
        None,
        {"global_step": 1},
        None,
        {"global_step": 2},
        {"global_step": 2},
        None,
    ]
    await train(hook_for(tmp_path, save_steps=2), session=Summarised(script))
    assert await steps(tmp_path) == [1, 3]


@pytest.mark.parametrize("period", [{"save_steps": 2}, {"save_secs": 1.5}])
async def test_a_failing_summary_fails_the_run_by_default_hk_sum_7(
    train: Train, tmp_path: Path, period: Any, lasting: Lasting, caplog: pytest.LogCaptureFixture
) -> None:
    """MT-25."""

    class Failing(Summarised):
        async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
            if self.global_step == 1:
                raise InvalidArgumentError("You must feed a value for placeholder tensor 'x'")
            return await super().peek(fetches, feed_dict)

    hook = hook_for(tmp_path, on_error="log", **period)
    session = await train(hook, runs=5, session=Failing(lasting(1)))
    assert session.global_step == 5
    assert all(fetches == "train" or fetches == ("train", []) for fetches in session.runs)
    assert len(await steps(tmp_path)) >= 1
    assert "The summary of step 1 failed." in caplog.text


async def test_a_given_writer_is_flushed_and_stays_open(train: Train, tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:
        hook = SummarySaverHook(1, summary_writer=writer, summary_op="summary")
        await train(hook, runs=2, session=Summarised())
        assert await steps(tmp_path) == [1, 2]
        assert not writer.closed


async def test_a_summary_that_is_not_fed_names_the_hook_and_the_line(tmp_path: Path) -> None:
    with g.Graph().as_default():
        train_op = g.get_or_create_global_step().assign_add(1)
        x = g.placeholder(g.float32, name="x")
        scalar("x", x)
        hook = SummarySaverHook(1, output_dir=tmp_path, summary_op=merge_all())
        async with MonitoredSession(hooks=[hook]) as sess:
            with pytest.raises(InvalidArgumentError, match="placeholder tensor 'x'") as caught:
                await sess.run(train_op)
            assert f"created at {__file__}:" in caught.value.__notes__[0]
            assert "the fetches of SummarySaverHook need it" in caught.value.__notes__[1]
            with pytest.raises(InvalidArgumentError) as caught:
                await sess.run([train_op, x])
            assert "SummarySaverHook" not in str(caught.value.__notes__)
            await sess.run(train_op, {x: 1.0})
