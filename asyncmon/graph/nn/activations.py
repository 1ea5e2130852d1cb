"""Activation functions."""

from __future__ import annotations

from functools import lru_cache, partial
from math import pi
from math import sqrt as _root
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import axis_of, convert_to_tensor, create_op, name_scope
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import FLOATS, REALS
from asyncmon.graph.numerics.arrays import Array, as_out
from asyncmon.graph.ops import families
from asyncmon.graph.ops.axes import along
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.elementwise import abs, erf, exp, minimum, sigmoid, square, tanh
from asyncmon.graph.ops.reduce import reduce_sum

activation = partial(families.activation, __name__)

_SELU_SCALE = 1.0507009873554805
_SELU_SLOPE = 1.6732632423543772 * _SELU_SCALE


@lru_cache(maxsize=64)
def _zero(dtype: np.dtype[Any]) -> Array:
    return np.zeros((), dtype)  # a Python 0 is converted at every call: 2 us


def _relu(x: Array, out: Array | None = None) -> Any:
    return np.maximum(x, _zero(x.dtype), out=out)


def _relu_grad(grad: Array, features: Array, out: Array | None = None) -> Any:
    return np.multiply(grad, np.greater(features, _zero(features.dtype)), out)


def _elu(x: Array, out: Array | None = None) -> Any:
    return np.add(np.maximum(x, 0), _expm1_below(x), out=out)


def _selu(x: Array, out: Array | None = None) -> Any:
    low = np.multiply(_expm1_below(x), _SELU_SLOPE / _SELU_SCALE)
    value = np.add(np.maximum(x, 0), low, out=out)
    return np.multiply(value, _SELU_SCALE, out=as_out(value))


def _expm1_below(x: Array) -> Any:
    """Return ``exp(x) - 1`` for negative x, 0 elsewhere, without overflow."""
    low = np.minimum(x, 0)
    return np.expm1(low, out=as_out(low))


def _softsign(x: Array, out: Array | None = None) -> Any:
    size = np.absolute(x)
    return np.divide(x, np.add(size, 1, out=as_out(size)), out=out)


def _where_positive(grad: Tensor, features: Tensor) -> Tensor:
    return create_op("ReluGrad", (grad, features))


def _selu_gradient(grad: Tensor, x: Tensor, y: Tensor) -> Tensor:
    flat = convert_to_tensor(_SELU_SCALE, y.dtype)
    return grad * create_op("SelectV2", (y < 0, y + _SELU_SLOPE, flat))


# fmt: off
register(OpDef("ReluGrad", _relu_grad, rules.like_first,
    lambda op, grad: [_where_positive(grad, op.inputs[1]), create_op("ZerosLike", (op.inputs[1],))],
    elementwise=True))
relu = activation("relu", "Relu", _relu, REALS, lambda g, x, y: _where_positive(g, y),
    "Return ``max(x, 0)``.")
relu6 = activation("relu6", "Relu6", lambda x, out=None: np.clip(x, 0, 6, out=out), REALS,
    lambda g, x, y: _where_positive(_where_positive(g, y), 6 - y), "Return ``min(max(x, 0), 6)``.")
elu = activation("elu", "Elu", _elu, FLOATS, lambda g, x, y: g * (minimum(0, y) + 1),
    "Return ``x`` where it is positive, ``exp(x) - 1`` elsewhere.")
selu = activation("selu", "Selu", _selu, FLOATS, _selu_gradient,
    "Return the scaled, self-normalising :func:`elu`.")
softplus = activation("softplus", "Softplus",
    lambda x, out=None: np.logaddexp(x, x.dtype.type(0), out=out), FLOATS,
    lambda g, x, y: g * sigmoid(x), "Return ``log(1 + exp(x))``.")
softsign = activation("softsign", "Softsign", _softsign, FLOATS,
    lambda g, x, y: g / square(abs(x) + 1), "Return ``x / (1 + |x|)``.")
# fmt: on


def swish(features: Any, beta: Any = 1.0) -> Tensor:
    """Return ``x * sigmoid(beta * x)``. TF1: ``tf.nn.swish``."""
    x = convert_to_tensor(features)
    return x * sigmoid(x * beta)


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """Return ``x`` times the normal distribution function of ``x``. TF 2: ``tf.nn.gelu``.

    Args:
        features: a tensor of floats.
        approximate: use the tanh approximation of the distribution function.
        name: the node's name.
    """
    x = convert_to_tensor(features)
    rules.check_dtype(x.dtype, FLOATS, "features")
    with name_scope(name, "Gelu", [x]) as scope:
        inner = tanh(_root(2 / pi) * (x + 0.044715 * x * x * x)) if approximate else erf(x * _root(0.5))
        return create_op("Mul", ((inner + 1) * 0.5, x), None, scope)


# --- leaky_relu -----------------------------------------------------------------------------------


def _leaky_relu(x: Array, *, alpha: float, out: Array | None = None) -> Any:
    select = np.maximum if alpha <= 1 else np.minimum
    return select(x, np.multiply(x, x.dtype.type(alpha)), out=out)


def _leaky_relu_grad(grad: Array, x: Array, *, alpha: float, out: Array | None = None) -> Any:
    slope = np.where(np.greater(x, _zero(x.dtype)), x.dtype.type(1), x.dtype.type(alpha))
    return np.multiply(grad, slope, out=out)


def _leaky(op: Operation, grad: Tensor, x: Tensor) -> Tensor:
    return create_op("LeakyReluGrad", (grad, x), op.attrs)


register(OpDef("LeakyRelu", _leaky_relu, rules.unary(FLOATS, "features"),
    lambda op, grad: [_leaky(op, grad, op.inputs[0])], elementwise=True))  # fmt: skip
register(OpDef("LeakyReluGrad", _leaky_relu_grad, rules.like_first, lambda op, grad:
    [_leaky(op, grad, op.inputs[1]), create_op("ZerosLike", (op.inputs[1],))],
    elementwise=True))  # fmt: skip


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """Return ``x`` where it is positive, ``alpha * x`` elsewhere.

    TF1: ``tf.nn.leaky_relu``; integers give float32.
    """
    x = convert_to_tensor(features)
    if x.dtype.is_integer:
        x = cast(x, FLOATS[1])
    return create_op("LeakyRelu", (x,), {"alpha": float(alpha)}, name)


# --- softmax --------------------------------------------------------------------------------------


def _softmax(x: Array, *, axis: int, out: Array | None = None) -> Any:
    value = below_peak(x, axis, out)
    np.exp(value, out=value)
    return np.divide(value, np.add.reduce(value, axis=axis, keepdims=True), out=value)


def _log_softmax(x: Array, *, axis: int, out: Array | None = None) -> Any:
    value = below_peak(x, axis, out)
    total = np.add.reduce(np.exp(value), axis=axis, keepdims=True)
    return np.subtract(value, np.log(total, out=total), out=value)


def below_peak(x: Array, axis: int, out: Array | None = None) -> Any:
    """Return an array minus its maximum along an axis."""
    peak = np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf)
    return np.subtract(x, peak, out=out, order="C")  # also of a transposed view: losses reshape it


def _softmax_rule(x: Spec, *, axis: int) -> Spec:
    rules.check_dtype(x.dtype, FLOATS, "logits")
    if x.shape is not None:
        rules.with_rank_at_least(x.shape, 1)
        rules.normalize_axis(axis, len(x.shape))
    return Spec(x.dtype, x.shape)


def softmax_gradient(y: Tensor, grad: Tensor, axis: int = -1) -> Tensor:
    """Return the gradient of the logits of a softmax ``y``."""
    return (grad - reduce_sum(grad * y, axis, True)) * y


register(OpDef("Softmax", _softmax, _softmax_rule,
    lambda op, grad: [softmax_gradient(op.outputs[0], grad, **op.attrs)], out=True))  # fmt: skip
register(OpDef("LogSoftmax", _log_softmax, _softmax_rule, lambda op, grad:
    [grad - reduce_sum(grad, op.attrs["axis"], True) * exp(op.outputs[0])], out=True))  # fmt: skip


def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return ``exp(x) / sum(exp(x))`` along an axis, by default the last.

    TF1: ``tf.nn.softmax``.
    """
    return _along("Softmax", logits, axis, dim, name)


def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return the logarithm of :func:`softmax`, without underflow. TF1: ``tf.nn.log_softmax``."""
    return _along("LogSoftmax", logits, axis, dim, name)


def _along(op_type: str, logits: Any, axis: Any, dim: Any, name: str | None) -> Tensor:
    axis = renamed_argument("axis", axis, "dim", dim)

    def apply(x: Tensor, axis: int) -> Tensor:
        return create_op(op_type, (x,), {"axis": axis}, name)

    return along(apply, logits, -1 if axis is None else axis_of(axis))
