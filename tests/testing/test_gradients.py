"""The numeric gradient checker finds wrong gradients and names their place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core.op import OpDef, register, table
from asyncmon.graph.core.rules import like_first
from asyncmon.testing.gradients import check_gradients

pytestmark = pytest.mark.asyncio


def _wrong(factor: float) -> Any:
    name = f"SquareWithGradientTimes{factor}"
    if name not in table:

        def rule(op: Any, grad: Any) -> Any:
            return [grad * op.inputs[0] * factor]

        register(OpDef(name, np.square, like_first, rule))
    return lambda x: tf.create_op(name, (x,))


async def test_a_right_gradient_passes_and_the_error_is_returned() -> None:
    error = await check_gradients(lambda a, b: tf.matmul(a, b), [np.ones((2, 3)), np.ones((3, 2))])
    assert error < 1e-8


async def test_a_wrong_gradient_is_found_and_placed() -> None:
    with pytest.raises(
        AssertionError, match=r"The gradient of .* at \[0\] is .* but differences of values"
    ):
        await check_gradients(_wrong(3.0), [np.array([1.0, 2.0])])
    await check_gradients(_wrong(2.0), [np.array([1.0, 2.0])])


async def test_a_missing_gradient_is_found() -> None:
    with pytest.raises(AssertionError):
        await check_gradients(lambda x: tf.stop_gradient(x) * 2, [np.array([1.0])])
    await check_gradients(lambda x, y: x * 2, [np.array([1.0]), np.array([1.0])])


async def test_a_wrong_second_gradient_is_found_at_the_second_order() -> None:
    if "CubeWithWrongSecond" not in table:

        def flow(op: Any, grad: Any) -> Any:
            return [grad * tf.stop_gradient(op.inputs[0] * op.inputs[0]) * 3]

        register(OpDef("CubeWithWrongSecond", lambda x: x**3, like_first, flow))

    def cube(x: Any) -> Any:
        return tf.create_op("CubeWithWrongSecond", (x,))

    await check_gradients(cube, [np.array([1.0])])
    with pytest.raises(AssertionError):
        await check_gradients(cube, [np.array([1.0])], order=2)


async def test_tensors_of_a_graph_with_variables_and_feeds() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float64, [None, 2])
        w = tf.Variable([[1.0], [2.0]], dtype=tf.float64, name="w")
        hidden = tf.tanh(x @ w)
        loss = tf.reduce_mean(hidden * hidden)
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            batch = np.array([[0.1, 0.2], [0.3, -0.4]])
            await check_gradients(loss, [w, x, hidden], {x: batch}, sess, order=2)
            assert (await sess.run(w)).tolist() == [[1], [2]]
            with pytest.raises(AssertionError, match="w"):
                await check_gradients(_wrong(3.0)(w), [w], session=sess)
        with pytest.raises(ValueError, match="needs the session"):
            await check_gradients(loss, [w], {x: batch})


async def test_floats_of_low_precision_get_the_tolerance_they_need() -> None:
    await check_gradients(lambda x: tf.sigmoid(x), [np.linspace(-1, 1, 5, dtype=np.float32)])
    with pytest.raises(AssertionError):
        await check_gradients(_wrong(2.2), [np.array([1.0, 2.0], np.float32)])


async def test_a_part_of_the_elements_can_be_checked() -> None:
    calls = 0

    def count(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return tf.square(x)

    await check_gradients(count, [np.ones((100, 100))], max_elements=3)
    assert calls == 1


async def test_integers_are_held_constant_and_something_must_be_left() -> None:
    await check_gradients(lambda x, i: tf.gather(x, i), [np.ones((3, 2)), np.array([0, 2])])
    with pytest.raises(ValueError, match="at least one x of floats"):
        await check_gradients(lambda i: tf.cast(i, tf.float64), [np.array([1])])


async def test_gradients_of_the_wrong_shape_or_dtype_are_found() -> None:
    if "WrongShape" not in table:

        def rule(op: Any, grad: Any) -> Any:
            return [tf.reduce_sum(grad)]

        register(OpDef("WrongShape", np.negative, like_first, rule))
    with pytest.raises(AssertionError, match=r"has shape \(\) and dtype float64, expected \(2,\)"):
        await check_gradients(lambda x: tf.create_op("WrongShape", (x,)), [np.ones(2)])
