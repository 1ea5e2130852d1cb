"""Functions of one tensor: values against numpy, gradients against differences, dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

ANY = np.array([[-1.7, -0.6, 0.3], [0.8, 1.4, 2.3]])
POSITIVE = np.array([[0.2, 0.7, 1.1], [1.9, 2.4, 5.0]])
UNIT = np.array([[-0.9, -0.3, 0.1], [0.4, 0.6, 0.8]])


def _each(function: Any) -> Any:
    return np.vectorize(function, otypes=[np.float64])


SMOOTH = [
    (tf.negative, np.negative, ANY),
    (tf.abs, np.abs, ANY),
    (tf.sign, np.sign, ANY),
    (tf.exp, np.exp, ANY),
    (tf.expm1, np.expm1, ANY),
    (tf.log, np.log, POSITIVE),
    (tf.log1p, np.log1p, POSITIVE),
    (tf.sqrt, np.sqrt, POSITIVE),
    (tf.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE),
    (tf.square, np.square, ANY),
    (tf.reciprocal, np.reciprocal, ANY),
    (tf.sin, np.sin, ANY),
    (tf.cos, np.cos, ANY),
    (tf.tan, np.tan, UNIT),
    (tf.tanh, np.tanh, ANY),
    (tf.sigmoid, lambda x: 1 / (1 + np.exp(-x)), ANY),
    (tf.erf, _each(math.erf), ANY),
    (tf.erfc, _each(math.erfc), ANY),
    (tf.conj, np.conj, ANY),
]
STEPS = [
    (tf.floor, np.floor, ANY),
    (tf.ceil, np.ceil, ANY),
    (tf.round, np.rint, np.array([-1.5, -0.5, 0.5, 1.5, 2.5])),
    (tf.rint, np.rint, np.array([-1.5, -0.5, 0.5, 1.5, 2.5])),
]


def _name(case: Any) -> str:
    return str(getattr(case, "__name__", ""))


@pytest.mark.parametrize(("function", "reference", "x"), SMOOTH + STEPS, ids=_name)
def test_values_are_numpys_in_each_float_dtype(ops: Any, function: Any, reference: Any, x: Any) -> None:
    ops.agree(function, reference(x), x, rtol=1e-12)
    ops.agree(function, reference(x), x.astype("f"), rtol=1e-5, known=("all",))
    ops.agree(function, reference(x), x.astype("e"), rtol=1e-2, known=("all",))


@pytest.mark.parametrize(("function", "reference", "x"), SMOOTH, ids=_name)
def test_gradients_are_those_of_differences(ops: Any, function: Any, reference: Any, x: Any) -> None:
    ops.differentiate(function, x)


@pytest.mark.parametrize(("function", "reference", "x"), STEPS, ids=_name)
def test_steps_let_no_gradient_through(function: Any, reference: Any, x: Any) -> None:
    a = tf.constant(x)
    assert tf.gradients(function(a), a) == [None]


def test_the_sign_has_a_gradient_of_zeros(ops: Any) -> None:
    (grad,) = ops.gradients(tf.sign, ANY)
    np.testing.assert_array_equal(grad, np.zeros_like(ANY))


@pytest.mark.parametrize("function", [tf.negative, tf.abs, tf.sign, tf.square, tf.round])
def test_integers_stay_integers(ops: Any, function: Any) -> None:
    value = ops.compute(function, np.array([-3, 0, 4], np.int32))
    assert value.dtype == np.int32


@pytest.mark.parametrize("function", [tf.exp, tf.log, tf.sqrt, tf.floor, tf.sigmoid, tf.erf])
def test_integers_are_refused_where_the_original_refuses_them(function: Any) -> None:
    with pytest.raises(TypeError, match="has DataType int32 not in list of allowed values: float16"):
        function(tf.constant([1, 2]))


def test_names_are_the_op_types() -> None:
    x = tf.constant([1.0])
    assert tf.exp(x).name == "Exp:0"
    assert tf.negative(x).name == "Neg:0"
    assert tf.exp(x, name="e").name == "e:0"


def test_scalars_come_out_as_scalars(ops: Any) -> None:
    for function in (tf.sigmoid, tf.rsqrt, tf.erf, tf.tanh):
        assert np.shape(ops.compute(function, np.float32(0.5))) == ()


def test_extreme_values_do_not_overflow(ops: Any) -> None:
    x = np.array([-1000.0, 1000.0, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(ops.compute(tf.sigmoid, x), [0, 1, 1, 0])
    np.testing.assert_array_equal(ops.compute(tf.erf, x), [-1, 1, 1, -1])
    np.testing.assert_array_equal(ops.compute(tf.erfc, x), [2, 0, 0, 2])


@pytest.mark.parametrize("function", [tf.sqrt, tf.rsqrt])
def test_an_infinite_slope_counts_only_where_a_gradient_comes(ops: Any, function: Any) -> None:
    def guarded(x: Any) -> Any:
        return tf.where(x > 0.0, function(x), x)

    x = np.array([0.0, 0.25])
    np.testing.assert_array_equal(
        ops.gradients(guarded, x)[0], [1.0, 1.0 if function is tf.sqrt else -4.0]
    )
    assert np.isinf(ops.gradients(function, x)[0][0])
