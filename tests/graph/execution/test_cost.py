"""Which computations may hold the event loop, by the time that those before took."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.session_config import SessionConfig


@pytest.mark.asyncio
async def test_a_batch_that_is_much_larger_than_those_before_goes_to_a_worker() -> None:
    x = tf.placeholder(tf.float32, [None, 100])
    fetches = [tf.py_func(lambda: threading.current_thread().name, [], tf.string), tf.reduce_sum(x)]
    async with tf.Session(config=SessionConfig(inline_ms=1000)) as sess:  # on a busy machine, too
        for _ in range(5):
            name, _ = await sess.run(fetches, {x: np.ones((10, 100), np.float32)})
            assert b"asyncmon-session" not in name
        sess._plans.popitem()[1].cost.average = 0.1  # as on a machine that is not too fast
        name, total = await sess.run(fetches, {x: np.ones((1000, 100), np.float32)})
    assert b"asyncmon-session" in name
    assert total == 100_000


# A loop that runs for longer than the loops before it.


async def with_ticks(run: Any) -> tuple[Any, int]:
    """Return the results of a run, and the number of iterations of the event loop during it."""
    task, ticks = asyncio.ensure_future(run), 0
    while not task.done():
        await asyncio.sleep(0)
        ticks += 1
    return task.result(), ticks


COUNTS = 5 * [3] + [30_000]


@pytest.mark.asyncio
async def test_a_loop_that_turns_out_long_does_not_hold_the_event_loop() -> None:
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
        assert await sess.run(total) == sum(COUNTS)
    assert [result[1] for result in found] == COUNTS
    assert len({result[2] for result in found}) == len(COUNTS)  # no number is drawn twice


@pytest.mark.asyncio
async def test_a_loop_that_awaits_lets_the_event_loop_iterate() -> None:
    async def same(i: Any) -> Any:
        return i

    def body(i: Any) -> Any:
        i = tf.py_func(same, [i], tf.int32)
        i.set_shape([])
        return i + 1

    last = tf.while_loop(lambda i: i < 500, body, [0])
    async with tf.Session() as sess:
        result, ticks = await with_ticks(sess.run(last))
    assert result == 500
    assert ticks > 500


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
async def test_what_leads_to_an_awaited_node_starts_in_a_worker_where_it_is_large() -> None:
    total = tf.reduce_sum(tf.zeros([1000, 1000]) + 1.0)
    here = tf.py_func(lambda x: threading.current_thread().name, [total], tf.string)

    async def told(name: Any) -> Any:
        return name

    async with tf.Session() as sess:
        name = await sess.run(tf.py_func(told, [here], tf.string))
    assert b"asyncmon-session" in name
