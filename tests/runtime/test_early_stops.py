"""A stop that comes before the session is there ends the waiting for it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING

import pytest

from asyncmon.errors import AbortedError, CancelledError
from asyncmon.runtime import MonitoredSession
from asyncmon.testing import (
    RecordingHook,
    ScriptedProgram,
    ScriptedSession,
    assert_nothing_left_behind,
    wait_all_tasks_blocked,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class SlowCreator:
    """Hands out the sessions it has, then waits for ever."""

    def __init__(self, *sessions: ScriptedSession) -> None:
        self.sessions = list(sessions)
        self.program = ScriptedProgram()

    async def create_session(self) -> ScriptedSession:
        if not self.sessions:
            await asyncio.sleep(7200)
        return self.sessions.pop(0)


def ask(sess: MonitoredSession) -> None:
    sess.request_stop("not any more")


def send_a_signal(sess: MonitoredSession) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("stop", [ask, send_a_signal])
async def test_a_stop_during_start_ends_it(stop: Callable[[MonitoredSession], None]) -> None:
    hook = RecordingHook()
    async with assert_nothing_left_behind():
        sess = MonitoredSession(SlowCreator(), [hook], signals="auto")
        starting = asyncio.create_task(sess.start())
        await wait_all_tasks_blocked()
        stop(sess)
        with pytest.raises(CancelledError, match=r"a stop came, '(not any more|signal SIGTERM)'"):
            await starting
    assert asyncio.get_running_loop().time() < 1
    assert hook.moments() == ["begin", "cleanup"]


async def test_a_stop_during_a_recovery_ends_it() -> None:
    hook, failure = RecordingHook(), AbortedError("preempted")
    sess = MonitoredSession(SlowCreator(ScriptedSession([failure])), [hook])

    async def body() -> None:
        async with sess:
            await sess.run("a")

    async with assert_nothing_left_behind():
        task = asyncio.create_task(body())
        await wait_all_tasks_blocked()
        sess.request_stop("not any more")
        with pytest.raises(CancelledError, match="a stop came, 'not any more'") as caught:
            await task
        assert caught.value.__cause__ is failure
    assert asyncio.get_running_loop().time() < 1
    assert hook.moments()[-1] == "cleanup"


async def test_a_stop_before_start_ends_the_body_instead() -> None:
    class Slow(SlowCreator):
        async def create_session(self) -> ScriptedSession:
            await asyncio.sleep(5)
            return await super().create_session()

    sess = MonitoredSession(Slow(ScriptedSession()))
    sess.request_stop("too late for that")
    async with sess:
        assert sess.should_stop()
    assert sess.stop_reason == "too late for that"
