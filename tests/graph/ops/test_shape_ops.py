"""Shapes and how values lie in them: values, static shapes, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(24.0).reshape(2, 3, 4)


def test_shape_size_and_rank(ops: Any) -> None:
    ops.agree(tf.shape, np.array([2, 3, 4]), X)
    ops.agree(tf.size, np.array(24), X)
    ops.agree(tf.rank, np.array(3), X)
    assert ops.compute(lambda x: tf.shape(x, out_type=tf.int64), X).dtype == np.int64
    assert ops.compute(lambda x: tf.size(x, out_type=tf.int64), X).dtype == np.int64


def test_a_shape_of_unknown_rank_is_a_vector() -> None:
    assert tf.shape(tf.placeholder(tf.float32)).shape.as_list() == [None]


@pytest.mark.parametrize("shape", [[6, 4], [-1], [4, -1, 2], [2, 3, 4, 1]])
def test_reshape(ops: Any, shape: Any) -> None:
    ops.agree(lambda x: tf.reshape(x, shape), X.reshape(shape), X)
    ops.differentiate(lambda x: tf.reshape(x, shape), X, max_elements=3)


def test_reshape_to_a_shape_known_only_in_the_run(ops: Any) -> None:
    ops.agree(tf.reshape, X.reshape(6, 4), X, np.array([6, -1], np.int32))
    assert tf.reshape(tf.ones([6]), tf.placeholder(tf.int32, [3])).shape.as_list() == [None] * 3


def test_reshape_of_one_unknown_size_is_checked_when_built() -> None:
    x = tf.placeholder(tf.float32, [None, 4, 6])
    with pytest.raises(ValueError, match="evenly divisible by 24 but is 105"):
        tf.reshape(x, [3, 5, 7])
    assert tf.reshape(x, [2, 24]).shape == (2, 24)
    assert tf.reshape(tf.placeholder(tf.float32, [None, 0]), [0, 7]).shape == (0, 7)


def test_reshape_of_nothing(ops: Any) -> None:
    empty = np.zeros((0, 3))
    assert ops.compute(lambda x: tf.reshape(x, [-1, 3]), empty).shape == (0, 3)
    assert ops.compute(lambda x: tf.reshape(x, [0, -1]), empty).shape == (0, 3)


def test_static_shapes_through_shape_arithmetic() -> None:
    x = tf.placeholder(tf.float32, [None, 3, 4])
    assert tf.reshape(x, [tf.shape(x)[0], 12]).shape.as_list() == [None, 12]
    assert tf.reshape(x, [-1, tf.shape(x)[1], 4]).shape.as_list() == [None, 3, 4]
    assert tf.reshape(x, tf.concat([tf.shape(x)[:1], [12]], 0)).shape.as_list() == [None, 12]
    assert tf.reshape(x, tf.stack([tf.shape(x)[0], 12])).shape.as_list() == [None, 12]
    assert tf.zeros(tf.shape(x)).shape.as_list() == [None, 3, 4]
    assert tf.ones(tf.ones([2, 3]).shape).shape == (2, 3)
    assert tf.broadcast_to(1.0, tf.placeholder(tf.int32, [2])).shape.as_list() == [None, None]
    assert tf.zeros(tf.cast(tf.shape(x, out_type=tf.int64), tf.int32)).shape.as_list() == [None, 3, 4]


def test_impossible_shapes_are_refused_when_built_if_they_can_be() -> None:
    x = tf.ones([2, 3])
    for shape, text in (
        ([4, 2], "Cannot reshape a tensor with 6 elements to shape"),
        ([-1, 4], "Dimension size must be evenly divisible by 4 but is 6"),
        ([-1, -1], "Only one input size may be -1, not both 0 and 1"),
        (6, "Shape must be rank 1 but is rank 0"),
        ([3, -2], r"Sizes must be non-negative, or -1 for the rest, got \[3, -2\]"),
        ([-1, -3], "Sizes must be non-negative"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.reshape(x, shape)
    with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 0"):
        tf.broadcast_to(x, 6)
    with pytest.raises(TypeError, match="A shape must be of integers"):
        tf.reshape(x, [2.0, 3.0])


def test_impossible_shapes_fail_in_the_run_otherwise(ops: Any) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match=r"cannot reshape array of size 24 into shape \(5,5\)"
    ):
        ops.compute(tf.reshape, X, np.array([5, 5]), known="rank")


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([-2], r"Sizes must be non-negative, or -1 for the rest, got \[-2\]"),
        ([4, -3], "Sizes must be non-negative"),
        ([-1, -2], "Sizes must be non-negative"),
        ([[24]], "must be rank 1 but is rank 2"),
    ],
)
def test_sizes_below_minus_one_fail_in_the_run(ops: Any, sizes: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=text):
        ops.compute(tf.reshape, X, np.array(sizes), known="nothing")


def test_a_single_size_known_only_in_the_run_may_be_a_scalar(ops: Any) -> None:
    np.testing.assert_array_equal(
        ops.compute(tf.reshape, X, np.array(24), known="nothing"), X.reshape(-1)
    )


@pytest.mark.parametrize("axis", [0, 1, -1, -4, 3])
def test_expand_dims(ops: Any, axis: int) -> None:
    ops.agree(lambda x: tf.expand_dims(x, axis), np.expand_dims(X, axis), X)
    ops.differentiate(lambda x: tf.expand_dims(x, axis), X, max_elements=3)


def test_expand_dims_checks_its_axis() -> None:
    x = tf.ones([2])
    assert tf.expand_dims(x, dim=1).shape == (2, 1)
    with pytest.raises(ValueError, match="Invalid axis 3"):
        tf.expand_dims(x, 3)
    with pytest.raises(ValueError, match="Must specify an axis"):
        tf.expand_dims(x)


def test_squeeze(ops: Any) -> None:
    x = X[:1, :, None]
    for axis in (None, 0, [0], [0, 2], -2):
        axes = tuple(axis) if isinstance(axis, list) else axis
        expected = np.squeeze(x, axes)
        known = ("all", "rank") if axis is not None else ("all", "nothing")
        ops.agree(lambda a, s=axis: tf.squeeze(a, s), expected, x, known=known)
        ops.differentiate(lambda a, s=axis: tf.squeeze(a, s), x, max_elements=3)
    with pytest.raises(ValueError, match=r"Can not squeeze dim\[1\], expected a dimension of 1, got 3"):
        tf.squeeze(tf.ones([1, 3]), 1)
    with pytest.raises(errors.InvalidArgumentError, match="Can not squeeze"):
        ops.compute(lambda a: tf.squeeze(a, 0), X, known="rank")
    assert tf.squeeze(tf.ones([1, 2]), squeeze_dims=[0]).shape == (2,)


@pytest.mark.parametrize("perm", [None, [0, 1, 2], [2, 0, 1], [-1, 0, 1]])
def test_transpose(ops: Any, perm: Any) -> None:
    ops.agree(lambda x: tf.transpose(x, perm), np.transpose(X, perm), X)
    ops.differentiate(lambda x: tf.transpose(x, perm), X, max_elements=3)


def test_transpose_checks_its_permutation(ops: Any) -> None:
    with pytest.raises(ValueError, match="Shape must be rank 2 but is rank 3"):
        tf.transpose(tf.constant(X), [0, 1])
    with pytest.raises(ValueError, match="perm must be a permutation"):
        tf.transpose(tf.constant(X), [0, 0, 1])
    z = np.array([[1 + 2j]], np.complex64)
    assert ops.compute(lambda a: tf.transpose(a, conjugate=True), z) == 1 - 2j


def test_broadcast_to(ops: Any) -> None:
    x = np.array([[1.0], [2.0]])

    def run(a: Any) -> Any:
        return tf.broadcast_to(a, [3, 2, 2])

    ops.agree(run, np.broadcast_to(x, (3, 2, 2)), x)
    ops.differentiate(run, x)
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        tf.broadcast_to(tf.constant(x), [3, 2])
    with pytest.raises(ValueError, match="must be equal, but are 2 and 1"):
        tf.broadcast_to(tf.constant(x), [1, 2])
    with pytest.raises(ValueError, match="must be equal rank, but are 2 and 1"):
        tf.broadcast_to(tf.constant(x), [2])
    assert tf.broadcast_to(x, tf.placeholder(tf.int32, [2])).shape.as_list() == [2, None]
    with pytest.raises(errors.InvalidArgumentError, match="must be equal, but are 3 and 2"):
        ops.compute(run, np.ones(3), known="nothing")


CASTS = [np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.bool_]


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.parametrize("target", CASTS)
def test_casts(ops: Any, source: Any, target: Any) -> None:
    x = np.array([0, 1, 2, 3]).astype(source)
    found = ops.compute(lambda a: tf.cast(a, target), x)
    np.testing.assert_array_equal(found, x.astype(target))


def test_casts_drop_fractions_and_carry_gradients_between_floats(ops: Any) -> None:
    np.testing.assert_array_equal(
        ops.compute(lambda a: tf.cast(a, tf.int32), np.array([-1.7, 1.7])), [-1, 1]
    )
    x = tf.constant([1.0, 2.0])
    grad = tf.gradients(tf.cast(x, tf.float64) * 3, x)[0]
    assert grad.dtype is tf.float32
    np.testing.assert_array_equal(ops.evaluate(grad), [3, 3])
    assert tf.gradients(tf.cast(tf.cast(x, tf.int32), tf.float32), x) == [None]


def test_a_cast_to_the_same_dtype_is_the_tensor_itself() -> None:
    x = tf.constant(1.0)
    assert tf.cast(x, "float32") is x
    with pytest.raises(TypeError, match="Cast from string to float32 is not supported"):
        tf.cast(tf.constant("a"), tf.float32)


def test_a_cast_of_known_values_wraps_as_any_other(ops: Any) -> None:
    assert ops.evaluate(tf.cast([300, -1], tf.uint8)).tolist() == [44, 255]
