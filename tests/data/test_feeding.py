"""Data into a session: by iterate, by a feed function, by a queue."""

from __future__ import annotations

import pytest

from asyncmon import graph as g
from asyncmon.data import Dataset, from_iterable
from asyncmon.errors import OutOfRangeError
from asyncmon.hooks import FeedFnHook
from asyncmon.runtime import MonitoredSession, QueueRunner, add_queue_runner
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def numbers() -> Dataset:
    return from_iterable(lambda: iter(range(1, 11))).shuffle(4, seed=1).prefetch(3)


async def test_a_session_ends_with_the_source_it_iterates() -> None:
    with g.Graph().as_default():
        x = g.placeholder(g.int32, [])
        total = g.Variable(0, dtype=g.int32)
        step = g.assign_add(total, x)
        async with assert_nothing_left_behind(), MonitoredSession() as sess:
            async for number in sess.iterate(numbers()):
                result = await sess.run(step, {x: number})
    assert result == 55


async def test_a_feed_function_takes_its_data_from_a_source() -> None:
    """AX-1: the end of the data, raised inside an async function, ends the training cleanly."""
    with g.Graph().as_default():
        x = g.placeholder(g.int32, [])
        total = g.Variable(0, dtype=g.int32)
        step, source, results = g.assign_add(total, x), numbers(), []

        async def feed() -> dict[g.Tensor, int]:
            return {x: await source.get_next()}

        async with assert_nothing_left_behind(), MonitoredSession(hooks=[FeedFnHook(feed)]) as sess:
            while not sess.should_stop():
                results.append(int(await sess.run(step)))
    assert results[-1] == 55
    assert len(results) == 10


async def test_a_queue_is_fed_from_a_source() -> None:
    with g.Graph().as_default():
        source = numbers()
        queue = g.FIFOQueue(3, [g.int32], shapes=[[]])
        element = g.py_func(source.get_next, [], g.int32)
        add_queue_runner(QueueRunner(queue, [queue.enqueue(element)] * 2))
        total = g.Variable(0, dtype=g.int32)
        step, results = g.assign_add(total, queue.dequeue()), []
        async with assert_nothing_left_behind(), MonitoredSession() as sess:
            while not sess.should_stop():
                results.append(int(await sess.run(step)))
    assert results[-1] == 55


async def test_an_error_of_the_source_is_the_error_of_the_session() -> None:
    def broken() -> int:
        raise OSError("the disk is gone")

    async def train() -> None:
        async with MonitoredSession() as sess:
            async for number in sess.iterate(from_iterable([1]).map(lambda _: broken()).prefetch(2)):
                await sess.run(x, {x: number})

    with g.Graph().as_default():
        x = g.placeholder(g.int32, [])
        async with assert_nothing_left_behind():
            with pytest.raises(OSError, match="the disk is gone"):
                await train()


async def test_get_next_says_that_the_data_is_at_its_end() -> None:
    source = from_iterable([1])
    assert await source.get_next() == 1
    with pytest.raises(OutOfRangeError, match="at its end"):
        await source.get_next()
