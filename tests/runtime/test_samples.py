"""A sample joins the next run that succeeds, of whichever caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import ScriptedCreator, ScriptedSession, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def scripted(*script: Any) -> tuple[MonitoredSession, ScriptedSession]:
    raw = ScriptedSession(list(script) or None, values={"a": 1, "loss": 1.5})
    return MonitoredSession(ScriptedCreator(raw)), raw


async def asking(sess: MonitoredSession, fetches: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(sess.sample(fetches), name="asker")
    await wait_all_tasks_blocked()
    return task


async def test_it_gets_the_values_of_the_next_run() -> None:
    sess, raw = scripted()
    async with sess:
        sample = await asking(sess, "loss")
        assert await sess.run("a") == 1
        assert await sample == 1.5
        await sess.run("a")
    assert raw.runs == [("a", "loss"), "a"]


async def test_it_waits_for_the_run_after_one_that_fails_and_gets_the_error_of_the_second() -> None:
    errors = [ValueError("cannot fetch bad"), KeyError("cannot fetch bad")]
    sess, _ = scripted(errors[0], None, *errors)
    async with sess:
        for results in ([1.5], errors):
            sample = await asking(sess, "loss")
            with pytest.raises(ValueError, match="cannot fetch bad"):
                await sess.run("a")
            assert "The run also fetched samples for: asker." in errors[0].__notes__
            if results is errors:
                with pytest.raises(KeyError):
                    await sess.run("a")
                with pytest.raises(KeyError):
                    await sample
            else:
                await sess.run("a")
                assert await sample == 1.5


async def test_the_end_of_the_session_ends_it() -> None:
    sess, _ = scripted()
    async with sess:
        sample = await asking(sess, "loss")
    with pytest.raises(RuntimeError, match="ended before another run was complete"):
        await sample


async def test_a_cancelled_one_is_not_fetched() -> None:
    sess, raw = scripted()
    async with sess:
        sample = await asking(sess, "loss")
        sample.cancel()
        await asyncio.wait([sample])
        await sess.run("a")
    assert raw.runs == ["a"]


class StopsAt(SessionRunHook):
    """Stops the session in a run."""

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        run_context.request_stop("enough")


async def test_a_sample_after_the_stop_of_a_hook_is_refused_at_once_and_ends_the_block() -> None:
    raw = ScriptedSession(values={"a": 1, "loss": 1.5})
    began = asyncio.get_running_loop().time()
    async with MonitoredSession(ScriptedCreator(raw), [StopsAt()]) as sess:
        await sess.run("a")
        await sess.sample("loss")
        pytest.fail("the sample must be refused")
    assert asyncio.get_running_loop().time() == began
    assert sess.stop_reason == "enough"


async def test_a_sample_that_waits_is_refused_at_the_end_of_the_run_in_which_a_hook_stops() -> None:
    raw = ScriptedSession(values={"a": 1, "loss": 1.5})
    began = asyncio.get_running_loop().time()

    class Asks(StopsAt):
        def __init__(self) -> None:
            self.asker = asyncio.Event()

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            self.asker.set()  # too late for this run
            await wait_all_tasks_blocked()
            await super().after_run(run_context, run_values)

    hook = Asks()
    async with MonitoredSession(ScriptedCreator(raw), [hook]) as sess:
        training = asyncio.create_task(sess.run("a"))
        await hook.asker.wait()
        with pytest.raises(RuntimeError, match="even after should_stop requested"):
            await sess.sample("loss")
        await training
    assert asyncio.get_running_loop().time() == began


async def test_a_sample_in_the_body_ends_with_the_grace_period_of_a_stop() -> None:
    raw = ScriptedSession(values={"a": 1, "loss": 1.5})
    began = asyncio.get_running_loop().time()
    async with MonitoredSession(ScriptedCreator(raw), stop_grace_period_secs=5) as sess:
        sess.request_stop("no more")
        with pytest.raises(DeadlineExceededError, match=r"sample\(\) for the next run did not finish"):
            await sess.sample("loss")
    assert asyncio.get_running_loop().time() == began + 5
