"""Arithmetic of two tensors: broadcasting, dtypes, gradients, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from asyncmon import errors
from asyncmon import graph as tf

SMOOTH: list[tuple[Any, Any]] = [
    (tf.add, np.add),
    (tf.subtract, np.subtract),
    (tf.multiply, np.multiply),
    (tf.divide, np.true_divide),
    (tf.pow, np.power),
    (tf.maximum, np.maximum),
    (tf.minimum, np.minimum),
    (tf.squared_difference, lambda x, y: (x - y) ** 2),
    (tf.div_no_nan, np.true_divide),
    (tf.floormod, np.mod),
]
each = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
shapes = mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)


def _operands(shapes: Any, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(7)
    # away from each other, so that no difference crosses an edge
    return [np.asarray(rng.uniform(0.3, 0.9, s) + i, dtype) for i, s in enumerate(shapes.input_shapes)]


@pytest.mark.parametrize(("function", "reference"), SMOOTH, ids=lambda f: getattr(f, "__name__", "f"))
@each
@given(shapes=shapes, dtype=st.sampled_from([np.float16, np.float32, np.float64]))
def test_values_and_static_shapes_for_shapes_that_broadcast(
    ops: Any, function: Any, reference: Any, shapes: Any, dtype: Any
) -> None:
    x, y = _operands(shapes, dtype)
    expected = reference(x.astype("d"), y.astype("d"))
    assert np.shape(expected) == shapes.result_shape
    for known in ("all", "rank", "nothing"):
        found = ops.compute(function, x, y, known=known)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, rtol=2e-2 if dtype is np.float16 else 1e-5)


@pytest.mark.parametrize(
    ("function", "reference"), SMOOTH[:-1], ids=lambda f: getattr(f, "__name__", "f")
)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(shapes=shapes)
def test_gradients_for_shapes_that_broadcast(
    ops: Any, function: Any, reference: Any, shapes: Any
) -> None:
    x, y = _operands(shapes, np.float64)
    ops.differentiate(function, x, y, order=2, max_elements=4)


def test_the_remainder_has_the_gradient_of_its_pieces(ops: Any) -> None:
    ops.differentiate(tf.floormod, np.array([2.7, 5.3]), np.array([1.1, 2.1]), order=1)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_the_other_names_of_division(ops: Any, dtype: Any) -> None:
    x, y = np.array([8, 9], dtype), np.array([2, 4], dtype)
    for function in (tf.realdiv, tf.divide, tf.truediv):
        np.testing.assert_allclose(ops.compute(function, x, y), [4, 2.25])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_integer_division(ops: Any, dtype: Any) -> None:
    x, y = np.array([7, 8, 9], dtype), np.array([2, 3, 4], dtype)
    quotient = ops.compute(tf.truediv, x, y)
    assert quotient.dtype == (np.float32 if np.dtype(dtype).itemsize < 4 else np.float64)
    np.testing.assert_allclose(quotient, [3.5, 8 / 3, 2.25], rtol=1e-6)
    np.testing.assert_array_equal(ops.compute(tf.floordiv, x, y), [3, 2, 2])
    np.testing.assert_array_equal(ops.compute(tf.mod, x, y), [1, 2, 1])


def test_floor_division_rounds_down(ops: Any) -> None:
    x, y = np.array([-7, 7], np.int32), np.array([2, -2], np.int32)
    np.testing.assert_array_equal(ops.compute(tf.floordiv, x, y), [-4, -4])
    np.testing.assert_array_equal(ops.compute(tf.floormod, x, y), [1, -1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floor_division_of_floats_is_the_quotient_rounded_down(ops: Any, dtype: Any) -> None:
    x = np.array([1.0, np.inf, -5.0, 5.0, -7.0, 5.0, 3.0, 0.0], dtype)
    y = np.array([0.1, 3.0, np.inf, -np.inf, 2.0, -0.0, np.nan, -2.0], dtype)
    expected = np.array([10, np.inf, -0.0, -0.0, -4, -np.inf, np.nan, -0.0], dtype)
    found = ops.compute(tf.floordiv, x, y)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[:6]), np.signbit(expected[:6]))
    assert ops.compute(tf.floordiv, x[0], y[0]) == 10


def test_the_remainder_keeps_to_the_division_that_is_exact(ops: Any) -> None:
    x, y = np.array([1.0, -5.0, 5.0, 7.0], "f"), np.array([0.1, np.inf, 2.0, -3.0], "f")
    np.testing.assert_array_equal(
        ops.compute(tf.floormod, x, y), np.array([9.999999e-02, np.inf, 1, -2], "f")
    )
    by_x, by_y = ops.gradients(tf.floormod, x, y)
    np.testing.assert_array_equal(by_x, [1, 1, 1, 1])
    np.testing.assert_array_equal(by_y, [-10, 0, -2, 3])


@pytest.mark.parametrize("function", [tf.floordiv, tf.floormod])
def test_integer_division_by_zero_fails_in_the_run(ops: Any, function: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="Integer division by zero"):
        ops.compute(function, np.array([1, 2]), np.array([1, 0]))


def test_a_division_that_gives_zero_for_zero(ops: Any) -> None:
    x, y = np.array([1.0, 2.0]), np.array([0.0, 4.0])
    np.testing.assert_array_equal(ops.compute(tf.div_no_nan, x, y), [0, 0.5])
    for grad in ops.gradients(tf.div_no_nan, x, y):
        assert np.isfinite(grad).all()


def test_the_gradient_of_a_power_is_finite_at_zero(ops: Any) -> None:
    grads = ops.gradients(tf.pow, np.array([0.0, 2.0]), np.array([2.0, 0.0]))
    np.testing.assert_allclose(grads, [[0, 0], [0, np.log(2)]], rtol=1e-6)


def test_negative_powers_of_integers_are_refused(ops: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        ops.compute(tf.pow, np.array([2, 3]), np.array([-1, 2]))


def test_where_operands_are_equal_the_gradient_goes_to_the_first(ops: Any) -> None:
    same = np.array([1.0, 2.0])
    for function in (tf.maximum, tf.minimum):
        first, second = ops.gradients(function, same, same)
        np.testing.assert_array_equal(first, [1, 1])
        np.testing.assert_array_equal(second, [0, 0])


@pytest.mark.parametrize(
    "function", [tf.add, tf.subtract, tf.multiply, tf.divide, tf.maximum, tf.pow, tf.floordiv]
)
def test_dtypes_are_never_promoted_between_tensors(function: Any) -> None:
    with pytest.raises(
        TypeError, match=r"Input 'y' of '\w+' Op has type int32 that does not match type float32"
    ):
        function(tf.constant([1.0]), tf.constant([1]))


def test_numbers_and_arrays_take_the_dtype_of_the_tensor() -> None:
    x = tf.constant([1.0, 2.0], tf.float64)
    assert (x * 2).dtype is tf.float64
    assert tf.add(1, x).dtype is tf.float64
    assert (x + np.array([1, 2])).dtype is tf.float64
    with pytest.raises(TypeError, match="Expected int32"):
        tf.add(tf.constant([1]), 1.5)


def test_shapes_that_do_not_broadcast_are_named() -> None:
    text = r"must be equal, but are 2 and 3 for 'Add' \(op: 'AddV2'\) with input shapes: \[2\], \[3\]"
    with pytest.raises(ValueError, match=text):
        tf.add(tf.constant([1.0, 2.0]), tf.constant([1.0, 2.0, 3.0]))


def test_shapes_that_turn_out_not_to_fit_fail_in_the_run(ops: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        ops.compute(tf.add, np.ones(2), np.ones(3), known="nothing")


def test_strings_are_joined(ops: Any) -> None:
    joined = ops.evaluate(tf.add(tf.constant(["a", "b"]), "c"))
    assert joined.tolist() == [b"ac", b"bc"]


def test_bools_are_not_added() -> None:
    with pytest.raises(TypeError, match="parameter 'x' has DataType bool"):
        tf.add(tf.constant([True]), True)


def test_complex_numbers_multiply(ops: Any) -> None:
    x = np.array([1 + 2j], np.complex64)
    np.testing.assert_array_equal(ops.compute(tf.multiply, x, x), [-3 + 4j])


@pytest.mark.parametrize("count", [1, 2, 5])
def test_add_n(ops: Any, count: int) -> None:
    arrays = [np.arange(4.0) + i for i in range(count)]
    ops.agree(lambda *x: tf.add_n(list(x)), sum(arrays), *arrays)
    ops.differentiate(lambda *x: tf.add_n(list(x)), *arrays)


def test_add_n_needs_one_shape_and_one_dtype() -> None:
    a = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match="at least one Tensor"):
        tf.add_n([])
    with pytest.raises(TypeError, match="'inputs' has DataType string"):
        tf.add_n([tf.constant("a")])
    with pytest.raises(TypeError, match="don't all match"):
        tf.add_n([a, tf.constant([1, 2])])
    with pytest.raises(ValueError, match="must be equal"):
        tf.add_n([a, tf.constant([1.0])])


@pytest.mark.parametrize("shapes", [((2, 3), (1, 3)), ((1, 3), (2, 3)), ((2, 3), (3,)), ((), (1,))])
@pytest.mark.parametrize("known", ["rank", "nothing"])
def test_add_n_broadcasts_nothing(ops: Any, shapes: Any, known: str) -> None:
    x, y = map(np.ones, shapes)
    for arrays in ((x, y), (x, x, y), (y, x, x)):
        if known == "nothing" or x.ndim == y.ndim:
            with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
                ops.compute(lambda *values: tf.add_n(list(values)), *arrays, known=known)


def test_the_squared_difference_of_complex_numbers_is_real(ops: Any) -> None:
    x, y = np.array([1 + 2j, 0]), np.array([3 - 1j, 1j])
    ops.agree(tf.squared_difference, np.abs(x - y) ** 2 + 0j, x, y)


def test_of_two_numbers_the_first_decides(ops: Any) -> None:
    found = ops.evaluate(tf.add(1.5, 2))
    assert (found, found.dtype) == (3.5, np.float32)
