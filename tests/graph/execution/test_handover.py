"""A future whose first waiter goes on at once; in all else it is one."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest
import pytest_asyncio

from asyncmon.graph.execution.handover import Handover

pytestmark = pytest.mark.asyncio
variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")


@pytest_asyncio.fixture
async def future() -> Handover:
    return Handover(loop=asyncio.get_running_loop())


async def call_soon(function: Any) -> None:
    """Call a function as the loop does, and see the turn end."""
    asyncio.get_running_loop().call_soon(function)
    await asyncio.sleep(0)


async def test_who_waits_goes_on_in_the_same_call(future: Handover) -> None:
    said: list[str] = []

    async def wait() -> None:
        await future
        said.append("waiter")

    def end() -> None:
        future.end()
        said.append("end")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await call_soon(end)
    assert said == ["waiter", "end"]
    await task


async def test_all_who_wait_hear_of_it(future: Handover) -> None:
    async def wait() -> None:
        await future

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    await call_soon(future.end)
    await asyncio.gather(*tasks)
    await future  # and who comes later


async def test_a_waiter_keeps_its_context(future: Handover) -> None:
    seen = []

    async def wait() -> None:
        variable.set("the waiter's")
        await future
        seen.append(variable.get())

    variable.set("the test's")
    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await call_soon(future.end)
    await task
    assert seen == ["the waiter's"]
    assert variable.get() == "the test's"


@pytest.mark.parametrize("waiters", [1, 2])
async def test_a_cancelled_waiter_hears_of_it(future: Handover, waiters: int) -> None:
    async def wait() -> None:
        await future

    tasks = [asyncio.create_task(wait()) for _ in range(waiters)]
    await asyncio.sleep(0)
    tasks[0].cancel("enough")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert all(task.cancelled() for task in tasks)
    await call_soon(future.end)  # too late
    assert future.cancelled()
    assert not future.cancel()


async def test_callbacks_come_and_go(future: Handover) -> None:
    called = []

    def first(_future: Any) -> None:
        called.append("first")

    def second(_future: Any) -> None:
        called.append("second")

    future.add_done_callback(first)
    future.add_done_callback(second)
    future.add_done_callback(first)
    assert future.remove_done_callback(first) == 2
    await call_soon(future.end)
    await asyncio.sleep(0)
    assert called == ["second"]
    future.add_done_callback(first)
    await asyncio.sleep(0)
    assert called == ["second", "first"]


async def test_a_waiter_that_fails_does_so_alone(future: Handover) -> None:
    async def wait() -> None:
        await future
        raise ValueError("mine")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    await call_soon(future.end)
    with pytest.raises(ValueError, match="mine"):
        await task


@pytest.mark.parametrize("error", [None, ZeroDivisionError("no")])
async def test_set_as_any_future_it_is_one(future: Handover, error: Exception | None) -> None:
    said: list[str] = []

    async def wait() -> None:
        try:
            await future
        finally:
            said.append("waiter")

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
    said.append("set")
    await asyncio.wait([task])
    assert said == ["set", "waiter"]
    assert task.exception() is error


async def test_an_empty_context_is_one(future: Handover) -> None:
    seen = []

    async def wait() -> None:
        await future
        variable.set("set after it")
        await asyncio.sleep(0)
        seen.append(variable.get(None))

    task = asyncio.create_task(wait(), context=contextvars.Context())
    await asyncio.sleep(0)
    await call_soon(future.end)
    await task
    assert seen == ["set after it"]
