"""StepCounterHook: HK-STEP-1 to 7."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from asyncmon.errors import AbortedError
from asyncmon.hooks import StepCounterHook
from asyncmon.runtime.hook import overrides
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.summary import FileWriter, summary_iterator
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

Lines = Callable[[str], list[str]]
Lasting = Callable[..., Iterable[Any]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def rates(folder: Path) -> list[tuple[int, float]]:
    """Return the steps and values of the summary in a directory."""
    [name] = os.listdir(folder)
    return [
        (event.step, value.simple_value)
        async for event in summary_iterator(folder / name)
        for value in event.summary.value
        if value.tag == "global_step/sec"
    ]


@pytest.mark.parametrize(
    "arguments", [{"every_n_steps": 5, "every_n_secs": 5}, {"every_n_steps": None}]
)
async def test_exactly_one_period_hk_step_1(arguments: dict[str, Any]) -> None:
    message = "exactly one of every_n_steps and every_n_secs should be provided."
    with pytest.raises(ValueError, match=message):
        StepCounterHook(**arguments)


async def test_seconds_alone_override_the_default_hk_step_1() -> None:
    hook = StepCounterHook(every_n_secs=3)
    assert overrides(hook, "background")
    assert not overrides(hook, "after_run")
    default = inspect.signature(StepCounterHook).parameters["every_n_steps"].default
    assert default == 100
    with pytest.raises(ValueError, match="exactly one"):
        StepCounterHook(every_n_steps=100, every_n_secs=3)


@pytest.mark.parametrize("arguments", [{"every_n_steps": 0}, {"every_n_secs": 0}])
async def test_a_period_is_positive(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="invalid every_n_s"):
        StepCounterHook(**arguments)


async def test_by_seconds_an_error_is_not_the_last_report_if_so_configured(
    train: Train,
    lasting: Lasting,
    lines: Lines,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Full(FileWriter):
        def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
            raise RuntimeError("No space left on device")

    async with Full(tmp_path) as writer:
        hook = StepCounterHook(every_n_secs=10, summary_writer=writer)
        hook.on_error = "log"
        await train(hook, runs=35, session=ScriptedSession(lasting(1.0)))
    assert len(lines("progress")) == 3
    assert caplog.text.count("RuntimeError: No space left on device") == 1, "the same error once"


@pytest.mark.parametrize(("period", "steps"), [(10, [11, 21]), (4, [5, 9, 13, 17, 21, 25])])
async def test_the_first_run_only_sets_the_mark_hk_step_2(
    train: Train, lasting: Lasting, tmp_path: Path, period: int, steps: list[int]
) -> None:
    hook = StepCounterHook(every_n_steps=period, output_dir=tmp_path)
    await train(hook, runs=28, session=ScriptedSession(lasting(0.5)))
    assert await rates(tmp_path) == [(step, 2.0) for step in steps]


async def test_by_seconds_from_the_first_run_on_hk_step_2(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    """The mark is set at 0.4 s, step 1; then a report each second, at 1.4, 2.4 and 3.4 s."""
    hook = StepCounterHook(every_n_secs=1, output_dir=tmp_path)
    await train(hook, runs=10, session=ScriptedSession(lasting(0.4)))
    assert await rates(tmp_path) == [(3, 2.0), (5, 2.0), (8, 3.0)]


async def test_the_line_hk_step_3(train: Train, lasting: Lasting, lines: Lines) -> None:
    await train(StepCounterHook(every_n_steps=2), runs=5, session=ScriptedSession(lasting(0.3)))
    assert lines("progress") == ["global_step/sec: 3.33333"] * 2


async def test_a_step_that_stands_still_is_warned_of_once_hk_step_4(train: Train, lines: Lines) -> None:
    session = ScriptedSession(steps_per_run=0)
    await train(StepCounterHook(), StepCounterHook(), runs=9, session=session)
    warnings = lines("progress")
    assert len(warnings) == 2, "once for each hook"
    assert warnings[0].startswith(
        "It seems that global step (tf.train.get_global_step) has not been increased."
    )


async def test_by_seconds_too_hk_step_4(train: Train, lasting: Lasting, lines: Lines) -> None:
    session = ScriptedSession(lasting(1), steps_per_run=0)
    await train(StepCounterHook(every_n_secs=2), runs=20, session=session)
    assert len(lines("progress")) == 1


async def test_by_seconds_an_interval_without_a_run_is_no_warning(
    lines: Lines, lasting: Lasting
) -> None:
    session = ScriptedSession(lasting(1))
    hook = StepCounterHook(every_n_secs=2)
    async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
        await sess.run("train")
        await asyncio.sleep(18.5)
        for _ in range(4):
            await sess.run("train")
    assert lines("progress") == ["global_step/sec: 0.05", "global_step/sec: 1"]


async def test_no_time_gives_no_rate_hk_step_5(train: Train, lines: Lines) -> None:
    await train(StepCounterHook(every_n_steps=1), runs=5)
    assert lines("progress") == []


async def test_a_given_writer_wins_and_stays_open_hk_step_6(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    async with FileWriter(tmp_path / "given") as writer:
        hook = StepCounterHook(1, output_dir=tmp_path / "other", summary_writer=writer)
        await train(hook, runs=2, session=ScriptedSession(lasting(1)))
        assert not writer.closed
        assert await rates(tmp_path / "given") == [(2, 1.0)], "flushed"
    assert not (tmp_path / "other").exists()


async def test_the_file_of_a_directory_is_shared_hk_step_6(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    other = FileWriter(tmp_path)
    other.add_scalar("other", 1.0, 0)
    hook = StepCounterHook(1, output_dir=f"{tmp_path}/.")
    await train(hook, runs=2, session=ScriptedSession(lasting(1)))
    other.add_scalar("other", 2.0, 2)
    await other.close()
    assert await rates(tmp_path) == [(2, 1.0)]


async def test_a_recovery_begins_again_hk_step_7(lasting: Lasting, tmp_path: Path) -> None:
    """WR-15: rate timers are reset."""
    first = ScriptedSession(lasting(1, [None] * 12 + [AbortedError("gone")]))
    second = ScriptedSession(lasting(0.5), state={"global_step": 10})
    hook = StepCounterHook(5, output_dir=tmp_path)
    async with MonitoredSession(ScriptedCreator(first, second), [hook]) as sess:
        for _ in range(20):
            await sess.run("train")
    assert await rates(tmp_path) == [(6, 1.0), (11, 1.0), (16, 2.0)]


async def test_by_seconds_a_step_that_goes_back_begins_again(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    outcomes = [None, None, {"global_step": 100}, {"global_step": 5}, *[None] * 6]
    hook = StepCounterHook(every_n_secs=2.5, output_dir=tmp_path)
    await train(hook, runs=10, session=ScriptedSession(lasting(1, outcomes)))
    assert [(step, round(rate, 3)) for step, rate in await rates(tmp_path)] == [
        (100, 39.6),
        (9, 1.2),
    ]


async def test_a_step_that_goes_back_begins_again(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    outcomes = [None, None, {"global_step": 100}, {"global_step": 5}, None, None]
    hook = StepCounterHook(2, output_dir=tmp_path)
    await train(hook, runs=6, session=ScriptedSession(lasting(1, outcomes)))
    assert await rates(tmp_path) == [(100, 49.5), (7, 1.0)]


async def test_a_step_that_goes_back_behind_the_last_report_begins_again(
    train: Train, lasting: Lasting, tmp_path: Path
) -> None:
    outcomes = [None, {"global_step": 12}, {"global_step": 5}, *[None] * 10]
    hooks = StepCounterHook(10, output_dir=tmp_path), RecordingHook()
    await train(*hooks, runs=13, session=ScriptedSession(lasting(1, outcomes)))
    assert await rates(tmp_path) == [(12, 11.0), (15, 1.0)]
