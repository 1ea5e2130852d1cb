"""Averages that follow variables and tensors."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.train.averages import assign_moving_average

Averages = tf.train.ExponentialMovingAverage


async def _follow(build: Any, steps: int = 4) -> tuple[list[Any], list[Any]]:
    """Return values and averages after each step of a variable that grows by one."""
    v = tf.Variable([1.0, 2.0], name="v")
    averages, fetch = build(v)
    with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
        step = averages.apply(fetch(v))
    kept = [averages.average(x) for x in fetch(v)]
    found: list[Any] = []
    values: list[Any] = []
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        assert (await sess.run(v)).tolist() == [1, 2]
        for _ in range(steps):
            await sess.run(step)
            values.append(np.array(await sess.run(v)))
            found.append([np.array(a) for a in await sess.run(kept)])
    return values, found


def test_the_average_of_a_variable_begins_with_its_initial_value() -> None:
    values, found = asyncio.run(_follow(lambda v: (Averages(0.9), lambda v: [v])))
    average = np.array([1.0, 2.0])
    for value, (got,) in zip(values, found, strict=True):
        average = 0.9 * average + 0.1 * value
        np.testing.assert_allclose(got, average, rtol=1e-5)


def test_the_average_moves_fast_at_first_where_updates_are_counted() -> None:
    def build(v: Any) -> Any:
        return Averages(0.9, num_updates=tf.constant(2)), lambda v: [v]

    values, found = asyncio.run(_follow(build))
    average, decay = np.array([1.0, 2.0]), 3 / 12
    for value, (got,) in zip(values, found, strict=True):
        average = decay * average + (1 - decay) * value
        np.testing.assert_allclose(got, average, rtol=1e-5)


@pytest.mark.parametrize("debias", [False, True])
def test_the_average_of_a_tensor_begins_with_zeros(debias: bool) -> None:
    doubled: list[Any] = []

    def fetch(v: Any) -> list[Any]:
        if not doubled:
            doubled.append(tf.multiply(v.read_value(), 2.0, name="doubled"))
        return doubled

    def build(v: Any) -> Any:
        return Averages(0.9, zero_debias=debias), fetch

    with tf.Graph().as_default():
        values, found = asyncio.run(_follow(build))
    average = np.zeros(2)
    for i, (value, (got,)) in enumerate(zip(values, found, strict=True), 1):
        average = 0.9 * average + 0.1 * 2 * value
        expected = average / (1 - 0.9**i) if debias else average
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_names_and_collections() -> None:
    v = tf.Variable([1.0], name="v")
    other = tf.Variable([1.0], name="other", trainable=False)
    averages = Averages(0.9)
    assert averages.average_name(v) == "v/ExponentialMovingAverage"
    assert averages.average(v) is None
    op = averages.apply()
    average = averages.average(v)
    assert average is not None
    assert averages.average_name(v) == average.op.name == "v/ExponentialMovingAverage"
    assert tf.get_collection(tf.GraphKeys.MOVING_AVERAGE_VARIABLES) == [v]
    assert op.name == averages.name == "ExponentialMovingAverage"
    assert averages.variables_to_restore() == {
        "v/ExponentialMovingAverage": v,
        "other": other,
    }
    assert averages.variables_to_restore([]) == {
        "v": v,
        "other": other,
        "v/ExponentialMovingAverage": average,
    }
    averages.apply([v])
    assert averages.average(v) is average


def test_only_floats_are_averaged() -> None:
    with pytest.raises(TypeError, match="must be half, float, or double: Variable:0"):
        Averages(0.9).apply([tf.Variable(1)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_one_average_by_itself(ops: Any, dtype: Any) -> None:
    v = tf.Variable(np.zeros(3, dtype), trainable=False, name="v")
    moved = assign_moving_average(v, np.ones(3), 0.75, zero_debias=False)
    value = ops.evaluate(moved)
    assert value.dtype == dtype
    assert value.tolist() == [0.25] * 3
    assert moved.name == "AssignMovingAvg:0"


def test_averages_of_two_graphs_stay_apart() -> None:
    averages = Averages(0.9)
    for _ in range(2):
        with tf.Graph().as_default() as graph:
            v = tf.Variable(1.0, name="v")
            assert averages.average(v) is None
            assert averages.average_name(v) == "v/ExponentialMovingAverage"
            averages.apply([v])
            average = averages.average(v)
            assert average is not None
            assert average.graph is graph
