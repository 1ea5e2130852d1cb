"""AX-24: what becomes, after a stop, of a hook that does not come to an end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import ScriptedCreator, ScriptedSession, assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def scripted(hook: SessionRunHook, *script: Any, grace: float = 10) -> MonitoredSession:
    session = ScriptedSession(script or [1, 2, 3])
    return MonitoredSession(ScriptedCreator(session), [hook], stop_grace_period_secs=grace)


async def one_run(sess: MonitoredSession) -> None:
    async with sess:
        await sess.run("x")


class Stuck(SessionRunHook):
    async def before_run(self, run_context: Any) -> None:
        await asyncio.Event().wait()


class SlowAfter(SessionRunHook):
    """Takes its time after a run, and may ask for a stop before."""

    def __init__(self, secs: float, stop: bool = False) -> None:
        self.secs, self.stop = secs, stop

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.stop:
            run_context.request_stop("enough")
        await asyncio.sleep(self.secs)


async def test_ax_24_a_hook_that_waits_for_ever_ends_with_the_grace_period(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sess = scripted(Stuck())
    asyncio.get_running_loop().call_later(5, sess.request_stop, "signal X")
    async with assert_nothing_left_behind():
        with pytest.raises(DeadlineExceededError, match=r"hook Stuck did not finish .*10 s .*signal"):
            await one_run(sess)
    assert now() == 15
    assert "The hook Stuck did not finish within the grace period" in caplog.text


async def test_a_stop_of_the_coordinator_counts_as_well() -> None:
    class Stopping(Stuck):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            coord.request_stop()

    with pytest.raises(DeadlineExceededError, match="Stopping"):
        await one_run(scripted(Stopping()))
    assert now() == 10


async def test_a_hook_that_begins_after_the_stop_has_the_whole_period() -> None:
    async def slow_step() -> int:
        await asyncio.sleep(9)
        return 1

    sess = scripted(SlowAfter(100), slow_step)
    asyncio.get_running_loop().call_later(0, sess.request_stop)
    with pytest.raises(DeadlineExceededError, match="SlowAfter"):
        await one_run(sess)
    assert now() == 20


async def test_ra_16_the_step_and_a_hook_in_time_complete() -> None:
    async def slow_step() -> int:
        await asyncio.sleep(50)
        return 7

    async with scripted(SlowAfter(5), slow_step) as sess:
        asyncio.get_running_loop().call_later(1, sess.request_stop)
        assert await sess.run("x") == 7
    assert now() == 55


async def test_ra_16_a_run_whose_hook_asked_for_the_stop_takes_its_time() -> None:
    async with scripted(SlowAfter(500, stop=True)) as sess:
        assert await sess.run("x") == 1
        assert sess.should_stop()
    assert now() == 500


async def test_what_waits_outside_of_runs_is_left_alone() -> None:
    async with assert_nothing_left_behind(), scripted(SlowAfter(1)) as sess:
        sess.request_stop()
        await asyncio.sleep(100)
        assert await sess.run("x") == 1  # still allowed
