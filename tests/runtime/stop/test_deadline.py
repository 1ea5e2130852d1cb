"""The table of the stages, the deadlines that follow from it, and the exit status."""

from __future__ import annotations

import asyncio
import gc
import re
from pathlib import Path

import pytest

from asyncmon.runtime import MonitoredSession
from asyncmon.runtime.stop.deadline import SessionShutdown, Stage
from asyncmon.runtime.stop.process_end import ProcessShutdown, process_shutdown
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.leavable import Leavable
from asyncmon.testing import ScriptedCreator, ScriptedSession

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"


def test_the_docs_have_the_table_of_the_stages() -> None:
    table = PAGE.read_text().partition("| stage |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.*) \| (.*) \|$", table, re.MULTILINE)
    assert rows == [(stage.what, stage.share.text) for stage in Stage]


@pytest.mark.parametrize("period", [0.3, 2, 25, 1000])
@pytest.mark.parametrize("save", [0, 0.5, 4, float("inf")])
def test_each_stage_ends_early_enough_for_the_later_ones(period: float, save: float) -> None:
    shutdown = SessionShutdown(period, ProcessShutdown())
    shutdown.start(100, save)
    ends = [shutdown.until(stage) for stage in Stage]
    lengths = [end - before for before, end in zip([100, *ends], ends, strict=False)]
    small = min(0.04 * period, 1)
    expected = [small, min(max(save, 1), period / 2), small, small, small, small]
    assert lengths[1:] == pytest.approx(expected)
    assert lengths[0] >= 0.25 * period
    assert ends[-1] == 100 + period


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_the_process_may_end_before_the_session_would() -> None:
    process = ProcessShutdown()
    process.end = 10
    shutdown = SessionShutdown(120, process)
    shutdown.start(0, 1)
    assert (shutdown.grace, shutdown.until(Stage.EXIT)) == (10, 10)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_stage_that_begins_too_late_has_the_time_that_is_left() -> None:
    process = ProcessShutdown()
    process.end = 30
    shutdown = SessionShutdown(10, process)
    shutdown.start(0, 1)
    assert not shutdown.extend(Stage.ENDS)
    await asyncio.sleep(12)
    assert shutdown.extend(Stage.ENDS)
    assert shutdown.until(Stage.EXIT) == 22
    await asyncio.sleep(13)
    assert shutdown.extend(Stage.SAVES)
    assert shutdown.until(Stage.EXIT) == 30
    await asyncio.sleep(5)
    assert not shutdown.extend(Stage.SAVES)


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_second_signal_ends_the_period_for_good() -> None:
    shutdown = SessionShutdown(10, ProcessShutdown())
    shutdown.start(0, 1)
    await asyncio.sleep(1)
    shutdown.cut_short()
    assert shutdown.is_over(Stage.RUNS)
    assert not shutdown.extend(Stage.ENDS)


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("ends_in_time", [True, False])
async def test_code_is_left_behind_only_after_the_end_of_its_own_stage(
    ends_in_time: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The timer of an earlier deadline, or of a block that has ended, changes nothing."""
    shutdown, caller = SessionShutdown(10, ProcessShutdown()), Leavable()
    shutdown.start(0, 1)
    async with shutdown.limit(Stage.EXIT, caller):
        if not ends_in_time:
            shutdown.start(5, 1)  # a later deadline
            await asyncio.sleep(12)
    await asyncio.sleep(20)
    assert not caller.is_left
    assert not caplog.records


@pytest.mark.asyncio
async def test_the_status_says_whether_an_open_or_a_stopped_session_lost_its_state() -> None:
    process = ProcessShutdown()
    saved, lost = SessionShutdown(1, process), SessionShutdown(1, process)
    lost.unsaved = lambda: "a step is not saved"
    saved.enter()
    assert process.status() == 75
    lost.enter()
    assert (process.status(), process.losses()) == (1, ["a step is not saved"])
    lost.leave(None)
    assert process.status() == 75
    lost.enter()
    lost.leave(Stop(Cause.SIGNAL, "signal SIGTERM", preempted=True))
    assert (process.status(), process.stop is not None) == (1, True)


def test_session_of_a_loop_that_is_closed_does_not_change_the_status() -> None:
    """It cannot save any more. The program may have made other sessions in later loops."""
    process = ProcessShutdown()
    session = SessionShutdown(1, process)
    session.unsaved = lambda: "a step is not saved"

    async def enter() -> int:
        session.enter()
        return process.status()

    assert asyncio.run(enter()) == 1
    assert (process.status(), process.losses()) == (75, [])


@pytest.mark.asyncio
async def test_a_session_that_nothing_refers_to_any_more_is_reported() -> None:
    sess = await MonitoredSession(ScriptedCreator(ScriptedSession([1]))).start()
    assert len(process_shutdown.get().sessions) == 1
    holder = [sess]
    del sess
    with pytest.warns(ResourceWarning, match="was started here and not closed") as caught:
        holder.clear()
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
    assert not process_shutdown.get().sessions


@pytest.mark.asyncio
async def test_a_session_that_was_closed_is_not() -> None:
    sess = await MonitoredSession(ScriptedCreator(ScriptedSession([1]))).start()
    await sess.close()
    del sess
    gc.collect()
    assert not process_shutdown.get().sessions
