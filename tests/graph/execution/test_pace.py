"""Whether the next run may hold the loop, by what those before took."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution.pace import Pace

LIMIT = 0.001


def paced(*runs: tuple[float, int], weight: int = 0) -> Pace:
    pace = Pace(weight)
    for seconds, fed in runs:
        pace.took(seconds, LIMIT, fed)
    return pace


def test_a_first_run_is_judged_by_its_elements() -> None:
    assert paced().is_short(LIMIT)
    assert not paced().is_short(0.0)
    assert not paced(weight=1 << 18).is_short(LIMIT)
    assert not paced().is_short(LIMIT, fed=1 << 18)


def test_further_ones_by_the_average() -> None:
    assert paced((0.0009, 0)).is_short(LIMIT)
    assert not paced((0.0011, 0)).is_short(LIMIT)


def test_one_that_took_very_long_sends_the_next_to_a_worker_and_is_forgotten() -> None:
    pace = paced(*[(1e-5, 0)] * 10, (2.0, 0))
    assert not pace.is_short(LIMIT)
    for _ in range(13):
        pace.took(1e-5, LIMIT)
    assert pace.is_short(LIMIT)


def test_one_that_gets_many_more_elements_will_take_longer() -> None:
    pace = paced(*[(0.0005, 1000)] * 10)
    assert pace.is_short(LIMIT, fed=1000)
    assert pace.is_short(LIMIT, fed=4000)
    assert not pace.is_short(LIMIT, fed=10_000)
    assert paced((1e-5, 10_000)).is_short(LIMIT, fed=100_000)


def test_few_elements_do_not_matter() -> None:
    assert paced((0.0005, 1)).is_short(LIMIT, fed=4000)


@pytest.mark.asyncio
async def test_a_batch_that_is_much_larger_than_those_before_goes_to_a_worker() -> None:
    x = tf.placeholder(tf.float32, [None, 100])
    fetches = [tf.py_func(lambda: threading.current_thread().name, [], tf.string), tf.reduce_sum(x)]
    async with tf.Session() as sess:
        for _ in range(5):
            name, _ = await sess.run(fetches, {x: np.ones((10, 100), np.float32)})
            assert "asyncmon-session" not in name
        sess._plans.popitem()[1].pace.average = 1e-4  # as on a machine that is not too fast
        name, total = await sess.run(fetches, {x: np.ones((1000, 100), np.float32)})
    assert "asyncmon-session" in name
    assert total == 100_000


# A loop that goes on for longer than those before.


async def with_ticks(run: Any) -> tuple[Any, int]:
    """Return what a run gives, and how often the event loop went round meanwhile."""
    task, ticks = asyncio.ensure_future(run), 0
    while not task.done():
        await asyncio.sleep(0)
        ticks += 1
    return task.result(), ticks


COUNTS = 5 * [3] + [30_000]


@pytest.mark.asyncio
async def test_a_loop_that_turns_out_long_goes_on_in_a_worker() -> None:
    n = tf.placeholder(tf.int32, [])
    total = tf.Variable(0, name="total")
    (last,) = [tf.while_loop(lambda i: i < n, lambda i: i + 1, [0])]
    drawn = tf.random_uniform([], seed=1)
    fetches = [tf.assign_add(total, last), last, drawn]
    async with tf.Session() as sess:
        await sess.run(total.initializer)
        found = []
        for count in COUNTS:
            result, ticks = await with_ticks(sess.run(fetches, {n: count}))
            found.append(result)
        assert ticks > 2
        result, ticks = await with_ticks(sess.run(fetches, {n: COUNTS[-1]}))
        assert ticks > 2  # it learns
        assert await sess.run(total) == sum(COUNTS) + COUNTS[-1]
    assert [result[1] for result in found] == COUNTS
    assert len({result[2] for result in found}) == len(COUNTS)  # no number is drawn twice


@pytest.mark.asyncio
@pytest.mark.parametrize("waits", [False, True])
async def test_and_what_it_had_taken_from_a_queue_is_taken_once(waits: bool) -> None:
    queue = tf.FIFOQueue(10, tf.int32, shapes=[[]])
    n = tf.placeholder(tf.int32, [])
    first = queue.dequeue()
    _, total = tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, x), [0, first])
    async with tf.Session() as sess:
        found = []
        for item, count in enumerate(COUNTS):
            run = with_ticks(sess.run(total, {n: count}))
            if waits:
                task = asyncio.ensure_future(run)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                await sess.run(queue.enqueue(item))
                value, ticks = await task
            else:
                await sess.run(queue.enqueue(item))
                value, ticks = await run
            found.append(value)
        assert ticks > 2
        assert await sess.run(queue.size()) == 0
    assert found == list(range(len(COUNTS)))


@pytest.mark.asyncio
async def test_a_loop_that_calls_code_of_the_users_is_not_begun_twice() -> None:
    calls = []
    n = tf.placeholder(tf.int32, [])

    def count(i: Any) -> Any:
        calls.append(int(i))
        return i

    def body(i: Any) -> Any:
        i = tf.py_func(count, [i], tf.int32)
        i.set_shape([])
        return i + 1

    last = tf.while_loop(lambda i: i < n, body, [0])
    async with tf.Session() as sess:
        for times in COUNTS:
            calls.clear()
            assert await sess.run(last, {n: times}) == times
            assert calls == list(range(times))


@pytest.mark.asyncio
async def test_what_leads_to_an_awaited_node_starts_in_a_worker_where_it_is_large() -> None:
    total = tf.reduce_sum(tf.zeros([1000, 1000]) + 1.0)
    here = tf.py_func(lambda x: threading.current_thread().name, [total], tf.string)

    async def told(name: Any) -> Any:
        return name

    async with tf.Session() as sess:
        name = await sess.run(tf.py_func(told, [here], tf.string))
    assert "asyncmon-session" in name
