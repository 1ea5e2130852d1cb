"""The close of a queue and the pending enqueues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
import pytest_asyncio

from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.dtypes import int32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.queues.queues import FIFOQueue
from asyncmon.graph.session.session import Session
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[Session]:
    with Graph().as_default() as graph:
        async with Session(graph=graph) as session:
            yield session


async def started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Return a task that waits by now."""
    task = asyncio.create_task(coroutine)
    await wait_all_tasks_blocked()
    assert not task.done()
    return task


async def test_a_close_waits_behind_pending_enqueues(sess: Session) -> None:
    """QU-2: the queue is open until then, and later enqueues come behind the close."""
    queue = FIFOQueue(1, [int32], shapes=[[]])
    enqueue, is_closed = queue.enqueue(1), queue.is_closed()
    await sess.run(enqueue)
    pending = await started(sess.run(enqueue))
    closing = await started(sess.run(queue.close()))
    later = await started(sess.run(enqueue))
    assert not await sess.run(is_closed)
    assert await sess.run(queue.dequeue()) == 1
    await pending
    await closing
    with pytest.raises(CancelledError, match=r"is closed\."):
        await later
    assert await sess.run([is_closed, queue.size()]) == [True, 1]


async def test_a_cancelled_close_leaves_the_queue_open(sess: Session) -> None:
    queue = FIFOQueue(1, [int32], shapes=[[]])
    enqueue = queue.enqueue(1)
    await sess.run(enqueue)
    pending = await started(sess.run(enqueue))
    closing = await started(sess.run(queue.close()))
    later = await started(sess.run(enqueue))
    closing.cancel()
    await asyncio.wait([closing])
    assert [await sess.run(queue.dequeue()) for _ in range(3)] == [1, 1, 1]
    await pending
    await later
    assert not await sess.run(queue.is_closed())


async def test_a_close_may_cancel_pending_enqueues_and_pending_closes(sess: Session) -> None:
    """QU-6."""
    queue = FIFOQueue(1, [int32], shapes=[[]])
    enqueue = queue.enqueue(1)
    await sess.run(enqueue)
    pending = await started(sess.run(enqueue))
    closing = await started(sess.run(queue.close()))
    await sess.run(queue.close(cancel_pending_enqueues=True))
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled"):
        await pending
    await closing
    assert await sess.run([queue.dequeue(), queue.is_closed()]) == [1, True]


@pytest.mark.parametrize("present", [1, 2])
async def test_a_run_puts_takes_and_closes_one_queue(sess: Session, present: int) -> None:
    queue = FIFOQueue(1, [int32], shapes=[[]])
    first = queue.close()
    with control_dependencies([first]):
        taken = queue.dequeue()
    with control_dependencies([taken]):
        ops = [queue.enqueue(7), queue.close()]
    await sess.run(queue.enqueue(0))
    runs = [await started(sess.run(queue.enqueue(value))) for value in range(1, present)]
    running = asyncio.create_task(sess.run([taken, *ops]))
    await wait_all_tasks_blocked()
    for value in range(present - 1):
        assert await sess.run(queue.dequeue()) == value
    assert (await running)[0] == present - 1
    await asyncio.gather(*runs)
    assert await sess.run([queue.is_closed(), queue.dequeue()]) == [True, 7]


async def test_a_run_that_closes_a_queue_sees_the_end_of_its_data(sess: Session) -> None:
    queue = FIFOQueue(1, [int32], shapes=[[]])
    close = queue.close()
    with control_dependencies([close]):
        taken = queue.dequeue()
    with pytest.raises(OutOfRangeError):
        await sess.run(taken)
    assert not await sess.run(queue.is_closed())
