"""Large updates in blocks, by several threads: the same as in one go."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph import applying
from asyncmon.graph.op_def import OpDef, Spec, register, table

SIZE = 1000
THREADED = tf.SessionConfig(inline_ms=0)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "_BLOCK", 64)
    monkeypatch.setattr(applying, "_SHARED", 128)
    monkeypatch.setattr(applying, "_HELPERS", 3)


OPTIMIZERS = [
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    lambda: tf.train.AdagradOptimizer(0.1),
    lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    lambda: tf.train.AdamOptimizer(0.1),
    lambda: tf.train.AdamWOptimizer(0.01, 0.1),
]


async def trained(make: Any, config: Any) -> Any:
    with tf.Graph().as_default():
        rng = np.random.default_rng(0)
        x = tf.placeholder(tf.float32, [20, 50])
        v = tf.Variable(rng.standard_normal((50, 20)).astype(np.float32))
        op = make().minimize(tf.reduce_sum(tf.square(x @ v)))
        async with tf.Session(config=config) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(4):
                await sess.run(op, {x: rng.standard_normal((20, 50)).astype(np.float32)})
            return await sess.run(v)


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_blocks_give_the_same_bits(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await trained(make, None)
    monkeypatch.setattr(applying, "_BLOCK", 64)
    np.testing.assert_array_equal(await trained(make, None), whole)
    monkeypatch.setattr(applying, "_SHARED", 128)
    monkeypatch.setattr(applying, "_HELPERS", 3)
    np.testing.assert_array_equal(await trained(make, THREADED), whole)


@pytest.mark.asyncio
@pytest.mark.usefixtures("small_blocks")
async def test_gradients_in_another_order() -> None:
    x = tf.placeholder(tf.float32, [30, 40])
    v = tf.Variable(np.zeros((40, 30), np.float32))
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.transpose(x), v)])
    fed = np.arange(1200, dtype=np.float32).reshape(30, 40)
    async with tf.Session(config=THREADED) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op, {x: fed})
        np.testing.assert_array_equal(await sess.run(v), -fed.T)


class Update:
    """An update as :func:`apply_all` knows it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.blockwise = True
        self.op = None


def call(function: Any, *arrays: Any) -> Any:
    return (Update(function),), list(arrays), [2.0]


@pytest.mark.usefixtures("small_blocks")
def test_every_element_is_written_once_whoever_helps() -> None:
    threads = set()

    def add(array: Any, value: Any) -> None:
        threads.add(threading.current_thread().name)
        array += value

    arrays = [np.zeros(n) for n in (SIZE, 63, 64, 65, 1)]
    with ThreadPoolExecutor(3) as helpers:
        for _ in range(50):
            applying.apply_all([call(add, array) for array in arrays], None, helpers)
    for array in arrays:
        np.testing.assert_array_equal(array, np.full(array.shape, 100.0))
    assert threading.current_thread().name in threads


@pytest.mark.usefixtures("small_blocks")
def test_helpers_that_are_busy_are_not_waited_for() -> None:
    go_on = threading.Event()

    def add(array: Any, value: Any) -> None:
        array += value

    array = np.zeros(SIZE)
    with ThreadPoolExecutor(1) as helpers:
        helpers.submit(go_on.wait, 10)
        applying.apply_all([call(add, array)], None, helpers)
        np.testing.assert_array_equal(array, np.full(SIZE, 2.0))
        go_on.set()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("failing", ["MainThread", "helper_0"])
def test_an_error_ends_all_shares_and_is_raised(failing: str) -> None:
    both = threading.Barrier(2, timeout=10)  # so that each of them takes a block
    met = threading.local()

    def fail(array: Any, value: Any) -> None:
        if not hasattr(met, "once"):
            met.once = both.wait()
        if threading.current_thread().name == failing:
            raise ValueError(failing)

    with ThreadPoolExecutor(1, "helper") as helpers, pytest.raises(ValueError, match=failing):
        applying.apply_all([call(fail, np.zeros(SIZE))], None, helpers)


@pytest.mark.asyncio
@pytest.mark.usefixtures("small_blocks")
async def test_a_session_whose_update_failed_half_way_says_so() -> None:
    def half(array: Any, value: Any) -> None:
        array += value
        raise ZeroDivisionError("no")

    register(
        OpDef("HalfWay", None, lambda ref, _: Spec(ref.dtype, ref.shape), refs=1, update=half,
              blockwise=True, stateful=True)
    )  # fmt: skip
    try:
        v = tf.Variable(np.zeros(SIZE, np.float32))
        op = tf.create_op("HalfWay", (v, 1.0)).op
        async with tf.Session(config=THREADED) as sess:
            await sess.run(v.initializer)
            for _ in range(2):
                with pytest.raises(errors.InternalError, match="no longer consistent"):
                    await sess.run(op)
    finally:
        del table["HalfWay"]
