"""A shielded call runs to completion even if the caller is cancelled."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from asyncmon.system.cancellation import completed, shielded
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def work(secs: float, done: list[str], error: Exception | None = None) -> str:
    try:
        await asyncio.sleep(secs)
    except asyncio.CancelledError:
        done.append("cancelled")
        raise
    if error is not None:
        raise error
    done.append("done")
    return "result"


async def test_it_returns_and_raises_what_the_work_does() -> None:
    assert await shielded(work, 1, [], name="work") == "result"
    with pytest.raises(ValueError, match="no"):
        await shielded(work, 1, [], ValueError("no"), name="work")


async def test_a_cancellation_is_raised_when_the_work_is_done() -> None:
    done: list[str] = []
    task = asyncio.create_task(shielded(work, 5, done, name="work"))
    for _ in range(3):
        await wait_all_tasks_blocked()
        task.cancel("please")
    with pytest.raises(asyncio.CancelledError, match="please"):
        await task
    assert done == ["done"]
    assert asyncio.get_running_loop().time() == 5


async def test_it_is_cancelled_some_time_after_its_caller() -> None:
    done: list[str] = []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await shielded(work, 500, done, name="work", cancel_after=10)
    assert done == ["cancelled"]
    assert asyncio.get_running_loop().time() == 11


async def test_an_error_of_the_work_is_attached_to_the_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    task = asyncio.create_task(shielded(work, 5, [], ValueError("no"), name="work"))
    await wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert caught.value.__notes__ == ["work raised ValueError: no"]
    assert "work failed while it was being cancelled." in caplog.text


async def test_a_completed_future_gives_its_result_or_its_error() -> None:
    assert await completed(asyncio.ensure_future(work(1, []))) == "result"
    with pytest.raises(ValueError, match="no"):
        await completed(asyncio.ensure_future(work(1, [], ValueError("no"))))


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_a_cancelled_caller_waits_for_the_end_of_the_future(error: Exception | None) -> None:
    noted: list[object] = []
    future = asyncio.ensure_future(work(5, [], error))
    task = asyncio.create_task(completed(future, noted.append))
    await wait_all_tasks_blocked()
    task.cancel("please")
    with pytest.raises(asyncio.CancelledError, match="please") as caught:
        await task
    assert noted == [caught.value]
    assert future.done()
    assert asyncio.get_running_loop().time() == 5


async def test_a_cancelled_scope_of_anyio_does_not_interrupt_the_work() -> None:
    """Its cancellation comes again in each iteration of the loop, until the scope is left."""
    done: list[str] = []
    loop = asyncio.get_running_loop()
    with anyio.move_on_after(1) as scope:
        await completed(asyncio.create_task(work(5, done)))
        done.append("not reached")
    assert (scope.cancelled_caught, done, loop.time()) == (True, ["done"], 5)


async def test_a_cancelled_scope_of_anyio_notifies_once() -> None:
    done: list[str] = []
    noticed: list[asyncio.CancelledError] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await completed(asyncio.create_task(work(5, done)), noticed.append)
    assert (scope.cancelled_caught, done, len(noticed)) == (True, ["done"], 1)


async def test_a_cancelled_scope_of_anyio_cancels_the_work_after_its_time() -> None:
    done: list[str] = []
    with anyio.move_on_after(1) as scope:
        await shielded(work, 500, done, name="work", cancel_after=10)
    assert (scope.cancelled_caught, done) == (True, ["cancelled"])
    assert asyncio.get_running_loop().time() == 11
