"""Producers beside the steps: they end with their data, with an error, or with the coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from asyncmon.errors import AbortedError, CancelledError, OutOfRangeError, UnknownError
from asyncmon.graph.core.build import get_collection
from asyncmon.graph.core.default_session import default_session
from asyncmon.graph.core.dtypes import int32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.py_func import py_func
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.queues.queues import FIFOQueue
from asyncmon.graph.session.session import Session
from asyncmon.graph.variables.variable import Variable, global_variables_initializer
from asyncmon.runtime import (
    Coordinator,
    MonitoredSession,
    QueueRunner,
    add_queue_runner,
    start_queue_runners,
)
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[Session]:
    with Graph().as_default() as graph:
        async with Session(graph=graph) as session:
            yield session


class Source:
    """Gives 1, 2, ... ``last`` and then raises."""

    def __init__(self, last: int, error: Exception | None = None) -> None:
        self.given = 0
        self.last = last
        self.error = error or OutOfRangeError("no more")

    async def next(self) -> int:
        await asyncio.sleep(0.01)
        if self.given == self.last:
            raise self.error
        self.given += 1
        return self.given

    def op(self, queue: FIFOQueue) -> Any:
        """Return an operation that puts the next number."""
        return queue.enqueue(py_func(self.next, [], int32))


def scalars(capacity: int = 10, name: str = "q") -> FIFOQueue:
    return FIFOQueue(capacity, [int32], shapes=[[]], name=name)


async def drain(sess: Session, queue: FIFOQueue) -> list[int]:
    dequeue, got = queue.dequeue(), list[int]()
    with contextlib.suppress(OutOfRangeError):
        while True:
            got.append(int(await sess.run(dequeue)))
    return got


async def test_the_arguments_are_checked_qr_1(sess: Session) -> None:
    queue = scalars()
    with pytest.raises(ValueError, match=r"Must provide queue and enqueue_ops\."):
        QueueRunner()
    for wrong in ((), [OutOfRangeError], (ValueError,), OutOfRangeError):
        with pytest.raises(TypeError, match="queue_closed_exception_types, when provided"):
            QueueRunner(queue, [queue.enqueue(1)], queue_closed_exception_types=wrong)
    enqueue = queue.enqueue(1)
    runner = QueueRunner(queue, [enqueue])
    assert (runner.queue, runner.enqueue_ops, runner.name) == (queue, [enqueue], "q")
    assert runner.queue_closed_exception_types == (OutOfRangeError,)
    assert runner.exceptions_raised == []
    close, cancel = queue.close(), queue.close(cancel_pending_enqueues=True)
    given = QueueRunner(queue, [enqueue], close, cancel, (CancelledError,))
    assert (given.close_op, given.cancel_op) == (close, cancel)
    assert given.queue_closed_exception_types == (CancelledError,)


async def test_each_operation_has_a_task_and_one_closes_at_the_stop_qr_2(sess: Session) -> None:
    queue, coord = scalars(2), Coordinator()
    runner = QueueRunner(queue, [queue.enqueue(1), queue.enqueue(2)])
    async with assert_nothing_left_behind():
        tasks = runner.create_tasks(sess, coord, start=True)
        assert [task.get_name() for task in tasks] == [
            "QueueRunnerTask-q-q_enqueue",
            "QueueRunnerTask-q-q_enqueue_1",
            "QueueRunnerTask-q-close_on_stop",
        ]
        await wait_all_tasks_blocked()
        assert await sess.run(queue.size()) == 2
        coord.request_stop()
        await coord.join(stop_grace_period_secs=100)
    assert asyncio.get_running_loop().time() == 0  # KC-4: without a wait for the grace period
    assert await sess.run(queue.is_closed())


@pytest.mark.parametrize("producers", [1, 3])
async def test_the_last_producer_at_its_end_closes_the_queue_qr_3(
    sess: Session, producers: int
) -> None:
    queue, coord = scalars(2), Coordinator()
    sources = [Source(5) for _ in range(producers)]
    runner = QueueRunner(queue, [source.op(queue) for source in sources])
    async with assert_nothing_left_behind():
        runner.create_tasks(sess, coord, start=True)
        assert sorted(await drain(sess, queue)) == sorted([1, 2, 3, 4, 5] * producers)
        assert not coord.should_stop()
        await coord.join()


async def test_producers_that_end_at_the_same_moment_close_it_too_qr_3(sess: Session) -> None:
    queue, first = scalars(), scalars(name="first")
    await sess.run(first.close())
    runner = QueueRunner(queue, [queue.enqueue(first.dequeue())] * 4)
    tasks = runner.create_tasks(sess, start=True)
    await asyncio.gather(*tasks)
    assert await drain(sess, queue) == []


async def test_an_error_stops_the_coordinator_and_reaches_consumers_qr_4(sess: Session) -> None:
    queue, coord = scalars(), Coordinator()
    error = AbortedError("the producer broke")
    QueueRunner(queue, [Source(2, error).op(queue)] * 2).create_tasks(sess, coord, start=True)
    dequeue = queue.dequeue()
    assert [await sess.run(dequeue), await sess.run(dequeue)] == [1, 2]
    with pytest.raises(AbortedError, match="the producer broke"):
        await sess.run(dequeue)
    assert coord.should_stop()
    with pytest.raises(AbortedError, match="the producer broke"):
        await coord.join()


async def test_without_a_coordinator_errors_are_kept_and_logged_qr_4(
    sess: Session, caplog: pytest.LogCaptureFixture
) -> None:
    queue = scalars()
    runner = QueueRunner(queue, [Source(1, OSError("gone")).op(queue)])
    (task,) = runner.create_tasks(sess, start=True)
    await asyncio.wait([task])
    (error,) = runner.exceptions_raised
    assert str(error.__cause__) == "gone"
    assert "Exception in QueueRunner: Source.next raised OSError: gone" in caplog.text
    with pytest.raises(UnknownError, match="OSError: gone"):
        task.result()
    dequeue = queue.dequeue()
    assert await sess.run(dequeue) == 1
    with pytest.raises(UnknownError, match="OSError: gone"):
        await sess.run(dequeue)


async def test_a_session_has_its_producers_once_at_a_time_qr_5(sess: Session) -> None:
    queue = scalars(1)
    runner = QueueRunner(queue, [queue.enqueue(1)])
    coord = Coordinator()
    assert len(runner.create_tasks(sess, coord, start=True)) == 2
    assert runner.create_tasks(sess, coord, start=True) == []
    async with Session(graph=sess.graph) as other:
        assert len(runner.create_tasks(other, coord, start=True)) == 2
        coord.request_stop()
        await coord.join()
    again = runner.create_tasks(sess, start=True)
    assert len(again) == 1
    await asyncio.wait(again)
    assert len(runner.exceptions_raised) == 1  # the queue is closed


async def test_the_runners_of_the_graph_are_started_qr_6(
    sess: Session, caplog: pytest.LogCaptureFixture
) -> None:
    assert start_queue_runners(sess) == []
    assert "was called when no queue runners were defined" in caplog.text
    with default_session(None), pytest.raises(ValueError, match="No default session is registered"):
        start_queue_runners()
    with pytest.raises(TypeError, match="sess must be a `Session` object"):
        start_queue_runners(object())
    queue, coord = scalars(), Coordinator()
    runner = QueueRunner(queue, [Source(3).op(queue)])
    add_queue_runner(runner)
    add_queue_runner(QueueRunner(scalars(1), [scalars(1).enqueue(1)]), "others")
    assert get_collection("queue_runners") == [runner]
    with sess.as_default():
        assert len(start_queue_runners(coord=coord, daemon=True)) == 2
    assert await drain(sess, queue) == [1, 2, 3]


async def test_create_threads_is_tf1s_name_of_create_tasks_qr_6(sess: Session) -> None:
    queue, coord = scalars(), Coordinator()
    tasks = QueueRunner(queue, [Source(2).op(queue)]).create_threads(
        sess, coord, daemon=True, start=True
    )
    assert len(tasks) == 2
    assert await drain(sess, queue) == [1, 2]
    await tasks[0].join()
    assert not tasks[0].is_alive()
    with pytest.raises(ValueError, match="queue_runner_def and import_scope must be None"):
        QueueRunner(queue_runner_def=b"", import_scope="x")


async def test_tasks_wait_for_their_start_qr_7(sess: Session) -> None:
    queue, coord = scalars(), Coordinator()
    tasks = QueueRunner(queue, [Source(2).op(queue)]).create_tasks(sess, coord)
    await asyncio.sleep(1)
    assert await sess.run(queue.size()) == 0
    await coord.join()  # runners that were never started have no owner
    coord.clear_stop()
    for task in tasks:
        task.start()
        task.start()
    assert await drain(sess, queue) == [1, 2]


async def test_a_coordinator_that_has_stopped_runs_nothing_qr_8(sess: Session) -> None:
    queue, coord = scalars(), Coordinator()
    counter = Variable(0, dtype=int32)
    await sess.run(global_variables_initializer())
    coord.request_stop()
    QueueRunner(queue, [queue.enqueue(assign_add(counter, 1))]).create_tasks(sess, coord, start=True)
    await coord.join()
    assert await sess.run(counter) == 0
    assert await sess.run(queue.is_closed())


async def test_a_producer_that_hangs_is_cancelled_at_the_stop(sess: Session) -> None:
    async def hang() -> int:
        await asyncio.Event().wait()
        return 1

    queue, coord = scalars(), Coordinator()
    runner = QueueRunner(queue, [queue.enqueue(py_func(hang, [], int32))])
    async with assert_nothing_left_behind():
        runner.create_tasks(sess, coord, start=True)
        waiting = asyncio.create_task(sess.run(queue.dequeue()))
        await wait_all_tasks_blocked()
        coord.request_stop()
        await coord.join()
        with pytest.raises(OutOfRangeError):
            await waiting
    assert asyncio.get_running_loop().time() == 0


async def test_a_queue_that_cannot_be_closed_is_no_second_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with Graph().as_default() as graph:
        queue = scalars()
        runner = QueueRunner(queue, [Source(9).op(queue)])
    sess, coord = Session(graph=graph), Coordinator()
    runner.create_tasks(sess, coord, start=True)
    await asyncio.sleep(0.025)
    await sess.close()
    with pytest.raises(CancelledError):
        await coord.join()
    assert "could not be closed" in caplog.text


async def test_a_monitored_session_starts_the_runners_and_ends_with_the_data() -> None:
    with Graph().as_default():
        queue = scalars(3)
        add_queue_runner(QueueRunner(queue, [Source(7).op(queue)]))
        total = Variable(0, dtype=int32)
        step = assign_add(total, queue.dequeue())
        totals = []
        async with assert_nothing_left_behind(), MonitoredSession() as sess:
            assert start_queue_runners(sess) == []
            while not sess.should_stop():
                totals.append(int(await sess.run(step)))
    assert totals == [1, 3, 6, 10, 15, 21, 28]


async def test_a_monitored_session_raises_the_error_of_a_producer() -> None:
    with Graph().as_default():
        queue = scalars(3)
        add_queue_runner(QueueRunner(queue, [Source(2, OSError("the disk is gone")).op(queue)]))
        dequeue = queue.dequeue()

        async def train() -> None:
            async with MonitoredSession() as sess:
                while True:
                    await sess.run(dequeue)

        async with assert_nothing_left_behind():
            with pytest.raises(UnknownError, match="OSError: the disk is gone"):
                await train()


@pytest.mark.parametrize(
    "end", [OutOfRangeError("over"), ExceptionGroup("all", [OutOfRangeError("over")]), StopIteration()]
)
async def test_a_group_of_ends_and_the_end_of_a_function_end_the_data(
    sess: Session, end: Exception
) -> None:
    def fail() -> int:
        raise end

    queue = FIFOQueue(10, [int32], shapes=[[]])
    enqueue = queue.enqueue(py_func(fail, [], int32))
    coord = Coordinator()
    QueueRunner(queue, [enqueue]).create_tasks(sess, coord, start=True)
    with pytest.raises(OutOfRangeError):
        await sess.run(queue.dequeue())
    assert coord.error is None
    coord.request_stop()
    await coord.join()
