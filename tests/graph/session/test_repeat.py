"""``Session.repeat`` runs a plan over and over, each run a transaction of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from asyncmon import graph as tf
from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[tf.Session]:
    with tf.Graph().as_default() as graph:
        async with tf.Session(graph=graph) as session:
            yield session


def times(count: int) -> Callable[[], bool]:
    """Return a function that is false for a number of calls."""
    left = iter(range(count))
    return lambda: next(left, None) is None


async def numbers(sess: tf.Session, count: int) -> tf.FIFOQueue:
    queue = tf.FIFOQueue(-1, tf.int32, shapes=[[]])
    await sess.run(queue.enqueue_many([list(range(count))]))
    await sess.run(queue.close())
    return queue


async def test_it_moves_elements_from_queue_to_queue_until_the_end_of_the_data(
    sess: tf.Session,
) -> None:
    source, target = await numbers(sess, 1000), tf.FIFOQueue(-1, tf.int32, shapes=[[]])
    with pytest.raises(OutOfRangeError):
        await sess.repeat(target.enqueue(source.dequeue() * 2), times(10_000))
    found = await sess.run(target.dequeue_many(target.size()))
    assert found.tolist() == list(range(0, 2000, 2))


async def test_it_ends_on_request(sess: tf.Session) -> None:
    step = tf.Variable(0)
    await sess.run(step.initializer)
    await sess.repeat(tf.assign_add(step, 1), times(10))
    assert await sess.run(step) == 10
    source = await numbers(sess, 10)
    await sess.repeat(source.dequeue(), times(3))
    assert await sess.run(source.size()) == 7


async def test_a_run_that_waits_does_not_hold_up_other_runs(sess: tf.Session) -> None:
    target = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    source = await numbers(sess, 50)
    moving = asyncio.create_task(sess.repeat(target.enqueue(source.dequeue()), times(51)))
    await wait_all_tasks_blocked()
    assert await sess.run([source.size(), target.size()]) == [46, 3]
    dequeue = target.dequeue()
    assert [await sess.run(dequeue) for _ in range(50)] == list(range(50))
    with pytest.raises(OutOfRangeError):
        await moving


async def test_a_cancelled_run_gives_its_elements_back(sess: tf.Session) -> None:
    target = tf.FIFOQueue(3, tf.int32, shapes=[[]])
    source = await numbers(sess, 50)
    moving = asyncio.create_task(sess.repeat(target.enqueue(source.dequeue()), times(51)))
    while await sess.run(target.size()) < 3:  # a slow machine computes the runs in a thread
        await wait_all_tasks_blocked()
    await wait_all_tasks_blocked()
    moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    assert await sess.run([source.size(), target.size()]) == [47, 3]
    assert await sess.run(source.dequeue()) == 3


async def test_a_failed_run_changes_nothing_and_earlier_ones_stay(sess: tf.Session) -> None:
    source, target = await numbers(sess, 10), tf.FIFOQueue(-1, tf.float32, shapes=[[]])
    value = tf.check_numerics(1.0 / tf.cast(5 - source.dequeue(), tf.float32), "at 5")
    with pytest.raises(InvalidArgumentError, match="at 5"):
        await sess.repeat(target.enqueue(value), times(10))
    assert await sess.run([source.size(), target.size()]) == [5, 5]


async def test_runs_that_draw_give_the_numbers_of_a_loop_of_runs() -> None:
    async def drawn(repeat: bool) -> list[Any]:
        with tf.Graph().as_default() as graph:
            tf.set_random_seed(7)
            count = tf.Variable(0)
            target = tf.FIFOQueue(-1, tf.float32, shapes=[[]])
            with tf.control_dependencies([tf.assign_add(count, 1)]):
                op = target.enqueue(tf.random_uniform([], seed=1))
            async with tf.Session(graph=graph) as sess:
                await sess.run(count.initializer)
                if repeat:
                    await sess.repeat(op, times(20))
                else:
                    for _ in range(20):
                        await sess.run(op)
                return [*await sess.run(target.dequeue_many(20)), await sess.run(count)]

    found = await drawn(True)
    assert found == await drawn(False)
    assert len(set(found)) == 21


async def test_steps_that_take_the_lock_continue_beside_it(sess: tf.Session) -> None:
    count = tf.Variable(0)
    await sess.run(count.initializer)
    target = tf.RandomShuffleQueue(100, 10, tf.float32, shapes=[[]], seed=1)
    filling = asyncio.create_task(sess.repeat(target.enqueue(tf.random_uniform([])), lambda: False))
    step = [tf.assign_add(count, 1), target.dequeue_many(7)]
    for i in range(60):
        assert (await sess.run(step))[0] == i + 1
    filling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await filling


async def test_closing_the_session_ends_it(sess: tf.Session) -> None:
    queue = tf.FIFOQueue(1, tf.int32)
    enqueue = queue.enqueue(1)
    await sess.run(enqueue)  # planned, and full: the next one waits in the queue
    filling = asyncio.create_task(sess.repeat(enqueue, lambda: False))
    await wait_all_tasks_blocked()
    await sess.close()
    with pytest.raises(CancelledError):
        await filling
    with pytest.raises(RuntimeError, match="closed Session"):
        await sess.repeat(queue.enqueue(1), lambda: False)
