"""A thread for steps: in order, in the caller's context, and never left while it works."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
from typing import Any

import pytest

from asyncmon.graph.execution.worker import Worker, suits
from asyncmon.testing import VirtualTimeLoop

pytestmark = pytest.mark.asyncio


def ignore(_error: asyncio.CancelledError) -> None:
    pass


@pytest.fixture
def worker() -> Any:
    worker = Worker("a worker")
    yield worker
    worker.close()


async def test_jobs_are_done_in_order_by_one_thread(worker: Worker) -> None:
    done: list[Any] = []
    jobs = [
        worker.start(lambda i=i: done.append((i, threading.current_thread().name)) or i)
        for i in range(20)
    ]
    assert [await job.outcome(ignore) for job in jobs] == list(range(20))
    assert done == [(i, "a worker") for i in range(20)]


async def test_an_error_is_the_callers(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        await worker.start(lambda: 1 // 0).outcome(ignore)
    assert await worker.start(lambda: 1).outcome(ignore) == 1


async def test_a_function_sees_the_callers_context(worker: Worker) -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable")
    variable.set(7)
    assert await worker.start(variable.get).outcome(ignore) == 7


async def test_a_cancelled_caller_sees_the_end_first(worker: Worker) -> None:
    inside, go_on, told = threading.Event(), threading.Event(), []

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    task = asyncio.create_task(worker.start(work).outcome(told.append))
    assert await asyncio.to_thread(inside.wait, 10)
    task.cancel("first")
    await asyncio.sleep(0)
    assert len(told) == 1
    task.cancel("second")  # and again: it still waits
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError, match="first"):
        await task
    assert len(told) == 1


async def test_a_job_that_ended_when_its_caller_is_cancelled(worker: Worker) -> None:
    over = threading.Event()
    job = worker.start(over.set)
    task = asyncio.create_task(job.outcome(ignore))
    await asyncio.sleep(0)
    assert over.wait(10)  # its end is on the way to the loop
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_thread_ends_when_it_is_closed_or_forgotten() -> None:
    for close in (True, False):
        worker = Worker("one that goes")
        thread = await worker.start(threading.current_thread).outcome(ignore)
        assert thread.name == "one that goes"
        if close:
            worker.close()
            worker.close()
        del worker
        gc.collect()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def test_a_loop_that_counts_its_calls_makes_them_itself() -> None:
    assert suits(asyncio.get_running_loop())
    loop = VirtualTimeLoop()
    assert not suits(loop)
    loop.close()


async def test_a_loop_that_is_closed_meanwhile(worker: Worker) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        assert go_on.wait(10)

    async def begin() -> None:
        worker.start(work)

    def other() -> None:
        asyncio.run(begin())
        assert inside.wait(10)
        go_on.set()

    await asyncio.to_thread(other)
    assert await worker.start(lambda: 1).outcome(ignore) == 1  # the thread lives on
