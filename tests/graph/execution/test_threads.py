"""A thread for steps: calls in order, in the caller's context."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from typing import Any

import pytest

from asyncmon.graph.execution.threads import Worker

pytestmark = pytest.mark.asyncio


@pytest.fixture
def worker() -> Any:
    worker = Worker("a worker")
    yield worker
    worker.close()


async def test_calls_are_made_in_order_by_one_thread(worker: Worker) -> None:
    done: list[Any] = []
    calls = [
        worker.submit(lambda i=i: done.append((i, threading.current_thread().name)) or i)
        for i in range(20)
    ]
    assert await asyncio.gather(*calls) == list(range(20))
    assert done == [(i, "a worker") for i in range(20)]


async def test_an_error_is_the_callers(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        await worker.submit(lambda: 1 // 0)
    assert await worker.submit(lambda: 1) == 1


async def test_a_function_sees_the_callers_context(worker: Worker) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(7)
    assert await worker.submit(variable.get) == 7


async def test_a_call_that_raises_stop_iteration_ends_with_an_error(worker: Worker) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        await worker.submit(lambda: next(iter(())))


async def test_a_cancelled_future_is_left_alone(worker: Worker) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    future = worker.submit(work)
    assert await asyncio.to_thread(inside.wait, 10)
    future.cancel()
    go_on.set()
    assert await worker.submit(lambda: 1) == 1
    assert future.cancelled()


async def test_the_thread_ends_when_it_is_closed_or_forgotten() -> None:
    for close in (True, False):
        worker = Worker("one that goes")
        thread = await worker.submit(threading.current_thread)
        assert thread.name == "one that goes"
        if close:
            worker.close()
            worker.close()
        del worker
        gc.collect()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def test_a_loop_that_is_closed_meanwhile(worker: Worker) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    async def begin() -> None:
        worker.submit(work)

    def other() -> None:
        asyncio.run(begin())
        assert inside.wait(10)
        go_on.set()

    await asyncio.to_thread(other)
    assert await worker.submit(lambda: 1) == 1  # the thread lives on
