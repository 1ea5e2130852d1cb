"""Activation functions, each with a fused gradient: relu and its kin, softplus, gelu, softmax."""

from __future__ import annotations

from functools import lru_cache
from math import pi
from math import sqrt as _root
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import renamed_argument, static_int
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.kernels import special
from asyncmon.graph.kernels.arrays import Array, own
from asyncmon.graph.ops.families import activation
from asyncmon.graph.ops.functions import sigmoid

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor

    Gradients = list[Tensor | None]

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "log_softmax",
    "relu",
    "relu6",
    "selu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
]


def _into(out: Array | None, value: Any) -> Any:
    if out is None:
        return value
    np.copyto(out, value)
    return out


# --- relu -----------------------------------------------------------------------------------------


_ROW = 1 << 13  # elements


def _relu(x: Array, out: Array | None = None) -> Any:
    if x.size < 4 * _ROW or not x.flags.c_contiguous:
        return np.maximum(x, _zero(x.dtype), out=out)
    out = np.empty(x.shape, x.dtype) if out is None else out
    if not out.flags.c_contiguous:
        return np.maximum(x, _zero(x.dtype), out=out)
    return _relu_by_rows(x.reshape(-1), out.reshape(-1)).reshape(x.shape)


def _relu_by_rows(x: Array, out: Array) -> Array:
    """Do so for a long vector: of two arrays, numpy's maximum is three times as fast."""
    zeros = _zeros(x.dtype)
    rest = x.size % _ROW
    whole = x.size - rest
    np.maximum(x[:whole].reshape(-1, _ROW), zeros, out=out[:whole].reshape(-1, _ROW))
    np.maximum(x[whole:], zeros[:rest], out=out[whole:])
    return out


@lru_cache(maxsize=64)
def _zeros(dtype: np.dtype[Any]) -> Array:
    return np.zeros(_ROW, dtype)


def _relu_grad(grad: Array, features: Array, out: Array | None = None) -> Any:
    return np.multiply(grad, np.greater(features, _zero(features.dtype)), out)


@lru_cache(maxsize=64)
def _zero(dtype: np.dtype[Any]) -> Array:
    return np.zeros((), dtype)  # a Python 0 is converted at every call


def _relu_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("ReluGrad", (grad, op.inputs[1])), None]


register(
    OpDef(
        "Relu",
        _relu,
        rules.unary(rules.REALS, "features"),
        lambda op, grad: [create_op("ReluGrad", (grad, op.outputs[0]))],
        elementwise=True,
    )
)
register(OpDef("ReluGrad", _relu_grad, rules.like_first, _relu_grad_gradient, elementwise=True))


def relu(features: Any, name: str | None = None) -> Tensor:
    """Return ``max(x, 0)``. TF1: ``tf.nn.relu``."""
    return create_op("Relu", (features,), None, name)


def _relu6_grad(grad: Array, features: Array, out: Array | None = None) -> Any:
    inside = np.logical_and(np.greater(features, 0), np.less(features, 6))
    return np.multiply(grad, inside, out=out)


register(
    OpDef(
        "Relu6",
        lambda x, out=None: np.clip(x, 0, 6, out=out),
        rules.unary(rules.REALS, "features"),
        lambda op, grad: [create_op("Relu6Grad", (grad, op.outputs[0]))],
        elementwise=True,
    )
)
register(
    OpDef(
        "Relu6Grad",
        _relu6_grad,
        rules.like_first,
        lambda op, grad: [create_op("Relu6Grad", (grad, op.inputs[1])), None],
        elementwise=True,
    )
)


def relu6(features: Any, name: str | None = None) -> Tensor:
    """Return ``min(max(x, 0), 6)``. TF1: ``tf.nn.relu6``."""
    return create_op("Relu6", (features,), None, name)


def _leaky_relu(x: Array, *, alpha: float, out: Array | None = None) -> Any:
    if alpha <= 1:
        return np.maximum(x, np.multiply(x, x.dtype.type(alpha)), out=out)
    return _into(out, np.where(np.greater(x, 0), x, np.multiply(x, x.dtype.type(alpha))))


def _leaky_relu_grad(grad: Array, features: Array, *, alpha: float, out: Array | None = None) -> Any:
    positive = np.greater(features, 0)
    return np.multiply(grad, np.where(positive, grad.dtype.type(1), grad.dtype.type(alpha)), out=out)


def _leaky_relu_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("LeakyReluGrad", (grad, op.inputs[1]), op.attrs), None]


register(
    OpDef(
        "LeakyRelu",
        _leaky_relu,
        rules.unary(rules.FLOATS, "features"),
        lambda op, grad: [create_op("LeakyReluGrad", (grad, op.inputs[0]), op.attrs)],
        elementwise=True,
    )
)
register(
    OpDef(
        "LeakyReluGrad", _leaky_relu_grad, rules.like_first, _leaky_relu_grad_gradient, elementwise=True
    )
)


def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """Return ``x`` where it is positive, ``alpha * x`` elsewhere.

    TF1: ``tf.nn.leaky_relu``; integers give float32.
    """
    x = convert_to_tensor(features)
    if x.dtype.is_integer:
        x = create_op("Cast", (x,), {"dtype": rules.FLOATS[1]})
    return create_op("LeakyRelu", (x,), {"alpha": float(alpha)}, name)


# --- elu, selu: smooth below zero -----------------------------------------------------------------

_SELU_SCALE = 1.0507009873554805
_SELU_ALPHA = 1.6732632423543772


def _below(x: Array) -> Any:
    """``exp(x) - 1`` for negative x, 0 elsewhere, without overflow."""
    low = np.minimum(x, 0)
    return np.expm1(low, out=own(low))


def _elu(x: Array, out: Array | None = None) -> Any:
    low = _below(x)
    return np.add(np.maximum(x, 0), low, out=own(low) if out is None else out)


def _elu_grad(grad: Array, outputs: Array, out: Array | None = None) -> Any:
    slope = np.minimum(outputs, 0)
    slope = np.add(slope, 1, out=own(slope))
    return np.multiply(slope, grad, out=own(slope) if out is None else out)


def _elu_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    inner, y = op.inputs
    below = create_op("Cast", (y < 0,), {"dtype": y.dtype})
    return [create_op("EluGrad", (grad, y)), grad * inner * below]


register(
    OpDef(
        "Elu",
        _elu,
        rules.unary(rules.FLOATS, "features"),
        lambda op, grad: [create_op("EluGrad", (grad, op.outputs[0]))],
        elementwise=True,
    )
)
register(OpDef("EluGrad", _elu_grad, rules.like_first, _elu_grad_gradient, elementwise=True))


def elu(features: Any, name: str | None = None) -> Tensor:
    """Return ``x`` where it is positive, ``exp(x) - 1`` elsewhere. TF1: ``tf.nn.elu``."""
    return create_op("Elu", (features,), None, name)


def _selu(x: Array, out: Array | None = None) -> Any:
    low = np.multiply(_below(x), _SELU_ALPHA)
    value = np.add(np.maximum(x, 0), low, out=out)
    return np.multiply(value, _SELU_SCALE, out=own(value))


def _selu_gradient(grad: Tensor, x: Tensor, y: Tensor) -> Tensor:
    slope = create_op("Minimum", (y, convert_to_tensor(0, y.dtype))) + _SELU_SCALE * _SELU_ALPHA
    flat = convert_to_tensor(_SELU_SCALE, y.dtype)
    return grad * create_op("SelectV2", (y < 0, slope, flat))


selu = activation(
    "selu",
    "Selu",
    _selu,
    rules.FLOATS,
    _selu_gradient,
    "Return the scaled, self-normalising :func:`elu`.",
)


# --- softplus, softsign, swish, gelu --------------------------------------------------------------


def _softplus(x: Array, out: Array | None = None) -> Any:
    return np.logaddexp(x, x.dtype.type(0), out=out)


softplus = activation(
    "softplus",
    "Softplus",
    _softplus,
    rules.FLOATS,
    lambda g, x, y: g * sigmoid(x),
    "Return ``log(1 + exp(x))``.",
)


def _softsign(x: Array, out: Array | None = None) -> Any:
    size = np.absolute(x)
    return np.divide(x, np.add(size, 1, out=own(size)), out=out)


def _softsign_gradient(grad: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return grad / create_op("Square", (create_op("Abs", (x,)) + 1,))


softsign = activation(
    "softsign", "Softsign", _softsign, rules.FLOATS, _softsign_gradient, "Return ``x / (1 + |x|)``."
)


def swish(features: Any, beta: Any = 1.0) -> Tensor:
    """Return ``x * sigmoid(beta * x)``. TF1: ``tf.nn.swish``."""
    x = convert_to_tensor(features)
    return x * sigmoid(x * beta)


def _gelu(x: Array, *, approximate: bool, out: Array | None = None) -> Any:
    share = _gelu_share(x, approximate)
    return np.multiply(share, x, out=own(share) if out is None else out)


def _gelu_share(x: Array, approximate: bool) -> Any:
    """The weight of x in gelu(x): the normal distribution function, or its tanh approximation."""
    if approximate:
        share = np.tanh(_root(2 / pi) * (x + 0.044715 * x * x * x))
    else:
        share = special.erf(np.multiply(x, _root(0.5)))
    share = np.add(share, 1, out=own(share))
    return np.multiply(share, 0.5, out=own(share))


def _gelu_grad(grad: Array, x: Array, *, approximate: bool, out: Array | None = None) -> Any:
    share = _gelu_share(x, approximate)
    if approximate:
        density = _root(8 / pi) * share * (1 - share) * (1 + 3 * 0.044715 * x * x)
    else:
        density = np.exp(-0.5 * x * x) * _root(0.5 / pi)
    return np.multiply(share + x * density, grad, out=out)


def _gelu_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("GeluGrad", (grad, op.inputs[0]), op.attrs)]


def _gelu_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    given, x = op.inputs
    if op.attrs["approximate"]:  # the share of x, sigmoid(2u), and its derivatives
        inner = create_op("Tanh", (_root(2 / pi) * (x + 0.044715 * x * x * x),))
        slope = _root(2 / pi) * (1 + 3 * 0.044715 * x * x)
        bend = _root(2 / pi) * 3 * 0.044715 * x * x
        curve = (1 - inner * inner) * (slope + bend - x * inner * slope * slope)
    else:
        curve = _root(0.5 / pi) * create_op("Exp", (-0.5 * x * x,)) * (2 - x * x)
    return [create_op("GeluGrad", (grad, x), op.attrs), grad * given * curve]


register(OpDef("Gelu", _gelu, rules.unary(rules.FLOATS, "features"), _gelu_gradient, elementwise=True))
register(OpDef("GeluGrad", _gelu_grad, rules.like_first, _gelu_grad_gradient, elementwise=True))


def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """Return ``x`` times the normal distribution function of ``x``. TF 2: ``tf.nn.gelu``.

    Args:
        features: a tensor of floats.
        approximate: use the tanh approximation of the distribution function.
        name: the node's name.
    """
    return create_op("Gelu", (features,), {"approximate": bool(approximate)}, name)


# --- softmax --------------------------------------------------------------------------------------


def _softmax(x: Array, *, axis: int, out: Array | None = None) -> Any:
    if not x.size:
        return np.empty_like(x) if out is None else out
    value = np.subtract(x, np.maximum.reduce(x, axis=axis, keepdims=True), out=out)
    np.exp(value, out=value)
    return np.divide(value, np.add.reduce(value, axis=axis, keepdims=True), out=value)


def _log_softmax(x: Array, *, axis: int, out: Array | None = None) -> Any:
    if not x.size:
        return np.empty_like(x) if out is None else out
    value = np.subtract(x, np.maximum.reduce(x, axis=axis, keepdims=True), out=out)
    total = np.add.reduce(np.exp(value), axis=axis, keepdims=True)
    return np.subtract(value, np.log(total, out=total), out=value)


def _softmax_spec(x: Spec, *, axis: int) -> Spec:
    rules.check_dtype(x.dtype, rules.FLOATS, "logits")
    if x.shape is not None:
        rules.with_rank_at_least(x.shape, 1)
        rules.normalize_axis(axis, len(x.shape))
    return Spec(x.dtype, x.shape)


def _softmax_gradient(op: Operation, grad: Tensor) -> Gradients:
    y = op.outputs[0]
    return [(grad - _kept_sum(grad * y, op)) * y]


def _log_softmax_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [grad - _kept_sum(grad, op) * create_op("Exp", (op.outputs[0],))]


def _kept_sum(x: Tensor, op: Operation) -> Tensor:
    return create_op("Sum", (x,), {"axis": (op.attrs["axis"],), "keepdims": True})


register(OpDef("Softmax", _softmax, _softmax_spec, _softmax_gradient, out=True))
register(OpDef("LogSoftmax", _log_softmax, _softmax_spec, _log_softmax_gradient, out=True))


def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return ``exp(x)`` scaled to add up to 1 along an axis, by default the last.

    TF1: ``tf.nn.softmax``.
    """
    return create_op("Softmax", (logits,), _along(axis, dim), name)


def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Return the logarithm of :func:`softmax`, without underflow. TF1: ``tf.nn.log_softmax``."""
    return create_op("LogSoftmax", (logits,), _along(axis, dim), name)


def _along(axis: Any, dim: Any) -> dict[str, int]:
    axis = renamed_argument("axis", axis, "dim", dim)
    return {"axis": -1 if axis is None else static_int(axis, "axis")}
