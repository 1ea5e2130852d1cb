"""An op's random numbers depend on its seeds and on how often it drew before, and on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution.randomness import advanced, generator

pytestmark = pytest.mark.asyncio

STATE = np.array([1, 5], np.uint64)


async def draws(fetch: Any, n: int = 2) -> list[list[float]]:
    async with tf.Session() as sess:
        return [(await sess.run(fetch)).tolist() for _ in range(n)]


async def test_a_stream_has_a_place_for_each_op_run_and_iteration() -> None:
    def first(state: Any = STATE, key: Any = (1, 2, 1), iteration: int = 0) -> float:
        return generator(state, key, iteration).random()

    others = [
        first(), first(advanced(STATE, [1])), first(key=(1, 3, 1)), first(key=(2, 2, 1)),
        first(iteration=1), first(key=(None, 4, 1)), first(np.array([7, 5], np.uint64), (None, 2, 1)),
    ]  # fmt: skip
    assert len(set(others)) == len(others)
    assert first() == first()
    assert first(key=(-1, -2, 1)) == first(key=(-1, -2, 1))
    assert first(advanced(STATE, [3])) == first(key=(1, 2, 9)) == first()  # as long as it has no count


async def test_each_op_is_counted_by_itself() -> None:
    once = advanced(STATE, {2, 4})
    assert once.tolist() == [1, 5, 5, 6, 5, 6]
    assert advanced(once, {1}).tolist() == [1, 5, 6, 6, 5, 6]
    assert STATE.tolist() == [1, 5]


async def test_an_op_draws_the_same_after_other_ops() -> None:
    x, other, p = tf.random_uniform([3], seed=1), tf.random_normal([5]), tf.placeholder(tf.bool, [])
    twin = tf.random_uniform([3], seed=1)
    branch = tf.cond(p, lambda: tf.random_uniform([3], seed=1), lambda: tf.zeros([3]))
    expected = await draws(x, 4)
    async with tf.Session() as sess:
        await sess.run([other, tf.random_shuffle([1, 2])])
        await sess.run(other)
        found = [(await sess.run(x)).tolist()]
        for _ in range(3):
            await sess.run(other)
            found.append((await sess.run([other, x]))[1].tolist())
        assert found == expected
        assert (await sess.run(twin)).tolist() == expected[0]
        await sess.run(branch, {p: False})  # draws nothing
        assert [(await sess.run(branch, {p: True})).tolist() for _ in range(2)] == expected[:2]
        state = (await sess.snapshot())["__random_state__"]
    async with tf.Session() as later:
        await later.load({"__random_state__": state})
        assert (await later.run(twin)).tolist() == expected[1]
        await later.load({"__random_state__": np.array([0, 2], np.uint64)})  # of an older checkpoint
        assert (await later.run(x)).tolist() == expected[2]


async def test_op_seeds_repeat_in_each_session() -> None:
    x = tf.random_uniform([3], seed=4)
    assert await draws(x) == await draws(x)
    assert (await draws(x))[0] != (await draws(x))[1]


async def test_a_graph_seed_makes_every_op_repeat_and_differ_from_the_others() -> None:
    results = []
    for _ in range(2):
        with tf.Graph().as_default():
            tf.set_random_seed(3)
            x, y = tf.random_uniform([3]), tf.random_uniform([3])
            results.append([await draws(x), await draws(y)])
    assert results[0] == results[1]
    assert results[0][0] != results[0][1]


async def test_without_seeds_sessions_differ() -> None:
    x = tf.random_uniform([3])
    assert await draws(x) != await draws(x)


async def test_what_else_is_fetched_does_not_change_the_numbers() -> None:
    x, other = tf.random_uniform([3], seed=1), tf.random_uniform([5], seed=1)
    async with tf.Session() as alone, tf.Session() as together:
        for _ in range(2):
            expected = await alone.run(x)
            assert ((await together.run([other, x, tf.constant(1)]))[1] == expected).all()


async def test_a_run_that_draws_nothing_does_not_move_on() -> None:
    x, c = tf.random_uniform([3], seed=1), tf.constant(1)
    async with tf.Session() as first, tf.Session() as second:
        await first.run(c)
        assert (await first.run(x) == await second.run(x)).all()
