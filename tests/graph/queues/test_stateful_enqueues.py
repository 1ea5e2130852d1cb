"""Runs that write a variable and put into full queues, beside runs that take and write: all end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def put(v: tf.Variable, queue: tf.FIFOQueue) -> Any:
    with tf.control_dependencies([v.assign_add(1)]):
        return queue.enqueue(v.read_value())


def put_rows(v: tf.Variable, queue: tf.FIFOQueue) -> Any:
    """Put as many elements as are known only in the run."""
    rows = tf.placeholder_with_default(np.array([1, 2, 3], np.int32), [None])
    with tf.control_dependencies([v.assign_add(1)]):
        return queue.enqueue_many([rows * v.read_value()])


def take(v: tf.Variable, queue: tf.FIFOQueue) -> Any:
    return v.assign_add(queue.dequeue())


def pass_on(v: tf.Variable, queue: tf.FIFOQueue, other: tf.FIFOQueue) -> Any:
    with tf.control_dependencies([v.assign_add(queue.dequeue())]):
        return other.enqueue(v.read_value())


@pytest.mark.parametrize(
    "runs",
    [
        lambda v, q, _: [([put(v, q), put(v, q)], 1), (take(v, q), 2)],
        lambda v, q, _: [(put(v, q), 1), (put(v, q), 1), (take(v, q), 2)],
        lambda v, q, p: [
            ([put(v, q), put(v, p)], 1), ([put(v, p), put(v, q)], 1), ([take(v, q), take(v, p)], 2)
        ],
        lambda v, q, p: [(put(v, q), 1), (pass_on(v, q, p), 1), (take(v, p), 1)],
        lambda v, q, _: [(put_rows(v, q), 1), (put_rows(v, q), 1), (take(v, q), 6)],
        lambda v, q, p: [
            ([put_rows(v, q), put_rows(v, p)], 1), ([put_rows(v, p), put_rows(v, q)], 1),
            (take(v, q), 6), (take(v, p), 6),
        ],
    ],
)  # fmt: skip
async def test_runs_that_write_and_put_end(
    runs: Callable[[Any, Any, Any], list[tuple[Any, int]]],
) -> None:
    v = tf.Variable(1)
    queues = [tf.FIFOQueue(1, [tf.int32], [[]]) for _ in range(2)]
    made = runs(v, *queues)
    async with tf.Session() as sess:
        await sess.run(v.initializer)

        async def repeat(op: Any, times: int) -> None:
            for _ in range(times):
                await sess.run(op)

        async with asyncio.timeout(60):
            await asyncio.gather(*[repeat(op, 5 * times) for op, times in made])
        assert await sess.run([queue.size() for queue in queues]) == [0, 0]
