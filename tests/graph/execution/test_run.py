"""What a run leaves behind: no array of it waits for the garbage collector."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import DeadlineExceededError, InvalidArgumentError, OutOfRangeError, UnknownError
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

SIZE = 1000
CONFIGS = pytest.mark.parametrize("inline_ms", [1000, 0])
INPUTS = np.full(SIZE, np.nan, np.float32)
SOON = tf.RunOptions(timeout_in_ms=5)


async def arrays_in_garbage(call: Callable[[], Awaitable[Any]]) -> int:
    """Return how many large arrays nothing but reference cycles holds after a call."""
    await call()  # its plans are made
    gc.collect()
    gc.disable()
    try:
        await call()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return sum(
            isinstance(held, np.ndarray) and held.size >= SIZE
            for found in gc.garbage
            for held in gc.get_referents(found)
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def test_a_run_lets_go_of_the_elements_of_queues() -> None:
    x = tf.placeholder(tf.float32, [SIZE])
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[SIZE]])
    enqueue, doubled = queue.enqueue(x), queue.dequeue() * 2.0

    async def passes_on() -> None:
        await sess.run(enqueue, {x: np.ones(SIZE)})
        await sess.run(doubled)

    async with tf.Session() as sess:
        assert await arrays_in_garbage(passes_on) == 0


def fails(sess: tf.Session, error: type[BaseException], *args: Any, **options: Any) -> Any:
    """Return a call that runs this and sees the error, and keeps nothing of it."""

    async def call() -> None:
        try:
            await sess.run(*args, **options)
        except error:
            return
        raise AssertionError("It did not fail.")

    return call


def is_cancelled(
    sess: tf.Session,
    fetches: Any,
    feeds: Any,
    waits: Callable[[], Awaitable[Any]] = wait_all_tasks_blocked,
    let_go: Callable[[], None] = lambda: None,
) -> Any:
    """Return a call that runs this and cancels it when it waits."""

    async def call() -> None:
        task = asyncio.create_task(sess.run(fetches, feeds))
        await waits()
        task.cancel()
        await asyncio.sleep(0)
        let_go()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    return call


@CONFIGS
async def test_a_run_that_fails_at_a_node_lets_go_of_its_arrays(inline_ms: float) -> None:
    x, state = tf.placeholder(tf.float32), tf.Variable(np.zeros(SIZE, np.float32))
    reshaped = tf.reshape(x * 2.0, [7])
    checked = tf.check_numerics(x * 2.0, "is bad")
    in_branch = tf.cond(tf.size(x) > 0, lambda: tf.check_numerics(x * 2.0, "is bad"), lambda: x)
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(state.initializer)
        for fetches in (reshaped, checked, in_branch, state.assign(checked)):
            call = fails(sess, InvalidArgumentError, fetches, {x: INPUTS})
            assert await arrays_in_garbage(call) == 0


@CONFIGS
async def test_a_run_whose_function_fails_lets_go_of_its_arrays(inline_ms: float) -> None:
    async def fail_at_once(_a: Any) -> Any:
        raise KeyError("broken")

    async def fail_later(_a: Any) -> Any:
        await asyncio.sleep(1)
        raise KeyError("broken")

    async def wait(_a: Any) -> Any:
        await asyncio.Event().wait()

    def fail(_a: Any) -> Any:
        raise KeyError("broken")

    x = tf.placeholder(tf.float32, [SIZE])
    waiting, *failing = (
        tf.py_func(func, [x * 2.0], tf.float32) for func in (wait, fail, fail_at_once, fail_later)
    )
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        for fetches in (*failing, [failing[-1], waiting]):
            assert await arrays_in_garbage(fails(sess, UnknownError, fetches, {x: INPUTS})) == 0


@CONFIGS
async def test_a_run_that_takes_too_long_lets_go_of_its_arrays(inline_ms: float) -> None:
    async def wait(_a: Any) -> Any:
        await asyncio.Event().wait()

    x = tf.placeholder(tf.float32, [SIZE])
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[SIZE]])
    full = tf.FIFOQueue(1, [tf.float32], shapes=[[SIZE]])
    fetches = [
        x + queue.dequeue(),
        queue.dequeue_many(3),
        full.enqueue(x * 2.0),
        tf.py_func(wait, [x * 2.0], tf.float32),
    ]
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(full.enqueue(x), {x: INPUTS})
        for fetch in fetches:
            call = fails(sess, DeadlineExceededError, fetch, {x: INPUTS}, options=SOON)
            assert await arrays_in_garbage(call) == 0


async def test_a_run_that_meets_the_end_of_the_data_lets_go_of_its_arrays() -> None:
    x = tf.placeholder(tf.float32, [SIZE])
    queue = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    added = x + queue.dequeue()

    async def closes_meanwhile() -> None:
        ending = tf.FIFOQueue(2, [tf.float32], shapes=[[]])
        task = asyncio.create_task(sess.run(x + ending.dequeue(), {x: INPUTS}))
        await wait_all_tasks_blocked()
        await sess.run(ending.close())
        try:
            await task
        except OutOfRangeError:
            del task  # which has the error, and that this frame

    async with tf.Session() as sess:
        await sess.run(queue.close())
        assert await arrays_in_garbage(fails(sess, OutOfRangeError, added, {x: INPUTS})) == 0
        assert await arrays_in_garbage(closes_meanwhile) == 0


async def test_a_cancelled_run_lets_go_of_its_arrays() -> None:
    async def fail(_a: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("broken")

    x, queue = tf.placeholder(tf.float32, [SIZE]), tf.FIFOQueue(2, [tf.float32], shapes=[[]])
    async with tf.Session() as sess:
        for fetch in (x + queue.dequeue(), tf.py_func(fail, [x * 2.0], tf.float32)):
            assert await arrays_in_garbage(is_cancelled(sess, fetch, {x: INPUTS})) == 0


@pytest.mark.parametrize("how", ["to its end", "to an error"])
async def test_a_run_cancelled_while_a_worker_computes_lets_go_of_its_arrays(how: str) -> None:
    loop, reached, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold(a: Any) -> Any:
        loop.call_soon_threadsafe(reached.set)
        assert go_on.wait(10)
        go_on.clear()
        loop.call_soon_threadsafe(reached.clear)
        if how == "to an error":
            raise KeyError("broken")
        return a

    x, state = tf.placeholder(tf.float32, [SIZE]), tf.Variable(np.zeros(SIZE, np.float32))
    held = tf.py_func(hold, [x * 2.0], tf.float32)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        await sess.run(state.initializer)
        for fetch in (held + 1.0, state.assign(held + 1.0)):
            call = is_cancelled(sess, fetch, {x: INPUTS}, reached.wait, go_on.set)
            assert await arrays_in_garbage(call) == 0
