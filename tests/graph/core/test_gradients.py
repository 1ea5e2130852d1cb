"""The backward walk: the flow of gradients, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core.op import OpDef, register, table
from asyncmon.graph.core.rules import like_first

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_a_product_of_a_tensor_with_itself(ops: Any) -> None:
    x = tf.constant(X)
    np.testing.assert_array_equal(ops.evaluate(tf.gradients(x * x, x)[0]), 2 * X)


def test_several_results_add_up(ops: Any) -> None:
    x, y = tf.constant(X), tf.constant([1.0, 2.0, 3.0], tf.float64)
    by_x, by_y = tf.gradients([x * 2, x * y, x], [x, y])
    np.testing.assert_array_equal(ops.evaluate(by_x), 2 + np.broadcast_to([1, 2, 3], (2, 3)) + 1)
    np.testing.assert_array_equal(ops.evaluate(by_y), X.sum(0))


def test_results_in_between_are_xs_too(ops: Any) -> None:
    x = tf.constant(X)
    between = x * 3
    z = tf.reduce_sum(between * between)
    by_between, by_x = tf.gradients(z, [between, x])
    np.testing.assert_array_equal(ops.evaluate(by_between), 6 * X)
    np.testing.assert_array_equal(ops.evaluate(by_x), 18 * X)


def test_an_x_that_is_a_result_has_the_gradient_one(ops: Any) -> None:
    x = tf.constant(X)
    np.testing.assert_array_equal(ops.evaluate(tf.gradients(x, x)[0]), np.ones_like(X))


def test_variables_are_xs_however_often_they_are_read(ops: Any) -> None:
    v = tf.Variable(X, name="v")
    loss = tf.reduce_sum(v * v) + tf.reduce_sum(v.read_value()) + tf.reduce_sum(tf.identity(v))
    np.testing.assert_array_equal(ops.evaluate(tf.gradients(loss, v)[0]), 2 * X + 2)


def test_unconnected_xs_give_none_or_zeros(ops: Any) -> None:
    x, y = tf.constant(X), tf.Variable([1.0, 2.0])
    assert tf.gradients(x * 2, y) == [None]
    zeros = tf.gradients(x * 2, [y, tf.constant(X)], unconnected_gradients="zero")
    assert ops.evaluate(zeros[0]).tolist() == [0, 0]
    assert ops.evaluate(zeros[1]).shape == (2, 3)
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients"):
        tf.gradients(x, x, unconnected_gradients="ones")


def test_given_gradients_of_results(ops: Any) -> None:
    x = tf.constant(X)
    grad = tf.gradients([x * 2, x], x, grad_ys=[X, None])[0]
    np.testing.assert_array_equal(ops.evaluate(grad), 2 * X + 1)
    with pytest.raises(ValueError, match="Passed 2 grad_ys for 1 ys"):
        tf.gradients(x, x, grad_ys=[x, x])
    with pytest.raises(TypeError, match="must match it"):
        tf.gradients(x, x, grad_ys=[tf.cast(x, tf.float32)])
    with pytest.raises(ValueError, match="does not have the shape"):
        tf.gradients(x, x, grad_ys=[x[0]])


def test_stopped_tensors_are_constants_that_may_be_xs(ops: Any) -> None:
    x = tf.constant(X)
    y = tf.exp(x)
    by_x, by_y = tf.gradients(x * y, [x, y], stop_gradients=[y])
    np.testing.assert_allclose(ops.evaluate(by_x), np.exp(X))
    np.testing.assert_array_equal(ops.evaluate(by_y), X)
    assert tf.gradients(tf.stop_gradient(x), x) == [None]
    np.testing.assert_array_equal(ops.evaluate(tf.gradients(tf.stop_gradient(x) * x, x)[0]), X)


def test_behind_a_stop_nothing_needs_a_gradient() -> None:
    if "NoGradientAtAll" not in table:
        register(OpDef("NoGradientAtAll", lambda x: x, like_first))
    x = tf.constant(X)
    y = tf.create_op("NoGradientAtAll", (tf.stop_gradient(x),))
    assert tf.gradients(y, x) == [None]


def test_slices_may_be_given_as_gradients(ops: Any) -> None:
    x = tf.constant(X)
    rows = tf.IndexedSlices(tf.ones([1, 3], tf.float64), tf.constant([1]), tf.constant([2, 3]))
    found = ops.evaluate(tf.gradients(x * 2, x, grad_ys=[rows])[0])
    np.testing.assert_array_equal(found, [[0, 0, 0], [2, 2, 2]])


def test_integers_have_no_gradient_and_complex_numbers_are_refused() -> None:
    x = tf.constant(X)
    assert tf.gradients(tf.cast(x, tf.int32), x) == [None]
    assert tf.gradients(tf.argmax(x), x) == [None]
    z = tf.constant([1 + 2j])
    with pytest.raises(TypeError, match="Gradients of complex tensors are not defined"):
        tf.gradients(z, z)


def test_an_op_without_a_gradient_is_named() -> None:
    if "NoGradientAtAll" not in table:
        register(OpDef("NoGradientAtAll", lambda x: x, like_first))
    x = tf.constant(X)
    y = tf.create_op("NoGradientAtAll", (x,), name="dead_end")
    text = r"No gradient defined for operation 'dead_end' \(op type: NoGradientAtAll\)"
    with pytest.raises(LookupError, match=text):
        tf.gradients(y, x)
    assert tf.gradients(y * 2, tf.constant(1.0)) == [None]


def test_a_rule_must_give_a_gradient_per_input() -> None:
    if "WrongNumber" not in table:
        register(OpDef("WrongNumber", lambda x: x, like_first, lambda op, grad: [grad, grad]))
    x = tf.constant(X)
    with pytest.raises(
        ValueError, match=r"Num gradients 2 generated for op .* do not match num inputs 1"
    ):
        tf.gradients(tf.create_op("WrongNumber", (x,)), x)


def test_a_long_chain_does_not_recurse(ops: Any) -> None:
    x = y = tf.constant(1.0, tf.float64)
    for _ in range(3000):
        y = y + 1
    assert ops.evaluate(tf.gradients(y, x)[0]) == 1


def test_the_new_ops_lie_in_a_scope() -> None:
    x = tf.constant(X)
    assert tf.gradients(tf.exp(x), x)[0].name.startswith("gradients/")
    assert tf.gradients(tf.exp(x), x, name="back")[0].name.startswith("back/")


def test_results_that_share_an_op(ops: Any) -> None:
    a, b = tf.split(tf.constant(X), [1, 2], 1)
    x = a.op.inputs[0]
    grad = tf.gradients([tf.reduce_sum(b * b), a], x)[0]
    expected = np.concatenate([np.ones((2, 1)), 2 * X[:, 1:]], 1)
    np.testing.assert_array_equal(ops.evaluate(grad), expected)


def test_gradients_are_named_after_their_ops() -> None:
    x = tf.placeholder(tf.float32, [3, 4], name="x")
    with tf.name_scope("net"):
        w = tf.get_variable("w", [4, 2])
        y = tf.nn.relu(tf.matmul(x, w) + 1.0)
    loss = tf.reduce_sum(y)
    (grad,) = tf.gradients(loss, w)
    assert grad.op.name == "gradients/net/MatMul_grad/MatMul_1"
    (twice,) = tf.gradients([loss, x], [x])
    assert twice.op.name == "gradients_1/AddN"
    assert {op.name for op in tf.get_default_graph().get_operations()} >= {
        "gradients/grad_ys_0",
        "gradients/net/Relu_grad/ReluGrad",
        "gradients_1/grad_ys_1",
    }
