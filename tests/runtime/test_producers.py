"""Producers that fail, hang, end early or are cancelled, in every phase, and stops amid all that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon import graph as g
from asyncmon.errors import CancelledError, OutOfRangeError, UnknownError
from asyncmon.runtime import Coordinator, MonitoredSession, QueueRunner, add_queue_runner
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

PHASES = {"before the first element": 0, "after the first": 1, "on a full queue": 3, "much later": 8}
"""After how many elements it happens; the queue holds two."""


class Producer:
    """Gives numbers until something happens."""

    def __init__(self, after: int, event: str) -> None:
        self.left = after
        self.event = event

    async def next(self) -> int:
        if self.left == 0:
            if self.event == "fails":
                raise OSError("the producer broke")
            if self.event == "ends early":
                raise OutOfRangeError("no more")
            if self.event == "hangs":
                await asyncio.Event().wait()
            if self.event == "is cancelled":
                raise asyncio.CancelledError
        self.left -= 1
        return self.left


@pytest.mark.parametrize("producers", [1, 3])
@pytest.mark.parametrize("after", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("event", ["fails", "hangs", "ends early", "is cancelled"])
@pytest.mark.parametrize("consumer", ["waits", "is slow"])
async def test_the_consumer_receives_errors_of_its_producers(
    event: str, after: int, producers: int, consumer: str
) -> None:
    with g.Graph().as_default() as graph:
        queue = g.FIFOQueue(2, [g.int32], shapes=[[]])
        sources = [Producer(after, event) for _ in range(producers)]
        enqueues = [queue.enqueue(g.py_func(source.next, [], g.int32)) for source in sources]
        runner, dequeue = QueueRunner(queue, enqueues), queue.dequeue()
    coord, got = Coordinator(), list[int]()

    async def consume(sess: g.Session) -> None:
        while True:
            if consumer == "is slow":
                await asyncio.sleep(1)
            got.append(int(await sess.run(dequeue)))

    async with assert_nothing_left_behind(), g.Session(graph=graph) as sess:
        runner.create_tasks(sess, coord, start=True)
        consuming = asyncio.create_task(consume(sess))
        await asyncio.wait([consuming], timeout=100)
        if event == "hangs":  # nothing more comes; a stop ends the waiting
            assert not consuming.done()
            coord.request_stop()
            await asyncio.wait([consuming])
        errors: Any = {"fails": UnknownError, "is cancelled": CancelledError}
        with pytest.raises(errors.get(event, OutOfRangeError)):
            await consuming
        if event == "fails":
            with pytest.raises(UnknownError, match="the producer broke"):
                await coord.join()
        else:
            await coord.join()
            assert len(got) == after * producers
    assert len(got) <= after * producers


@pytest.mark.parametrize("capacity", [1, 3])
async def test_a_stop_while_all_parties_are_blocked_ends_them_all(capacity: int) -> None:
    """Producers on a full queue, a relay between two, a consumer on an empty one."""
    with g.Graph().as_default() as graph:
        full = g.FIFOQueue(capacity, [g.int32], shapes=[[]])
        gate = g.FIFOQueue(1, [g.int32], shapes=[[]])
        empty = g.FIFOQueue(1, [g.int32], shapes=[[]])
        runners = [
            QueueRunner(full, [full.enqueue(1)] * 3),
            QueueRunner(empty, [empty.enqueue(full.dequeue() + gate.dequeue())] * 2),
        ]
        dequeue = empty.dequeue()
    coord = Coordinator()
    async with assert_nothing_left_behind(), g.Session(graph=graph) as sess:
        for runner in runners:
            runner.create_tasks(sess, coord, start=True)
        consuming = asyncio.create_task(sess.run(dequeue))
        await wait_all_tasks_blocked()
        coord.request_stop()
        with pytest.raises((OutOfRangeError, CancelledError)):
            await consuming
        await coord.join()
    assert asyncio.get_running_loop().time() == 0


async def test_a_monitored_session_is_stopped_while_its_body_waits_for_data() -> None:
    with g.Graph().as_default():
        queue = g.FIFOQueue(2, [g.int32], shapes=[[]])
        element = g.py_func(Producer(3, "hangs").next, [], g.int32)
        add_queue_runner(QueueRunner(queue, [queue.enqueue(element)]))
        dequeue = queue.dequeue()
        got = []
        async with assert_nothing_left_behind(), MonitoredSession() as sess:
            asyncio.get_running_loop().call_later(5, sess.request_stop, "enough")
            while not sess.should_stop():
                got.append(int(await sess.run(dequeue)))
    assert got == [2, 1, 0]
    assert sess.stop_reason == "enough"


async def test_thirty_two_workers_in_a_monitored_session_leave_no_orphan() -> None:
    with g.Graph().as_default():
        x = g.placeholder(g.int32, [])
        total = g.Variable(0, dtype=g.int32)
        step = g.assign_add(total, x)
        fails = 0

        async with assert_nothing_left_behind(), MonitoredSession() as sess:
            assert sess.coord is not None
            channel = sess.coord.channel(8, max_staleness=4)

            async def attempt(number: int) -> None:
                for turn in range(1000):
                    await asyncio.sleep(0.1 + number * 0.01)
                    if (turn + number) % 7 == 6:
                        raise OSError(f"worker {number} broke")
                    await channel.send(1)

            async def work(number: int) -> None:
                nonlocal fails
                while True:
                    try:
                        await attempt(number)
                    except OSError:
                        fails += 1

            for number in range(32):
                sess.coord.create_task(work, number)
            async for item in channel:
                if await sess.run(step, {x: item}) == 200:
                    break
                channel.version += 1
    assert fails > 10
