"""What a run leaves behind: no array of it waits for the garbage collector."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from asyncmon import graph as tf

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

SIZE = 1000


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
