"""Tensors made of a shape: zeros, ones, fill, range, one_hot, eye."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf


@pytest.mark.parametrize("shape", [[2, 3], [], (4,), 3, [0, 2]])
def test_zeros_and_ones(ops: Any, shape: Any) -> None:
    for function, reference in ((tf.zeros, np.zeros), (tf.ones, np.ones)):
        for dtype in (tf.float32, tf.float64, tf.int32, tf.bool):
            tensor = function(shape, dtype)
            found = ops.evaluate(tensor)
            assert tensor.shape == found.shape
            np.testing.assert_array_equal(found, reference(shape, dtype.as_numpy_dtype))


def test_zeros_of_strings_are_empty(ops: Any) -> None:
    assert ops.evaluate(tf.zeros([2], tf.string)).tolist() == [b"", b""]
    assert ops.evaluate(tf.zeros_like(tf.constant(["a"]))).tolist() == [b""]


def test_zeros_and_ones_of_a_small_known_shape_are_one_constant(ops: Any) -> None:
    with tf.Graph().as_default() as graph:
        for shape in ([], 3, [999], (2, tf.Dimension(3)), tf.TensorShape([4, 0]), np.array([2])):
            tf.zeros(shape)
            tf.ones(shape, tf.int64)
        assert {op.type for op in graph.get_operations()} == {"Const"}
        assert len(graph.get_operations()) == 12
    for shape in ([1000], [2, tf.constant(3)], tf.constant([3])):
        assert tf.zeros(shape).op.type == "Fill"
    assert ops.evaluate(tf.ones((2, 1), tf.bool)).tolist() == [[True], [True]]


def test_fill(ops: Any) -> None:
    ops.agree(lambda v: tf.fill([2, 3], v), np.full((2, 3), 5.0), np.array(5.0))
    ops.differentiate(lambda v: tf.fill([2, 3], v), np.array(5.0))
    ops.agree(tf.fill, np.full((2, 3), 5.0), np.array([2, 3]), np.array(5.0))
    with pytest.raises(ValueError, match="Fill dimensions must be >= 0"):
        tf.fill([2, -3], 1)
    with pytest.raises(ValueError, match="Shape must be rank 0 but is rank 1"):
        tf.fill([2], [1])


def test_only_zeros_and_ones_take_a_number_for_a_shape(ops: Any) -> None:
    assert tf.zeros(3).shape == tf.ones(tf.constant(3)).shape == (3,)
    assert ops.compute(tf.ones, np.int32(2)).tolist() == [1, 1]
    for dims in (3, tf.constant(3), tf.placeholder(tf.int32, [])):
        with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 0"):
            tf.fill(dims, 1.0)
    with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 2"):
        tf.zeros([[3]])


def test_like_another_tensor(ops: Any) -> None:
    x = np.ones((2, 3), np.float32)
    ops.agree(tf.zeros_like, np.zeros((2, 3)), x)
    ops.agree(tf.ones_like, np.ones((2, 3)), x)
    for known in ("all", "rank"):
        found = ops.compute(lambda a: tf.ones_like(a, tf.int64), x, known=known)
        assert found.dtype == np.int64
    assert tf.zeros_like(tf.constant([1, 2]), "float64").dtype is tf.float64


@pytest.mark.parametrize(
    "arguments", [(5,), (2, 8, 3), (0.0, 1.0, 0.25), (10, 0, -3), (0, 10, 2.5), (3, 3)]
)
def test_ranges(ops: Any, arguments: Any) -> None:
    tensor = tf.range(*arguments)
    expected = np.arange(*arguments)
    found = ops.evaluate(tensor)
    assert tensor.shape == found.shape
    assert found.dtype == (np.int32 if expected.dtype.kind == "i" else np.float32)
    np.testing.assert_allclose(found, expected)


def test_ranges_of_tensors(ops: Any) -> None:
    ops.agree(lambda n: tf.range(n), np.arange(4), np.array(4, np.int32))
    assert tf.range(tf.constant(3, tf.int64)).dtype is tf.int64
    assert tf.range(3, dtype=tf.float64).dtype is tf.float64
    assert tf.range(tf.placeholder(tf.int32, [])).shape.as_list() == [None]


def test_impossible_ranges(ops: Any) -> None:
    with pytest.raises(ValueError, match="Requires start <= limit when delta > 0: 5/0"):
        tf.range(5, 0)
    with pytest.raises(ValueError, match="Requires start >= limit when delta < 0: 0/5"):
        tf.range(0, 5, -1)
    with pytest.raises(ValueError, match="Requires delta != 0"):
        tf.range(0, 5, 0)
    with pytest.raises(errors.InvalidArgumentError, match="Requires start <= limit"):
        ops.compute(lambda a: tf.range(a, 0), np.array(5, np.int32))


def test_linspace(ops: Any) -> None:
    ops.agree(lambda a: tf.linspace(a, 1.0, 5), np.linspace(0, 1, 5), np.array(0.0, np.float32))
    assert tf.linspace(0.0, 1.0, 5).shape == (5,)
    assert tf.linspace(np.float64(0), 1.0, 5).dtype is tf.float64
    assert tf.linspace(0.0, np.float64(1), 5).dtype is tf.float32
    with pytest.raises(errors.InvalidArgumentError, match="Requires num > 0"):
        ops.compute(lambda n: tf.linspace(0.0, 1.0, n), np.array(0, np.int32))
    with pytest.raises(TypeError, match="not in list of allowed values"):
        tf.linspace(0, 1, 5)


@pytest.mark.parametrize("axis", [None, -1, 0, 1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_one_hot(ops: Any, axis: Any, dtype: Any) -> None:
    indices = np.array([[0, 2], [1, 0]], dtype)
    expected = np.eye(3)[indices]
    if axis in (0, 1):
        expected = np.moveaxis(expected, -1, axis)
    ops.agree(lambda i: tf.one_hot(i, 3, axis=axis), expected, indices)


def test_one_hot_of_what_is_out_of_range_is_off(ops: Any) -> None:
    np.testing.assert_array_equal(
        ops.compute(lambda i: tf.one_hot(i, 2), np.array([-1, 5, 1])), [[0, 0], [0, 0], [0, 1]]
    )


def test_one_hot_values_and_dtypes(ops: Any) -> None:
    np.testing.assert_array_equal(ops.evaluate(tf.one_hot([1], 2, 5.0, -1.0)), [[-1, 5]])
    assert tf.one_hot([1], 2, True, False).dtype is tf.bool
    assert tf.one_hot([1], 2, dtype=tf.int32).dtype is tf.int32
    assert tf.one_hot([1], 2, on_value=1, off_value=0, dtype=tf.float32).dtype is tf.float32
    assert tf.one_hot([1], tf.placeholder(tf.int32, [])).shape.as_list() == [1, None]
    assert tf.one_hot(tf.placeholder(tf.int32), 2).shape.ndims is None
    with pytest.raises(TypeError, match="does not match dtype parameter int32"):
        tf.one_hot([1], 2, on_value=tf.constant(1.0), dtype=tf.int32)
    with pytest.raises(TypeError, match="'indices'"):
        tf.one_hot([1.0], 2)


def test_eye(ops: Any) -> None:
    np.testing.assert_array_equal(ops.evaluate(tf.eye(2)), np.eye(2))
    np.testing.assert_array_equal(ops.evaluate(tf.eye(2, 3, dtype=tf.int32)), np.eye(2, 3))
    np.testing.assert_array_equal(ops.evaluate(tf.eye(2, batch_shape=[3])), [np.eye(2)] * 3)


@pytest.mark.parametrize("shape", [(), (2,), (0,), (0, 3)])
def test_one_hot_of_no_classes(ops: Any, shape: Any) -> None:
    at = np.zeros(shape, np.int32)
    ops.agree(lambda i: tf.one_hot(i, 0), np.zeros((*shape, 0)), at)
    ops.agree(lambda i, n: tf.one_hot(i, n, axis=0), np.zeros((0, *shape)), at, np.int32(0))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.fill([2], x),
        lambda x: tf.linspace(x, 1.0, 3),
        lambda x: tf.linspace(0.0, x, 3),
        lambda x: tf.linspace(0.0, 1.0, tf.cast(x, tf.int32)),
        lambda x: tf.one_hot([0, 1], tf.cast(x, tf.int32)),
        lambda x: tf.one_hot([0, 1], 2, x),
        lambda x: tf.one_hot([0, 1], 2, 1.0, x),
    ],
)
@pytest.mark.parametrize("shape", [(1,), (2,), (1, 1)])
def test_what_must_be_a_scalar_is_one_in_the_run_too(ops: Any, function: Any, shape: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="must be rank 0"):
        ops.compute(function, np.ones(shape, np.float32), known="nothing")


def test_one_hot_refuses_a_negative_depth_and_axes_before_the_last() -> None:
    for indices in (tf.constant([1, 2]), tf.placeholder(tf.int32)):
        with pytest.raises(ValueError, match="depth must be non-negative, got -1"):
            tf.one_hot(indices, -1)
        with pytest.raises(ValueError, match="axis must be -1 or a dimension of the result, got -2"):
            tf.one_hot(indices, 3, axis=-2)


def test_an_identity_matrix_of_a_size_known_in_the_run(ops: Any) -> None:
    ops.agree(tf.eye, np.eye(3), np.int32(3))
    ops.agree(lambda n: tf.eye(n, 2, dtype=tf.int32), np.eye(3, 2), np.int32(3))
    ops.agree(lambda n: tf.eye(3, batch_shape=n), np.stack([np.eye(3)] * 2), np.array([2], np.int32))
    ops.agree(lambda n: tf.eye(2, n, [2]), np.stack([np.eye(2, 3)] * 2), np.int32(3))


def test_counts_must_be_integers() -> None:
    for function in (lambda: tf.one_hot([0], 3.0), lambda: tf.linspace(0.0, 1.0, 3.0)):
        with pytest.raises(TypeError, match="DataType float32 not in list of allowed values: int32"):
            function()
