"""Random numbers: distributions, seeds, state."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

SHAPE = [200, 100]


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_distributions(ops: Any, dtype: Any) -> None:
    uniform, normal, truncated = ops.evaluate(
        [
            tf.random_uniform(SHAPE, -1.0, 3.0, dtype),
            tf.random_normal(SHAPE, 2.0, 0.5, dtype),
            tf.truncated_normal(SHAPE, 2.0, 0.5, dtype),
        ]
    )
    for values in (uniform, normal, truncated):
        assert values.dtype == dtype
        assert values.shape == tuple(SHAPE)
    assert -1 <= uniform.min() < -0.9
    assert 2.9 < uniform.max() <= 3
    assert abs(uniform.astype("d").mean() - 1) < 0.05
    assert abs(normal.astype("d").mean() - 2) < 0.02
    assert abs(normal.astype("d").std() - 0.5) < 0.02
    assert abs(truncated.astype("d").std() - 0.44) < 0.02
    assert np.abs(truncated.astype("d") - 2).max() <= 1.001


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_uniform_integers(ops: Any, dtype: Any) -> None:
    values = ops.evaluate(tf.random_uniform([1000], 3, 6, dtype))
    assert values.dtype == dtype
    assert set(values.tolist()) == {3, 4, 5}
    with pytest.raises(errors.InvalidArgumentError, match="Need minval < maxval, got 5 >= 5"):
        ops.evaluate(tf.random_uniform([2], 5, 5, dtype))


def test_parameters_may_be_tensors_and_shapes_unknown(ops: Any) -> None:
    low, high = tf.constant([0.0, 10.0]), tf.constant([1.0, 11.0])
    values = ops.evaluate(tf.random_uniform([50, 2], low, high))
    assert (values[:, 0] < 1).all()
    assert (values[:, 1] >= 10).all()
    shape = np.array([3, 2], np.int32)
    assert (
        ops.compute(lambda s: tf.random_normal(s, tf.constant(5.0), 0.0), shape).tolist()
        == [[5, 5]] * 3
    )
    assert tf.random_uniform(tf.placeholder(tf.int32, [2])).shape.as_list() == [None, None]


def test_names_are_the_originals() -> None:
    assert tf.random_normal([1], 1.0, name="n").name == "n:0"
    assert tf.random_uniform([1], name="u").name == "u:0"
    assert tf.truncated_normal([1], stddev=2.0, name="t").name == "t:0"


async def _draws(seed: int | None, op_seed: int | None, runs: int = 2) -> list[Any]:
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        x = tf.random_uniform([3], seed=op_seed)
        async with tf.Session() as sess:
            return [await sess.run(x) for _ in range(runs)]


@pytest.mark.parametrize(("seed", "op_seed"), [(1, None), (None, 2), (1, 2)])
def test_seeds_repeat_the_sequence(seed: Any, op_seed: Any) -> None:
    first, second = asyncio.run(_draws(seed, op_seed)), asyncio.run(_draws(seed, op_seed))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_without_seeds_each_session_differs() -> None:
    assert not np.array_equal(asyncio.run(_draws(None, None)), asyncio.run(_draws(None, None)))


def test_two_ops_of_one_graph_seed_differ(ops: Any) -> None:
    tf.set_random_seed(3)
    a, b = ops.evaluate([tf.random_uniform([5]), tf.random_uniform([5])])
    assert not np.array_equal(a, b)


def test_the_state_travels_in_a_snapshot() -> None:
    async def run() -> None:
        tf.set_random_seed(4)
        x = tf.random_normal([4])
        async with tf.Session() as first, tf.Session() as second:
            await first.run(x)
            with await first.snapshot() as state:
                await second.load(dict(state))
            np.testing.assert_array_equal(await first.run(x), await second.run(x))

    asyncio.run(run())


def test_shuffled_rows(ops: Any) -> None:
    x = np.arange(20).reshape(10, 2)
    found = ops.compute(lambda a: tf.random_shuffle(a, seed=5), x)
    assert not np.array_equal(found, x)
    np.testing.assert_array_equal(np.sort(found[:, 0]), x[:, 0])
    assert (found[:, 1] == found[:, 0] + 1).all()
    assert ops.compute(tf.random_shuffle, np.array(3)) == 3
    a = tf.constant(x, tf.float32)
    with pytest.raises(LookupError, match="No gradient defined"):
        tf.gradients(tf.random_shuffle(a), a)


def test_multinomial(ops: Any) -> None:
    logits = np.log([[0.7, 0.2, 0.1], [1e-9, 1.0, 1e-9]])
    found = ops.compute(lambda a: tf.multinomial(a, 5000, seed=6), logits)
    assert found.dtype == np.int64
    shares = np.bincount(found[0], minlength=3) / 5000
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.03)
    assert (found[1] == 1).all()
    assert tf.multinomial(tf.constant(logits), 2, output_dtype=tf.int32).dtype is tf.int32


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="Must specify maxval for integer dtype int32"):
        tf.random_uniform([2], dtype=tf.int32)
    with pytest.raises(ValueError, match="Argument `dtype` got invalid value bool"):
        tf.random_uniform([2], dtype=tf.bool)
    for function in (tf.random_uniform, tf.random_normal, tf.truncated_normal):
        with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 0"):
            function(3)
    with pytest.raises(TypeError, match="dtype must be a floating type, got int32"):
        tf.random_normal([2], dtype=tf.int32)
    with pytest.raises(ValueError, match="Shape must be rank 2 but is rank 1"):
        tf.multinomial(tf.constant([1.0]), 2)


def test_multinomial_of_no_rows(ops: Any) -> None:
    assert ops.compute(lambda a: tf.multinomial(a, 2), np.zeros((0, 3))).shape == (0, 2)


def test_no_rows_have_no_samples(ops: Any) -> None:
    assert ops.compute(lambda x: tf.multinomial(x, 2), np.ones((0, 3))).shape == (0, 2)


@pytest.mark.parametrize(("low", "high"), [(0, None), (1.0, 1.1), (-3, 5), (0.0, 1.0)])
def test_numbers_of_half_precision_stay_below_the_maximum(ops: Any, low: Any, high: Any) -> None:
    drawn = ops.evaluate(tf.random_uniform([100_000], low, high, tf.float16, seed=3))
    assert drawn.dtype == np.float16
    assert drawn.min() >= np.float16(low)
    assert drawn.max() < np.float16(1 if high is None else high)
