"""Queues that pad, and queues by priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[tf.Session]:
    with tf.Graph().as_default() as graph:
        async with tf.Session(graph=graph) as session:
            yield session


async def test_the_shapes_of_components_are_checked_and_completed(sess: tf.Session) -> None:
    with pytest.raises(ValueError, match="a list of shapes must be provided"):
        tf.PaddingFIFOQueue(3, [tf.int32], None)
    by_priority = tf.PriorityQueue(3, tf.int32, shapes=())
    assert [shape.as_list() for shape in by_priority.shapes] == [[], []]


async def test_a_shared_queue_of_another_kind_is_refused(sess: tf.Session) -> None:
    first = tf.FIFOQueue(5, [tf.int32], [[]], shared_name="s")
    other = tf.PaddingFIFOQueue(5, [tf.int32], [[]], shared_name="s")
    await sess.run(first.enqueue(3))
    with pytest.raises(InvalidArgumentError, match="kind FIFOQueue"):
        await sess.run(other.size())


async def test_a_padding_queue_fills_up_to_the_largest(sess: tf.Session) -> None:
    x, s = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.string, [None])
    queue = tf.PaddingFIFOQueue(5, [tf.int32, tf.string], shapes=[[None], [None]])
    enqueue = queue.enqueue((x, s))
    await sess.run(enqueue, {x: [1, 2], s: ["a"]})
    await sess.run(enqueue, {x: [3], s: ["b", "c", "d"]})
    batch = queue.dequeue_many(2)
    assert batch[0].shape.as_list() == [2, None]
    numbers, words = await sess.run(batch)
    assert numbers.tolist() == [[1, 2], [3, 0]]
    assert words.tolist() == [[b"a", b"", b""], [b"b", b"c", b"d"]]
    await sess.run(enqueue, {x: [4], s: ["e"]})
    assert [part.tolist() for part in await sess.run(queue.dequeue_many(1))] == [[[4]], [[b"e"]]]
    await sess.run(enqueue, {x: [5], s: ["f"]})
    assert (await sess.run(queue.dequeue()))[0].tolist() == [5]


async def test_a_priority_queue_gives_the_smallest_first(sess: tf.Session) -> None:
    queue = tf.PriorityQueue(5, [tf.string], shapes=[[]])
    await sess.run(queue.enqueue_many(([5, 1, 3], ["five", "one", "three"])))
    assert await sess.run(queue.dequeue()) == [1, b"one"]
    assert queue.dtypes == [tf.int64, tf.string]
    priorities, words = await sess.run(queue.dequeue_many(2))
    assert (priorities.tolist(), words.tolist()) == ([3, 5], [b"three", b"five"])
    named = tf.PriorityQueue(5, tf.string, shapes=[[]], names=["word"])
    await sess.run(named.enqueue({"priority": 2, "word": "two"}))
    assert await sess.run(named.dequeue()) == {"priority": 2, "word": b"two"}


async def test_padded_and_sorted_elements_that_do_not_fit_are_put_and_taken_too(
    sess: tf.Session,
) -> None:
    padding = tf.PaddingFIFOQueue(2, [tf.int32], shapes=[[None]])
    by_priority = tf.PriorityQueue(2, [tf.int32], shapes=[[]])
    for queue, values in (
        (padding, np.ones([5, 3], np.int32)),
        (by_priority, (np.arange(5), np.arange(5, dtype=np.int32))),
    ):
        taking = asyncio.create_task(sess.run(queue.dequeue_many(5)))
        await wait_all_tasks_blocked()
        await sess.run(queue.enqueue_many(values))
        await taking


async def test_a_waiting_batch_of_a_priority_queue_has_the_smallest_of_all(sess: tf.Session) -> None:
    queue = tf.PriorityQueue(5, [tf.string], shapes=[[]])
    p = tf.placeholder(tf.int64, [])
    put, batch = queue.enqueue((p, "x")), queue.dequeue_many(3)
    waiting = asyncio.create_task(sess.run(batch))
    for priority in (5, 1):
        await sess.run(put, {p: priority})
    assert await sess.run(queue.size()) == 2
    await sess.run(queue.enqueue_many(([9, 3], ["y", "z"])))
    assert [part.tolist() for part in await waiting] == [[1, 3, 5], [b"x", b"z", b"x"]]
    assert await sess.run(queue.size()) == 1
    waiting = asyncio.create_task(sess.run(batch))
    await sess.run(queue.enqueue_many(([8, 7, 6, 5, 4, 3], ["."] * 6)))  # more than fit
    assert (await waiting)[0].tolist() == [5, 6, 7]  # of the rows that were there
    up_to = asyncio.create_task(sess.run(queue.dequeue_up_to(5)))
    await asyncio.sleep(0)
    await sess.run(queue.close())
    assert (await up_to)[0].tolist() == [3, 4, 8, 9]


async def test_more_elements_than_a_priority_queue_holds_are_taken_as_they_come(
    sess: tf.Session,
) -> None:
    queue = tf.PriorityQueue(2, [tf.int32], shapes=[[]])
    waiting = asyncio.create_task(sess.run(queue.dequeue_many(3)))
    for priority in (5, 1, 3):
        await sess.run(queue.enqueue((np.int64(priority), 0)))
    assert sorted((await waiting)[0].tolist()) == [1, 3, 5]


async def test_strings_are_padded_with_empty_ones(sess: tf.Session) -> None:
    queue = tf.PaddingFIFOQueue(3, [tf.string, tf.string], [[], [None]])
    await sess.run(queue.enqueue(["wörd", ["a"]]))
    await sess.run(queue.enqueue(["b", ["a", "b"]]))
    words, lists = await sess.run(queue.dequeue_many(2))
    assert (words.tolist(), lists.tolist()) == (["wörd".encode(), b"b"], [[b"a", b""], [b"a", b"b"]])
