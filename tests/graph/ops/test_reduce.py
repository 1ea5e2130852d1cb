"""Reductions of every axis, kept or not, of every dtype, empty ones too; running sums; extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

from asyncmon import errors
from asyncmon import graph as tf

RNG = np.random.default_rng(3)
X = RNG.uniform(0.5, 2.0, (2, 3, 4)) * np.where(RNG.random((2, 3, 4)) < 0.5, -1, 1)

POSITIVE = np.random.default_rng(2).uniform(0.5, 2.0, (2, 3, 2))

FLOATS: list[tuple[Any, Any]] = [
    (tf.reduce_sum, np.sum),
    (tf.reduce_mean, np.mean),
    (tf.reduce_max, np.max),
    (tf.reduce_min, np.min),
    (tf.reduce_prod, np.prod),
    (tf.reduce_logsumexp, lambda x, axis, keepdims: np.log(np.exp(x).sum(axis, keepdims=keepdims))),
]
AXES = [None, 0, 1, -1, [0, 2], [-1, 0], [1, -1], [0, 1, 2], []]


@pytest.mark.parametrize(("function", "reference"), FLOATS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_values(ops: Any, function: Any, reference: Any, axis: Any, keepdims: bool) -> None:
    axes = tuple(axis) if isinstance(axis, list) else axis
    expected = reference(X, axis=axes, keepdims=keepdims)
    ops.agree(lambda x: function(x, axis, keepdims), expected, X, rtol=1e-12)
    ops.agree(lambda x: function(x, axis, keepdims), expected, X.astype("f"), rtol=1e-5)


@pytest.mark.parametrize(("function", "reference"), FLOATS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("axis", [None, 1, [0, -1]], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_gradients(ops: Any, function: Any, reference: Any, axis: Any, keepdims: bool) -> None:
    order = 1 if function is tf.reduce_prod else 2
    ops.differentiate(lambda x: function(x, axis, keepdims), X[:, :2, :2], order=order)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shape=array_shapes(min_dims=1, max_dims=4, max_side=3), data=st.data())
def test_sums_and_means_of_any_shape(ops: Any, shape: Any, data: Any) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True))
    x = np.random.default_rng(0).normal(size=shape)
    for function, reference in FLOATS[:2]:
        expected = reference(x, axis=tuple(axes), keepdims=False)
        ops.agree(lambda a, f=function: f(a, axes), expected, x)
        ops.differentiate(lambda a, f=function: f(a, axes), x, max_elements=3, known=False)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integers_keep_their_dtype(ops: Any, dtype: Any) -> None:
    x = np.array([[1, 2, 3], [4, 2, 2]], dtype)
    for function, reference in FLOATS[:-1]:
        found = ops.compute(function, x)
        assert found.dtype == dtype
        assert found == int(reference(x))


def test_the_mean_of_integers_is_rounded_towards_zero(ops: Any) -> None:
    assert ops.compute(tf.reduce_mean, np.array([1, -4], np.int32)) == -1
    assert ops.compute(tf.reduce_mean, np.array([3, 4], np.int32)) == 3


@pytest.mark.parametrize(
    ("dtype", "x", "axis", "expected"),
    [
        (np.uint8, [[200, 100, 250], [255, 255, 255]], None, 219),
        (np.uint8, [[200, 100, 250], [255, 255, 255]], 1, [183, 255]),
        (np.int8, [-128, -128, -127], 0, -127),
        (np.int16, [3, -3, 32767, 4], None, 8192),
        (np.int32, [[2**31 - 1, 5, 2**31 - 1], [-(2**31), -(2**31), 7]], 1, [1431655766, -1431655763]),
        (np.uint32, [2**32 - 1, 2**32 - 1], None, 2**32 - 1),
        (np.int64, [-(2**63), 5], None, -(2**62) + 3),
    ],
    ids=str,
)
def test_the_mean_of_integers_does_not_overflow(
    ops: Any, dtype: Any, x: Any, axis: Any, expected: Any
) -> None:
    for keepdims in (False, True):
        found = ops.compute(lambda a, k=keepdims: tf.reduce_mean(a, axis, k), np.array(x, dtype))
        assert found.dtype == dtype
        assert np.reshape(found, np.shape(expected)).tolist() == expected


def test_the_sum_of_integers_wraps_around_in_their_dtype(ops: Any) -> None:
    assert ops.compute(tf.reduce_sum, np.array([200, 200], np.uint8)) == 144
    assert ops.compute(tf.reduce_sum, np.array([2**31 - 1, 5], np.int32)) == -(2**31) + 4


def test_any_and_all(ops: Any) -> None:
    x = np.array([[True, False], [True, True]])
    ops.agree(lambda b: tf.reduce_any(b, 0), x.any(0), x)
    ops.agree(lambda b: tf.reduce_all(b, 1, keepdims=True), x.all(1, keepdims=True), x)
    with pytest.raises(TypeError, match="not in list of allowed values: bool"):
        tf.reduce_any(tf.constant([1.0]))


def test_of_nothing(ops: Any) -> None:
    empty = np.zeros((0, 2), np.float32)
    for function, expected in (
        (tf.reduce_sum, 0),
        (tf.reduce_prod, 1),
        (tf.reduce_max, -np.inf),
        (tf.reduce_min, np.inf),
        (tf.reduce_logsumexp, -np.inf),
    ):
        np.testing.assert_array_equal(ops.compute(lambda x, f=function: f(x, 0), empty), [expected] * 2)
    assert ops.compute(tf.reduce_max, np.zeros(0, np.int32)) == np.iinfo(np.int32).min
    assert np.isnan(ops.compute(tf.reduce_mean, empty))


def test_the_product_has_a_gradient_where_elements_are_zero(ops: Any) -> None:
    x = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 4.0]])
    (grad,) = ops.gradients(lambda a: tf.reduce_prod(a, 1), x)
    np.testing.assert_allclose(grad, [[6, 0, 0], [0, 0, 0], [8, 4, 2]])


def test_the_product_has_two_derivatives(ops: Any) -> None:
    x = np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 5.0], [1.0, 2.0, 4.0]])
    for axis in (None, 0, [1], [0, 1], []):
        ops.differentiate(lambda a, axis=axis: tf.reduce_prod(a, axis), x, order=2)
    ops.differentiate(lambda a: tf.reduce_prod(a, [0, 2], keepdims=True), x.reshape(3, 1, 3), order=2)
    unknown = tf.placeholder(tf.float32)
    once = tf.gradients(tf.reduce_prod(unknown, 0), unknown)
    with pytest.raises(LookupError, match="needs the rank"):
        tf.gradients(once, unknown)


def test_products_along_no_axis_and_of_nothing(ops: Any) -> None:
    ops.differentiate(lambda a: tf.reduce_prod(a, []), X[0], order=1)
    (grad,) = ops.gradients(lambda a: tf.reduce_prod(a, 0), np.zeros((0, 2)))
    assert grad.shape == (0, 2)


def test_equal_greatest_elements_share_the_gradient(ops: Any) -> None:
    (grad,) = ops.gradients(lambda a: tf.reduce_max(a, 0), np.array([1.0, 3.0, 3.0]))
    np.testing.assert_array_equal(grad, [0, 0.5, 0.5])


def test_logsumexp_does_not_overflow(ops: Any) -> None:
    x = np.array([1000.0, 1000.0], np.float32)
    np.testing.assert_allclose(ops.compute(tf.reduce_logsumexp, x), 1000 + np.log(2), rtol=1e-6)
    assert ops.compute(tf.reduce_logsumexp, np.array([-np.inf, -np.inf])) == -np.inf


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Invalid reduction dimension 2 for input with 1 dimension\(s\)"
    ):
        tf.reduce_sum(tf.constant([1.0]), 2)


def test_old_names_of_arguments() -> None:
    x = tf.constant(X)
    assert tf.reduce_sum(x, reduction_indices=[0], keep_dims=True).shape == (1, 3, 4)
    with pytest.raises(ValueError, match="Cannot specify both 'reduction_indices' and 'axis'"):
        tf.reduce_sum(x, axis=0, reduction_indices=0)
    with pytest.raises(ValueError, match="Cannot specify both 'keep_dims' and 'keepdims'"):
        tf.reduce_sum(x, keepdims=True, keep_dims=True)


def test_axes_may_be_a_constant_tensor_or_a_range_of_known_rank() -> None:
    x = tf.constant(X)
    assert tf.reduce_sum(x, tf.constant([0, 1])).shape == (4,)
    assert tf.reduce_sum(x, tf.range(1, tf.rank(x))).shape == (2,)
    with pytest.raises(TypeError, match="axis must be an integer"):
        tf.reduce_sum(x, 0.5)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(ops: Any, axis: int, exclusive: bool, reverse: bool) -> None:
    for function, reference, neutral in ((tf.cumsum, np.cumsum, 0), (tf.cumprod, np.cumprod, 1)):
        x = np.flip(POSITIVE, axis) if reverse else POSITIVE
        expected = reference(x, axis)
        if exclusive:
            expected = np.roll(expected, 1, axis)
            np.moveaxis(expected, axis, 0)[0] = neutral
        expected = np.flip(expected, axis) if reverse else expected

        def run(a: Any, f: Any = function) -> Any:
            return f(a, axis, exclusive, reverse)

        ops.agree(run, expected, POSITIVE)
        ops.differentiate(run, POSITIVE, order=2 if function is tf.cumsum else 1)


def test_running_sums_of_nothing(ops: Any) -> None:
    assert ops.compute(lambda x: tf.cumsum(x, exclusive=True), np.zeros((0, 2))).shape == (0, 2)


def test_running_sums_of_integers_keep_their_dtype(ops: Any) -> None:
    assert ops.compute(tf.cumsum, np.array([1, 2], np.int32)).dtype == np.int32


def test_a_running_sum_needs_its_axis() -> None:
    with pytest.raises(ValueError, match=r"Invalid axis 2: expected a value in \[-1, 1\)"):
        tf.cumsum(tf.constant([1.0]), 2)


@pytest.mark.parametrize(("function", "reference"), [(tf.argmax, np.argmax), (tf.argmin, np.argmin)])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_places_of_extremes(ops: Any, function: Any, reference: Any, axis: int) -> None:
    ops.agree(lambda x: function(x, axis), reference(POSITIVE, axis), POSITIVE)
    found = ops.compute(lambda x: function(x, axis, output_type=tf.int32), POSITIVE)
    assert found.dtype == np.int32


def test_of_equal_elements_the_first_is_meant(ops: Any) -> None:
    assert ops.compute(tf.argmax, np.array([1, 3, 3])) == 1


def test_the_axis_is_0_by_default_and_has_an_old_name(ops: Any) -> None:
    ops.agree(tf.argmax, np.argmax(POSITIVE, 0), POSITIVE)
    ops.agree(lambda x: tf.argmax(x, dimension=1), np.argmax(POSITIVE, 1), POSITIVE)


def test_bad_arguments_of_argmax() -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match=r"Dimension \(1\) must be in the range \[-1, 1\)"):
        tf.argmax(x, 1)
    with pytest.raises(TypeError, match="'output_type'"):
        tf.argmax(x, output_type=tf.float32)
    assert tf.gradients(tf.argmax(x), x) == [None]


@pytest.mark.parametrize("function", [tf.argmax, tf.argmin])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_has_no_greatest_element(ops: Any, function: Any, axis: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"in the range \[0, 0\)"):
        ops.compute(lambda x: function(x, axis), np.array(1.0), known="nothing")


def test_the_gradient_of_a_running_product_at_zero_is_zero(ops: Any) -> None:
    x = tf.constant([2.0, 0.0, 3.0])
    assert ops.evaluate(tf.gradients(tf.cumprod(x), x)[0]).tolist() == [1, 0, 0]


def test_axes_are_a_number_or_a_vector() -> None:
    with pytest.raises(ValueError, match="at most rank 1 but is rank 2"):
        tf.reduce_sum([[1.0]], [[0]])


@pytest.mark.parametrize(("function", "expected"), [(tf.reduce_all, True), (tf.reduce_any, False)])
def test_an_empty_list_holds_bools(ops: Any, function: Any, expected: bool) -> None:
    assert ops.evaluate(function([])) == expected
    with pytest.raises(TypeError, match="DataType float32 not in"):
        function([1.0])
