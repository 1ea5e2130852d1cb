"""Accumulators: values as TensorFlow 1.15 gives them, and what a failed run leaves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import pytest_asyncio

import asyncmon.graph as tf
from asyncmon.errors import CancelledError, InvalidArgumentError
from asyncmon.testing import wait_all_tasks_blocked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[tf.Session]:
    with tf.Graph().as_default() as graph:
        async with tf.Session(graph=graph) as session:
            yield session


class Dense:
    """An accumulator of vectors, and its operations."""

    def __init__(self, shape: Any = (2,), **kwargs: Any) -> None:
        self.sums = tf.ConditionalAccumulator(tf.float32, shape, **kwargs)
        self.x = tf.placeholder(tf.float32)
        self.step = tf.placeholder(tf.int64, [])
        self.n = tf.placeholder(tf.int32, [])
        self.apply_op = self.sums.apply_grad(self.x, self.step)
        self.take_op = self.sums.take_grad(self.n)
        self.count = self.sums.num_accumulated()
        self.set_step = self.sums.set_global_step(self.step)

    async def apply(self, sess: tf.Session, x: Any, step: int = 0) -> None:
        await sess.run(self.apply_op, {self.x: x, self.step: step})

    async def take(self, sess: tf.Session, n: int) -> Any:
        return await sess.run(self.take_op, {self.n: n})


async def test_mean_and_steps(sess: tf.Session) -> None:
    acc = Dense()
    assert acc.take_op.shape.as_list() == [2]
    await acc.apply(sess, [1, 2])
    await acc.apply(sess, [3, 5])
    assert await sess.run(acc.count) == 2
    assert (await acc.take(sess, 1)).tolist() == [2, 3.5]
    assert await sess.run(acc.count) == 0
    await acc.apply(sess, [1, 2], step=0)
    assert await sess.run(acc.count) == 0, "it is stale"
    await acc.apply(sess, [1, 2], step=7)
    await sess.run(acc.set_step, {acc.step: 10})
    assert await sess.run(acc.count) == 1
    await acc.apply(sess, [1, 2], step=9)
    assert await sess.run(acc.count) == 1
    await sess.run(acc.set_step, {acc.step: 3})
    await acc.apply(sess, [2, 6], step=3)
    assert (await acc.take(sess, 2)).tolist() == [1.5, 4]
    await acc.apply(sess, [1, 2], step=3)
    assert await sess.run(acc.count) == 0, "the step is 4"


async def test_sum_and_dtypes(sess: tf.Session) -> None:
    sums = tf.ConditionalAccumulator(tf.float64, [2], reduction_type="SUM")
    apply, take = sums.apply_grad([1.0, 2.0]), sums.take_grad(2)
    await sess.run(apply)
    await sess.run(apply)
    assert (await sess.run(take)).tolist() == [2, 4]
    half = tf.ConditionalAccumulator(tf.float16, [])
    for value in (1, 2, 4):
        await sess.run(half.apply_grad(value))
    mean = await sess.run(half.take_grad(1))
    assert mean.dtype == np.float16
    assert mean == np.float16(2.334)
    with pytest.raises(TypeError, match="takes float16, float32 or float64 gradients, got int32"):
        tf.ConditionalAccumulator(tf.int32)
    with pytest.raises(ValueError, match="reduction_type must be"):
        tf.ConditionalAccumulator(tf.float32, reduction_type="MAX")


async def test_shapes(sess: tf.Session) -> None:
    acc = Dense()
    with pytest.raises(InvalidArgumentError, match=r"Shapes \(3,\) and \(2,\) are incompatible"):
        await acc.apply(sess, [1, 2, 3])
    with pytest.raises(ValueError, match=r"Shapes \(3,\) and \(2,\) are incompatible"):
        acc.sums.apply_grad([1.0, 2.0, 3.0])
    free = Dense(shape=None)
    await free.apply(sess, [1, 2], step=9)
    with pytest.raises(InvalidArgumentError, match=r"Shape mismatch: expected \[2\], got \[3\]"):
        await free.apply(sess, [1, 2, 3], step=9)
    await free.take(sess, 1)
    await free.apply(sess, [1, 2, 3], step=9)
    assert (await free.take(sess, 1)).tolist() == [1, 2, 3]
    for count in (0, -1):
        with pytest.raises(
            InvalidArgumentError, match=f"num_required must be positive, but was {count}"
        ):
            await acc.take(sess, count)


async def test_a_take_waits_while_others_apply(sess: tf.Session) -> None:
    acc = Dense()
    first = asyncio.create_task(acc.take(sess, 2))
    second = asyncio.create_task(acc.take(sess, 1))
    await acc.apply(sess, [1, 1])
    await wait_all_tasks_blocked()
    assert not first.done()
    assert not second.done(), "the first one is served first"
    await acc.apply(sess, [3, 3])
    assert (await first).tolist() == [2, 2]
    await acc.apply(sess, [3, 3], step=0)
    await wait_all_tasks_blocked()
    assert not second.done(), "that was stale"
    await acc.apply(sess, [4, 4], step=1)
    assert (await second).tolist() == [4, 4]


async def test_a_cancelled_take_takes_nothing(sess: tf.Session) -> None:
    acc = Dense()
    waiting = asyncio.create_task(acc.take(sess, 2))
    await acc.apply(sess, [1, 1])
    await wait_all_tasks_blocked()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert await sess.run(acc.count) == 1
    await acc.apply(sess, [3, 3])
    assert (await acc.take(sess, 2)).tolist() == [2, 2]


async def test_closing_the_session_ends_a_take() -> None:
    with tf.Graph().as_default():
        acc = Dense()
        async with tf.Session() as sess:
            waiting = asyncio.create_task(acc.take(sess, 1))
            await wait_all_tasks_blocked()
        with pytest.raises(CancelledError):
            await waiting


async def test_a_failed_run_applies_nothing_and_restores_what_it_took(sess: tf.Session) -> None:
    acc = Dense()
    bad = tf.check_numerics(acc.x, "bad")
    with pytest.raises(InvalidArgumentError, match="bad"):
        await sess.run([acc.apply_op, bad], {acc.x: [np.nan, 1], acc.step: 0})
    assert await sess.run(acc.count) == 0
    await acc.apply(sess, [1, 2])
    await acc.apply(sess, [3, 4])
    checked = tf.check_numerics(acc.take_op * np.inf, "bad")
    with pytest.raises(InvalidArgumentError, match="bad"):
        await sess.run(checked, {acc.n: 2})
    await acc.apply(sess, [5, 6], step=0)
    assert (await acc.take(sess, 3)).tolist() == [3, 4]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_gradient_that_comes_while_a_take_is_open(sess: tf.Session, fails: bool) -> None:
    acc = Dense()
    gate = asyncio.Event()

    async def wait(x: Any) -> Any:
        await gate.wait()
        if fails:
            raise ValueError("failed")
        return x

    later = tf.py_func(wait, [acc.take_op], tf.float32)
    await acc.apply(sess, [1, 1])
    taking = asyncio.create_task(sess.run(later, {acc.n: 1}))
    await wait_all_tasks_blocked()
    await acc.apply(sess, [3, 3], step=0)
    await acc.apply(sess, [8, 8], step=1)
    gate.set()
    if not fails:
        assert (await taking).tolist() == [1, 1]
        assert (await acc.take(sess, 1)).tolist() == [8, 8], "the gradient of step 0 was stale"
    else:
        with pytest.raises(InvalidArgumentError, match="failed"):
            await taking
        assert (await acc.take(sess, 3)).tolist() == [4, 4]


async def test_a_run_sees_what_it_applied_itself(sess: tf.Session) -> None:
    acc = Dense()
    await acc.apply(sess, [1, 2])
    with tf.control_dependencies([acc.apply_op]):
        both, count = acc.sums.take_grad(2), acc.sums.num_accumulated()
    feeds = {acc.x: [3, 4], acc.step: 0}
    with pytest.raises(InvalidArgumentError):
        await sess.run([both, tf.check_numerics(both * np.inf, "bad")], feeds)
    assert await sess.run(acc.count) == 1
    assert (await sess.run(both, feeds)).tolist() == [2, 3]
    assert await sess.run(count, {acc.x: [3, 4], acc.step: 1}) == 1


async def test_large_gradients_are_added_up_in_threads(sess: tf.Session) -> None:
    acc = Dense(shape=[300_000])
    x = np.arange(300_000, dtype=np.float32)
    waiting = asyncio.create_task(acc.take(sess, 5))
    await asyncio.gather(*[acc.apply(sess, x * i) for i in range(5)])
    np.testing.assert_allclose(await waiting, x * 2)
    bad = tf.check_numerics(acc.take_op * np.inf, "bad")
    for i in range(3):
        await acc.apply(sess, x + i, step=1)
    with pytest.raises(InvalidArgumentError, match="bad"):
        await sess.run(bad, {acc.n: 3})
    assert await sess.run(acc.count) == 3
    np.testing.assert_allclose(await acc.take(sess, 3), x + 1)


async def test_what_is_applied_is_a_copy(sess: tf.Session) -> None:
    var = tf.Variable([1.0, 2.0])
    sums = tf.ConditionalAccumulator(tf.float32, [2])
    apply, take, change = sums.apply_grad(var), sums.take_grad(1), var.assign_add([1.0, 1.0])
    await sess.run(var.initializer)
    await sess.run(apply)
    await sess.run(change)
    assert (await sess.run(take)).tolist() == [1, 2]


async def test_shared_names(sess: tf.Session) -> None:
    one, other = (tf.ConditionalAccumulator(tf.float32, [2], shared_name="sums") for _ in range(2))
    await sess.run(one.apply_grad([1.0, 2.0]))
    assert await sess.run(other.num_accumulated()) == 1
    different = tf.ConditionalAccumulator(tf.float32, [3], shared_name="sums")
    with pytest.raises(InvalidArgumentError, match=r"'sums' has shape \(2,\), but .* has \(3,\)"):
        await sess.run(different.num_accumulated())


class Rows:
    """A sparse accumulator, and its operations."""

    def __init__(self, shape: Any = (4, 2), **kwargs: Any) -> None:
        self.sums = tf.SparseConditionalAccumulator(tf.float32, shape, **kwargs)
        self.i, self.x = tf.placeholder(tf.int64), tf.placeholder(tf.float32)
        self.shape = tf.placeholder(tf.int64)
        self.plain = self.sums.apply_grad(self.i, self.x, local_step=99)
        self.shaped = self.sums.apply_grad(self.i, self.x, self.shape, local_step=99)
        self.n = tf.placeholder(tf.int32, [])
        self.take_op = self.sums.take_grad(self.n)

    async def apply(self, sess: tf.Session, i: Any, x: Any, shape: Any = None) -> None:
        feeds = {self.i: i, self.x: x}
        if shape is None:
            await sess.run(self.plain, feeds)
        else:
            await sess.run(self.shaped, {**feeds, self.shape: shape})

    async def take(self, sess: tf.Session, n: int) -> list[Any]:
        return [part.tolist() for part in await sess.run(self.take_op, {self.n: n})]


async def test_rows_are_means_of_the_gradients_that_have_them(sess: tf.Session) -> None:
    acc = Rows()
    await acc.apply(sess, [0, 2], [[1, 1], [2, 2]])
    await acc.apply(sess, [2, 3], [[5, 6], [7, 7]])
    assert await acc.take(sess, 2) == [[0, 2, 3], [[1, 1], [3.5, 4], [7, 7]], [4, 2]]
    await acc.apply(sess, [2, 0, 2], [[1, 1], [2, 2], [3, 3]])
    await acc.apply(sess, [], np.zeros((0, 2)))
    await acc.apply(sess, [2], [[6, 6]], [4, 2])
    assert await acc.take(sess, 3) == [[0, 2], [[2, 2], [5, 5]], [4, 2]]
    total = Rows(shape=(), reduction_type="SUM")
    await total.apply(sess, [1], [[1, 2]])
    await total.apply(sess, [1], [[1, 2]])
    assert await total.take(sess, 2) == [[1], [[2, 4]], [-1, 2]]


@pytest.mark.parametrize(
    ("i", "x", "shape", "message"),
    [
        ([2, 2], [[1, 1]], None, "2 indices need as many rows"),
        ([2], [[1, 1, 1]], None, r"Shapes \(3,\) and \(2,\) are incompatible"),
        ([9], [[1, 1]], None, r"Indices must be from 0 to 3, got \[9\]"),
        ([-1], [[1, 1]], None, r"Indices must be from 0 to 3, got \[-1\]"),
        ([[2]], [[1, 1]], None, r"Input indices should be vector but received shape: \[1, 1\]"),
        ([2], [[1, 1]], [5, 2], r"Shape mismatch: expected \[4,2\], got \[5,2\]"),
    ],
)
async def test_wrong_rows(sess: tf.Session, i: Any, x: Any, shape: Any, message: str) -> None:
    acc = Rows()
    with pytest.raises(InvalidArgumentError, match=message):
        await acc.apply(sess, i, x, shape)
    assert await sess.run(acc.sums.num_accumulated()) == 0


async def test_indexed_slices(sess: tf.Session) -> None:
    table = tf.Variable(np.zeros((4, 2), np.float32))
    (grad,) = tf.gradients(tf.reduce_sum(tf.gather(table, [1, 3, 1])), [table])
    assert isinstance(grad, tf.IndexedSlices)
    sums = tf.SparseConditionalAccumulator(tf.float32, shape=())
    mean = sums.take_indexed_slices_grad(1)
    await sess.run(table.initializer)
    await sess.run(sums.apply_indexed_slices_grad(grad))
    update = tf.scatter_sub(table, mean.indices, mean.values)
    assert (await sess.run(update)).tolist() == [[0, 0], [-2, -2], [0, 0], [-1, -1]]
