"""GlobalStepWaiterHook: HK-WAIT-1 to 3."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from asyncmon.hooks import GlobalStepWaiterHook
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.system import clock
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def advance(session: ScriptedSession, steps: int, secs: float) -> None:
    """Do steps, as another worker does."""
    for _ in range(steps):
        await asyncio.sleep(secs)
        session.state["global_step"] = np.asarray(session.global_step + 1)


async def test_the_first_run_waits_for_the_step_hk_wait_1() -> None:
    session = ScriptedSession()
    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(5)]) as sess:
        others = asyncio.create_task(advance(session, 5, 1.2))
        await sess.run("train")
        assert session.global_step == 6
        assert clock.monotonic() == 6
        await sess.run("train")
        assert clock.monotonic() == 6, "looked at once only"
        await others


async def test_run_begins_though_the_others_have_passed_the_step_between_two_reads() -> None:
    session = ScriptedSession()

    async def pass_by() -> None:
        await asyncio.sleep(0.7)
        session.state["global_step"] = np.asarray(7)

    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(5)]) as sess:
        others = asyncio.create_task(pass_by())
        await sess.run("train")
        assert (session.global_step, clock.monotonic()) == (8, 1)
        await others


async def test_it_says_what_it_waits_for_hk_wait_1(lines: Callable[[str], list[str]]) -> None:
    session = ScriptedSession()
    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(2500)]) as sess:
        others = asyncio.create_task(advance(session, 2500, 0.01))
        await sess.run("train")
        await others
    said = lines("cluster")
    assert said[0] == "Waiting for global step 2500 before starting training."
    assert said[1:] == [f"{said[0]} Current step is {step}." for step in (1049, 2099)]


async def test_a_new_session_waits_again() -> None:
    hook = GlobalStepWaiterHook(2)
    for _ in range(2):
        session = ScriptedSession()
        async with MonitoredSession(ScriptedCreator(session), [hook]) as sess:
            others = asyncio.create_task(advance(session, 2, 1.2))
            await sess.run("train")
            assert session.global_step == 3
            await others


@pytest.mark.parametrize("step", [0, -3])
async def test_no_step_is_not_waited_for_hk_wait_1(train: Train, step: int) -> None:
    session = await train(GlobalStepWaiterHook(step), runs=1)
    assert session.global_step == 1
    assert clock.monotonic() == 0


async def test_other_tasks_continue_while_it_waits_hk_wait_1() -> None:
    session = ScriptedSession()
    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(1)]) as sess:
        run = asyncio.create_task(sess.run("train"))
        await asyncio.sleep(3600)
        assert not run.done()
        await advance(session, 1, 0)
        await run


async def test_a_stop_ends_the_wait_at_once_and_cleanly_hk_wait_2() -> None:
    session, recorder = ScriptedSession(), RecordingHook()
    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(5), recorder]) as sess:
        asyncio.get_running_loop().call_later(7.3, sess.request_stop)
        await sess.run("train")
    assert clock.monotonic() == 7.3
    assert session.runs == []
    assert "end" in recorder.moments()


async def test_it_can_be_cancelled_hk_wait_2() -> None:
    session = ScriptedSession()
    async with MonitoredSession(ScriptedCreator(session), [GlobalStepWaiterHook(5)]) as sess:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await sess.run("train")
    assert session.runs == []
