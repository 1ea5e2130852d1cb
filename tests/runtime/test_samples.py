"""A sample joins the next run that succeeds, of whichever caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.runtime import MonitoredSession
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
