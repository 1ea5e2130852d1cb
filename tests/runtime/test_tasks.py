"""The tasks of a coordinator: every error is reported."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.hooks import StopAtStepHook
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, Coordinator, MonitoredSession, SessionRunHook
from asyncmon.testing import (
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    wait_all_tasks_blocked,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Odd(BaseException):
    """A BaseException that is no Exception."""


async def fail(error: BaseException) -> None:
    raise error


async def test_an_error_that_is_no_exception_is_raised_by_join_too() -> None:
    for error in (Odd("odd"), BaseExceptionGroup("many", [Odd("odd")])):
        coord = Coordinator()
        coord.create_task(fail, error)
        with pytest.raises(type(error)) as caught:
            await coord.join()
        assert caught.value is error


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("how", ["register_task", "join"])
async def test_the_error_of_a_task_made_elsewhere_is_raised_by_join(how: str, over: bool) -> None:
    """CO-9, CO-12: also when the task has failed already before the coordinator hears of it."""
    coord = Coordinator()
    task = asyncio.create_task(fail(ValueError("mine")))
    if over:
        await asyncio.wait([task])
    if how == "register_task":
        coord.register_task(task)
    with pytest.raises(ValueError, match="mine"):
        await coord.join([task] if how == "join" else None)
    assert coord.should_stop()
    assert coord.errors == (task.exception(),)


async def test_join_takes_tasks_and_threads_and_nothing_else() -> None:
    with pytest.raises(TypeError, match=r"takes an asyncio\.Task, got <built-in function print"):
        await Coordinator().join([print])  # type: ignore[list-item]  # the mistake under test


async def test_a_task_that_is_cancelled_by_others_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coord = Coordinator()
    for task in (coord.create_task(asyncio.sleep, 9), asyncio.create_task(asyncio.sleep(9))):
        coord.register_task(task)
        await wait_all_tasks_blocked()
        task.cancel()
    await coord.join()
    assert not coord.should_stop()
    assert not caplog.messages


@pytest.mark.parametrize("how", ["create_task", "register_task", "register a done one"])
async def test_a_task_that_ends_with_an_unrequested_cancellation_is_named(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def wait_for_a_cancelled_task() -> None:
        task = asyncio.create_task(asyncio.sleep(1000))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    coord = Coordinator()
    if how == "create_task":
        coord.create_task(wait_for_a_cancelled_task, name="mine")
    else:
        task = asyncio.create_task(wait_for_a_cancelled_task(), name="mine")
        if how != "register_task":
            await asyncio.wait([task])
        coord.register_task(task)
    await coord.join()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "Task 'mine' ended with a CancelledError and was not cancelled" in caplog.text


async def test_a_background_that_ends_so_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    class Hook(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            raise asyncio.CancelledError

    async with MonitoredSession(ScriptedCreator(ScriptedSession([1])), [Hook()]) as sess:
        assert await sess.run("a") == 1
    assert "Task 'Hook.background' ended with a CancelledError" in caplog.text


async def test_what_is_no_function_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match="takes an `async def` function and its arguments, got 5"):
        Coordinator().create_task(5)  # type: ignore[arg-type]  # the mistake under test


async def test_an_error_for_a_plain_function_has_the_right_signature() -> None:
    coord = Coordinator()
    coord.create_task(lambda: 3)  # type: ignore[arg-type, return-value]  # the mistake under test
    with pytest.raises(TypeError, match=r"returned 3, which cannot be awaited\. Write `async def`, or"):
        await coord.join()


async def test_a_thread_is_awaited_as_a_task() -> None:
    coord = Coordinator()
    ran: list[int] = []
    coord.create_task(asyncio.to_thread, ran.append, 1)
    await coord.join()
    assert ran == [1]


async def test_join_twice_raises_twice_and_at_once_co_18() -> None:
    coord = Coordinator()
    coord.create_task(fail, ValueError("boom"))
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            await coord.join()
    assert asyncio.get_running_loop().time() == 0


async def test_two_joins_at_once_both_raise() -> None:
    coord = Coordinator()
    coord.create_task(asyncio.Event().wait)
    joins = [asyncio.create_task(coord.join(stop_grace_period_secs=1)) for _ in range(2)]
    await wait_all_tasks_blocked()
    coord.request_stop(ValueError("boom"))
    async with assert_nothing_left_behind(tasks=False):
        results = await asyncio.gather(*joins, return_exceptions=True)
    assert [str(error) for error in results] == ["boom", "boom"]


async def test_the_end_of_the_data_in_a_task_stops_without_an_error() -> None:
    coord = Coordinator()
    coord.create_task(fail, OutOfRangeError("no more"))
    await coord.join()
    assert coord.should_stop()


@pytest.mark.parametrize("error", [CancelledError("closed"), OutOfRangeError("closed")])
async def test_an_error_of_a_resource_closed_by_the_stop_is_no_failure(error: Exception) -> None:
    coord = Coordinator(())

    async def work() -> None:
        await coord.wait_for_stop()
        raise error

    coord.create_task(work)
    await wait_all_tasks_blocked()
    coord.request_stop()
    await coord.join()


async def test_a_failure_of_a_task_after_the_stop_is_raised_by_join() -> None:
    coord = Coordinator()

    async def work() -> None:
        await coord.wait_for_stop()
        raise OSError("while stopping")

    coord.create_task(work)
    await wait_all_tasks_blocked()
    coord.request_stop()
    with pytest.raises(OSError, match="while stopping"):
        await coord.join()


async def test_a_group_of_what_the_stop_has_closed_is_no_failure() -> None:
    program = FunctionProgram({"n": 0})

    @program.step
    async def train(state: Any) -> None:
        await asyncio.sleep(0.01)
        state["n"] += 1

    async def work(sess: MonitoredSession) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(run(sess))

    async def run(sess: MonitoredSession) -> None:
        while True:
            await sess.run("train")

    creator = ChiefSessionCreator(program=program)
    async with MonitoredSession(creator, [StopAtStepHook(last_step=5)]) as sess:
        assert sess.coord is not None
        sess.coord.create_task(work, sess)
        await sess.coord.wait_for_stop()
