"""Activation functions: values, both derivatives, extremes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

X = np.array([[-2.5, -1.1, -0.3], [0.4, 1.2, 7.5]])
_erf = np.vectorize(math.erf)
nn = tf.nn


def _softmax(x: Any, axis: int = -1) -> Any:
    exps = np.exp(x - x.max(axis, keepdims=True))
    return exps / exps.sum(axis, keepdims=True)


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _selu(x: Any) -> Any:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))


CASES: list[tuple[str, Any, Any]] = [
    ("relu", nn.relu, lambda x: np.maximum(x, 0)),
    ("relu6", nn.relu6, lambda x: np.clip(x, 0, 6)),
    ("leaky_relu", nn.leaky_relu, lambda x: np.where(x > 0, x, 0.2 * x)),
    ("leaky_relu steep", lambda x: nn.leaky_relu(x, 2.0), lambda x: np.where(x > 0, x, 2 * x)),
    ("elu", nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    ("selu", nn.selu, _selu),
    ("softplus", nn.softplus, lambda x: np.log1p(np.exp(x))),
    ("softsign", nn.softsign, lambda x: x / (1 + np.abs(x))),
    ("swish", nn.swish, lambda x: x / (1 + np.exp(-x))),
    ("sigmoid", nn.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    ("tanh", nn.tanh, np.tanh),
    ("softmax", nn.softmax, _softmax),
    ("softmax 0", lambda x: nn.softmax(x, 0), lambda x: _softmax(x, 0)),
    ("log_softmax", nn.log_softmax, lambda x: np.log(_softmax(x))),
    ("log_softmax 0", lambda x: nn.log_softmax(x, axis=0), lambda x: np.log(_softmax(x, 0))),
]
GELUS: list[tuple[str, Any, Any]] = [
    ("gelu", nn.gelu, lambda x: 0.5 * x * (1 + _erf(x / np.sqrt(2)))),
    ("gelu tanh", lambda x: nn.gelu(x, approximate=True), _gelu_tanh),
]


@pytest.mark.parametrize(("name", "function", "reference"), CASES + GELUS, ids=lambda c: str(c)[:16])
def test_values(ops: Any, name: str, function: Any, reference: Any) -> None:
    ops.agree(function, reference(X), X, rtol=1e-12)
    ops.agree(function, reference(X), X.astype("f"), rtol=2e-6)
    ops.agree(function, reference(X), X.astype("e"), rtol=5e-3, known=("all",))


@pytest.mark.parametrize(("name", "function", "reference"), CASES, ids=lambda c: str(c)[:16])
def test_both_derivatives(ops: Any, name: str, function: Any, reference: Any) -> None:
    ops.differentiate(function, X, order=2)


@pytest.mark.parametrize(("name", "function", "reference"), GELUS, ids=lambda c: str(c)[:16])
def test_both_derivatives_of_gelu(ops: Any, name: str, function: Any, reference: Any) -> None:
    ops.differentiate(function, X, order=2)


def test_gradients_have_gradients(ops: Any) -> None:
    for function in (nn.sigmoid, nn.tanh, nn.elu, nn.relu, nn.softplus):
        ops.differentiate(lambda x, f=function: tf.square(f(x)), X, order=2)


def test_extremes(ops: Any) -> None:
    x = np.array([-1e4, 1e4], np.float32)
    assert ops.compute(nn.softplus, x).tolist() == [0, 1e4]
    assert ops.compute(nn.softmax, x).tolist() == [0, 1]
    assert ops.compute(nn.log_softmax, x).tolist() == [-2e4, 0]
    assert ops.compute(nn.elu, x).tolist() == [-1, 1e4]


def test_integers(ops: Any) -> None:
    x = np.array([-2, 3], np.int32)
    assert ops.compute(nn.relu, x).tolist() == [0, 3]
    np.testing.assert_allclose(ops.compute(nn.leaky_relu, x), [-0.4, 3], rtol=1e-6)
    with pytest.raises(TypeError, match="Value passed to parameter 'features' has DataType int32"):
        nn.elu(tf.constant([1]))
    with pytest.raises(TypeError, match="Value passed to parameter 'logits' has DataType int32"):
        nn.softmax(tf.constant([1]))


def test_softmax_needs_a_dimension() -> None:
    with pytest.raises(ValueError, match="Shape must be at least rank 1 but is rank 0"):
        nn.softmax(tf.constant(1.0))
    with pytest.raises(ValueError, match="Invalid axis 2"):
        nn.softmax(tf.constant([1.0]), 2)
    with pytest.raises(ValueError, match="Cannot specify both"):
        nn.softmax(tf.constant([1.0]), axis=0, dim=0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32])
@pytest.mark.parametrize("shape", [(1 << 15,), (200, 300), (3, 129, 257)])
def test_relu_of_large_arrays(ops: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) * 10).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        x.reshape(-1)[[0, -1]] = np.nan
    for array in (x, x.T, x[..., ::2]):
        np.testing.assert_array_equal(ops.compute(nn.relu, array), np.maximum(array, 0))


@pytest.mark.parametrize("function", [nn.softmax, nn.log_softmax])
@pytest.mark.parametrize(("shape", "axis"), [((2, 0), -1), ((0,), 0), ((0, 3), 0), ((0, 3), 1)])
def test_softmax_of_nothing(ops: Any, function: Any, shape: Any, axis: int) -> None:
    x = np.zeros(shape, "f")
    ops.agree(lambda a: function(a, axis), x, x)
    (grad,) = ops.gradients(lambda a: function(a, axis), x)
    assert grad.shape == shape


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu"])
def test_the_second_derivative_of_a_broken_line_is_zero(ops: Any, name: str) -> None:
    x = tf.constant([-1.0, 2.0, 7.0])
    (first,) = tf.gradients(getattr(tf.nn, name)(x), x)
    (second,) = tf.gradients(first, x)
    assert ops.evaluate(second).tolist() == [0.0, 0.0, 0.0]
