"""Values become tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [(1, tf.int32, ()), (1.5, tf.float32, ()), (True, tf.bool, ()), ([1, 2], tf.int32, (2,)),
     (np.float64(1), tf.float64, ()), (np.zeros((2, 1), np.int8), tf.int8, (2, 1)),
     ("a", tf.string, ()),
     ([b"a", b"b"], tf.string, (2,)), (2**40, tf.int64, ()), ([[1.0], [2.0]], tf.float32, (2, 1))],
)  # fmt: skip
def test_default_dtypes(value: Any, dtype: tf.DType, shape: tuple[int, ...]) -> None:
    tensor = tf.convert_to_tensor(value)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)


def test_a_dtype_can_be_requested() -> None:
    assert tf.convert_to_tensor(1, tf.float64).dtype is tf.float64
    assert tf.convert_to_tensor(np.zeros(2), "float32").dtype is tf.float32
    assert tf.convert_to_tensor(1, preferred_dtype=tf.float32).dtype is tf.float32
    assert tf.convert_to_tensor("a", preferred_dtype=tf.float32).dtype is tf.string


@pytest.mark.parametrize(
    ("value", "dtype", "error"),
    [(1.5, tf.int32, TypeError), ("a", tf.float32, TypeError), (300, tf.uint8, TypeError),
     (True, tf.float32, TypeError), (None, None, ValueError), (object(), None, TypeError),
     ([[1], [1, 2]], None, ValueError), (tf.float32, None, TypeError), ([object()], None, TypeError)],
)  # fmt: skip
def test_what_does_not_fit_is_refused(value: Any, dtype: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tf.convert_to_tensor(value, dtype)


def test_a_tensor_stays_itself_and_is_not_cast() -> None:
    c = tf.constant(1)
    assert tf.convert_to_tensor(c) is c
    with pytest.raises(
        ValueError, match="Tensor conversion requested dtype float32 for Tensor with dtype int32"
    ):
        tf.convert_to_tensor(c, tf.float32)


@pytest.mark.asyncio
async def test_lists_of_tensors_are_packed() -> None:
    packed = tf.convert_to_tensor([[tf.constant(1.0), 2], [3, tf.constant(4.0)]])
    assert packed.shape == (2, 2)
    async with tf.Session() as sess:
        assert (await sess.run(packed)).tolist() == [[1, 2], [3, 4]]


def test_a_constant_is_not_changed_by_its_source() -> None:
    source = np.zeros(2)
    constant = tf.constant(source)
    source[0] = 5
    assert constant.op.attrs["value"][0] == 0


def test_constant_shapes() -> None:
    assert tf.constant(1, shape=[2, 2]).shape == (2, 2)
    assert tf.constant([1, 2], shape=[2, 2]).op.attrs["value"].tolist() == [[1, 2], [2, 2]]
    assert tf.constant(1, shape=[0, 2]).op.attrs["value"].shape == (0, 2)
    assert tf.constant([], tf.int32, shape=[2]).op.attrs["value"].tolist() == [0, 0]
    with pytest.raises(ValueError, match="Too many elements"):
        tf.constant([1, 2, 3], shape=[2])
    with pytest.raises(TypeError, match="Expected Tensor's shape"):
        tf.constant([1, 2], shape=[1, 2], verify_shape=True)
    with pytest.raises(ValueError, match="fully defined"):
        tf.constant(1, shape=[None])


def test_constants_made_for_an_op_are_named_below_it() -> None:
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.name_scope("s"):
        first, second = x + 1.0, 2.0 + x
        third = tf.maximum(x, 0.0, name="top")
        tf.reshape(x, [2, 1])
    assert [op.name for y in (first, second, third) for op in (y.op, *(i.op for i in y.op.inputs))] == [
        "s/add",
        "x",
        "s/add/y",
        "s/add_1",
        "s/add_1/x",
        "x",
        "s/top",
        "x",
        "s/top/y",
    ]
    assert tf.constant(1).op.name == "Const"


def test_a_list_with_tensors_takes_the_dtype_that_is_requested(ops: Any) -> None:
    tensor = tf.convert_to_tensor([tf.constant(1), 2], tf.float64)
    assert tensor.dtype is tf.float64
    assert ops.evaluate(tensor).tolist() == [1.0, 2.0]


def test_an_array_of_objects_is_converted_where_a_dtype_is_given(ops: Any) -> None:
    tensor = tf.convert_to_tensor(np.array([1, 2], object), tf.int64)
    assert ops.evaluate(tensor).tolist() == [1, 2]
    with pytest.raises(TypeError, match="Cannot convert"):
        tf.convert_to_tensor(np.array([1, "a"], object), tf.int64)
