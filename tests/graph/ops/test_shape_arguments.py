"""What stands for a shape, wherever one is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

SHAPES = [
    np.array([2, 3]),
    np.array([2, 3], np.int32),
    (np.int64(2), 3),
    tf.TensorShape([2, 3]),
    [tf.Dimension(2), 3],
]
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "reshape": lambda shape: tf.reshape(tf.ones([6]), shape),
    "zeros": tf.zeros,
    "ones": tf.ones,
    "fill": lambda shape: tf.fill(shape, 2.0),
    "broadcast_to": lambda shape: tf.broadcast_to([1.0], shape),
    "random_uniform": tf.random_uniform,
    "random_normal": tf.random_normal,
    "truncated_normal": tf.truncated_normal,
    "constant": lambda shape: tf.constant(1.0, shape=shape),
    "get_variable": lambda shape: tf.get_variable("v", shape),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_a_shape_is_given_in_any_form(ops: Any, name: str, shape: Any) -> None:
    tensor = FUNCTIONS[name](shape)
    assert tensor.get_shape() == (2, 3)
    assert ops.evaluate(tensor).shape == (2, 3)


@pytest.mark.parametrize("shape", SHAPES[:3], ids=repr)
def test_an_array_of_multiples(ops: Any, shape: Any) -> None:
    assert ops.evaluate(tf.tile([[1.0]], shape)).shape == (2, 3)


def test_placeholders_take_shapes_in_any_form() -> None:
    for shape in SHAPES:
        assert tf.placeholder(tf.float32, shape).shape == (2, 3)
        assert tf.placeholder_with_default(np.ones((2, 3)), shape).shape == (2, 3)
    assert tf.placeholder(tf.float32, [tf.Dimension(None), 3]).shape == (None, 3)


def test_an_empty_array_is_the_shape_of_a_scalar() -> None:
    assert tf.zeros(np.array([])).shape == tf.zeros(()).shape == ()


@pytest.mark.parametrize("shape", [(-1, 10), [-1], -1])
def test_a_negative_size_of_a_placeholder_is_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match="Dimension -1 must be >= 0, or None where it is unknown"):
        tf.placeholder(tf.float32, shape)
    with pytest.raises(ValueError, match="Dimension -1 must be >= 0"):
        tf.placeholder(tf.float32, None).set_shape(shape)


def test_what_is_known_of_a_shape_is_a_constant(ops: Any) -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    found = [tf.shape(x), tf.size(x), tf.rank(x), tf.shape(x, out_type=tf.int64)]
    assert [tensor.op.type for tensor in found] == ["Const"] * 4
    assert [tensor.dtype for tensor in found] == [tf.int32, tf.int32, tf.int32, tf.int64]
    assert [np.array(value).tolist() for value in ops.evaluate(found)] == [[2, 3], 6, 2, [2, 3]]
    y = tf.placeholder(tf.float32, [None, 3])
    assert [t.op.type for t in (tf.shape(y), tf.size(y), tf.rank(y))] == ["Shape", "Size", "Const"]


def test_a_shape_is_a_tensor_of_int32(ops: Any) -> None:
    for shape in ([], [2, 3]):
        tensor = tf.convert_to_tensor(tf.TensorShape(shape))
        assert tensor.dtype is tf.int32
        assert ops.evaluate(tensor).tolist() == shape
    assert tf.convert_to_tensor(tf.TensorShape([2]), tf.int64).dtype is tf.int64
    with pytest.raises(TypeError, match="Allowed are int32 and int64"):
        tf.convert_to_tensor(tf.TensorShape([2]), tf.float32)
    with pytest.raises(ValueError, match="partially known"):
        tf.convert_to_tensor(tf.TensorShape([None]))
