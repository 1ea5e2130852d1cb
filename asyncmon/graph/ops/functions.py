"""Functions of one tensor, element by element: one line of the table each."""

from __future__ import annotations

from math import pi
from math import sqrt as _root
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.kernels import special
from asyncmon.graph.kernels.arrays import Array, own

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Operation, Tensor

    Gradient = Callable[[Tensor, Tensor, Tensor], Tensor]


class UnaryFunction(Protocol):
    """A public function of one tensor."""

    def __call__(self, x: Any, /, name: str | None = None) -> Tensor:
        """Add the op to the graph of ``x``."""


def unary_function(
    tf_name: str,
    op_type: str,
    kernel: Callable[..., Any],
    allowed: tuple[DType, ...],
    gradient: Gradient | None,
    doc: str,
) -> UnaryFunction:
    """Register an elementwise op of one input and return its public function.

    Args:
        tf_name: the public name.
        op_type: the op type, which is also the default name of nodes.
        kernel: takes the array and ``out=``.
        allowed: the dtypes it is defined for.
        gradient: ``gradient(grad, x, y)``, of the input and the output; None where none flows.
        doc: a sentence for the public function.
    """

    def rule(op: Operation, grad: Tensor) -> list[Tensor | None]:
        return [None if gradient is None else gradient(grad, op.inputs[0], op.outputs[0])]

    register(OpDef(op_type, kernel, rules.unary(allowed), rule, elementwise=True))

    def function(x: Any, name: str | None = None) -> Tensor:
        return create_op(op_type, (x,), None, name)

    def of_features(features: Any, name: str | None = None) -> Tensor:
        return create_op(op_type, (features,), None, name)

    public: UnaryFunction = of_features if tf_name.startswith("nn.") else function
    for each in (function, of_features):
        each.__name__ = each.__qualname__ = tf_name
        each.__doc__ = f"{doc} TF1: ``tf.{tf_name}``."
    return public


# --- sign, powers, exponentials -------------------------------------------------------------------


def _rsqrt(x: Array, out: Array | None = None) -> Any:
    root = np.sqrt(x, out=out)
    return np.reciprocal(root, out=own(root))


def _where_used(grad: Tensor, y: Tensor) -> Tensor:
    """``y``, but 1 where no gradient comes: the slope there counts for nothing, even an infinite one,
    so that ``where(x > 0, sqrt(x), 0)`` can be differentiated at 0."""
    zero, one = create_op("ZerosLike", (grad,)), create_op("OnesLike", (y,))
    return create_op("SelectV2", (create_op("Equal", (grad, zero)), one, y))


negative = unary_function(
    "negative", "Neg", np.negative, rules.NUMBERS, lambda g, x, y: -g, "Return ``-x``."
)
abs = unary_function(
    "abs", "Abs", np.absolute, rules.REALS, lambda g, x, y: g * sign(x), "Return ``|x|``."
)
sign: UnaryFunction = unary_function(
    "sign",
    "Sign",
    np.sign,
    rules.REALS,
    lambda g, x, y: create_op("ZerosLike", (x,)),
    "Return -1, 0 or 1.",
)
exp = unary_function(
    "exp", "Exp", np.exp, rules.SMOOTH, lambda g, x, y: g * y, "Return e to the power ``x``."
)
expm1 = unary_function(
    "expm1",
    "Expm1",
    np.expm1,
    rules.SMOOTH,
    lambda g, x, y: g * exp(x),
    "Return ``exp(x) - 1``, exact near 0.",
)
log = unary_function(
    "log", "Log", np.log, rules.SMOOTH, lambda g, x, y: g / x, "Return the natural logarithm."
)
log1p = unary_function(
    "log1p",
    "Log1p",
    np.log1p,
    rules.SMOOTH,
    lambda g, x, y: g / (x + 1),
    "Return ``log(1 + x)``, exact near 0.",
)
sqrt = unary_function(
    "sqrt",
    "Sqrt",
    np.sqrt,
    rules.SMOOTH,
    lambda g, x, y: g * 0.5 / _where_used(g, y),
    "Return the square root.",
)
rsqrt = unary_function(
    "rsqrt",
    "Rsqrt",
    _rsqrt,
    rules.FLOATS,
    lambda g, x, y: g * -0.5 * (safe := _where_used(g, y)) * safe * safe,
    "Return ``1 / sqrt(x)``.",
)
square = unary_function(
    "square", "Square", np.square, rules.NUMBERS, lambda g, x, y: g * (x * 2), "Return ``x * x``."
)
reciprocal = unary_function(
    "reciprocal",
    "Reciprocal",
    np.reciprocal,
    rules.SMOOTH,
    lambda g, x, y: -g * y * y,
    "Return ``1 / x``.",
)


# --- trigonometry ---------------------------------------------------------------------------------

sin = unary_function(
    "sin", "Sin", np.sin, rules.SMOOTH, lambda g, x, y: g * cos(x), "Return the sine of radians."
)
cos: UnaryFunction = unary_function(
    "cos", "Cos", np.cos, rules.SMOOTH, lambda g, x, y: -g * sin(x), "Return the cosine of radians."
)
tan = unary_function(
    "tan",
    "Tan",
    np.tan,
    rules.SMOOTH,
    lambda g, x, y: g * (y * y + 1),
    "Return the tangent of radians.",
)
asin = unary_function(
    "asin",
    "Asin",
    np.arcsin,
    rules.SMOOTH,
    lambda g, x, y: g * rsqrt(1 - x * x),
    "Return the inverse sine.",
)
acos = unary_function(
    "acos",
    "Acos",
    np.arccos,
    rules.SMOOTH,
    lambda g, x, y: -g * rsqrt(1 - x * x),
    "Return the inverse cosine.",
)
atan = unary_function(
    "atan",
    "Atan",
    np.arctan,
    rules.SMOOTH,
    lambda g, x, y: g / (x * x + 1),
    "Return the inverse tangent.",
)
sinh = unary_function(
    "sinh", "Sinh", np.sinh, rules.SMOOTH, lambda g, x, y: g * cosh(x), "Return the hyperbolic sine."
)
cosh: UnaryFunction = unary_function(
    "cosh", "Cosh", np.cosh, rules.SMOOTH, lambda g, x, y: g * sinh(x), "Return the hyperbolic cosine."
)
asinh = unary_function(
    "asinh",
    "Asinh",
    np.arcsinh,
    rules.SMOOTH,
    lambda g, x, y: g / cosh(y),
    "Return the inverse hyperbolic sine.",
)
acosh = unary_function(
    "acosh",
    "Acosh",
    np.arccosh,
    rules.SMOOTH,
    lambda g, x, y: g / sinh(y),
    "Return the inverse hyperbolic cosine.",
)
atanh = unary_function(
    "atanh",
    "Atanh",
    np.arctanh,
    rules.SMOOTH,
    lambda g, x, y: g / (1 - x * x),
    "Return the inverse hyperbolic tangent.",
)


# --- squashing ------------------------------------------------------------------------------------


def _sigmoid(x: Array, out: Array | None = None) -> Any:
    value = np.negative(x, out=out)
    value = np.exp(value, out=own(value))
    value = np.add(value, 1, out=own(value))
    return np.reciprocal(value, out=own(value))


def _sigmoid_grad(y: Array, grad: Array, out: Array | None = None) -> Any:
    slope = np.subtract(1, y)
    slope = np.multiply(slope, y, out=own(slope))
    return np.multiply(slope, grad, out=own(slope) if out is None else out)


def _tanh_grad(y: Array, grad: Array, out: Array | None = None) -> Any:
    slope = np.multiply(y, y)
    slope = np.subtract(1, slope, out=own(slope))
    return np.multiply(slope, grad, out=own(slope) if out is None else out)


def _slope(op_type: str, y: Tensor, grad: Tensor) -> Tensor:
    return create_op(op_type, (y, grad))


sigmoid = unary_function(
    "sigmoid",
    "Sigmoid",
    _sigmoid,
    rules.SMOOTH,
    lambda g, x, y: _slope("SigmoidGrad", y, g),
    "Return ``1 / (1 + exp(-x))``.",
)
tanh = unary_function(
    "tanh",
    "Tanh",
    np.tanh,
    rules.SMOOTH,
    lambda g, x, y: _slope("TanhGrad", y, g),
    "Return the hyperbolic tangent.",
)


def _sigmoid_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    y, inner = op.inputs
    return [grad * inner * (1 - y * 2), _slope("SigmoidGrad", y, grad)]


def _tanh_grad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    y, inner = op.inputs
    return [grad * inner * y * -2, _slope("TanhGrad", y, grad)]


register(
    OpDef("SigmoidGrad", _sigmoid_grad, rules.like_first, _sigmoid_grad_gradient, elementwise=True)
)
register(OpDef("TanhGrad", _tanh_grad, rules.like_first, _tanh_grad_gradient, elementwise=True))


# --- rounding and special functions ---------------------------------------------------------------


def _round(x: Array, out: Array | None = None) -> Any:
    return np.positive(x, out=out) if x.dtype.kind in "iu" else np.rint(x, out=out)


def _with_out(function: Callable[[Array], Array]) -> Callable[..., Any]:
    def kernel(x: Array, out: Array | None = None) -> Any:
        value = function(x)
        if out is None:
            return value
        np.copyto(out, value)
        return out

    return kernel


floor = unary_function("floor", "Floor", np.floor, rules.FLOATS, None, "Round down.")
ceil = unary_function("ceil", "Ceil", np.ceil, rules.FLOATS, None, "Round up.")
round = unary_function(
    "round", "Round", _round, rules.REALS, None, "Round to the nearest integer, halves to even."
)
rint = unary_function(
    "rint", "Rint", np.rint, rules.FLOATS, None, "Round to the nearest integer, halves to even."
)
erf = unary_function(
    "erf",
    "Erf",
    _with_out(special.erf),
    rules.FLOATS,
    lambda g, x, y: g * (2 / _root(pi)) * exp(-(x * x)),
    "Return the Gauss error function.",
)
erfc = unary_function(
    "erfc",
    "Erfc",
    _with_out(special.erfc),
    rules.FLOATS,
    lambda g, x, y: g * (-2 / _root(pi)) * exp(-(x * x)),
    "Return one minus the Gauss error function.",
)


def _conj(x: Array, out: Array | None = None) -> Any:
    return np.conjugate(x, out=out)


conj: UnaryFunction = unary_function(
    "conj", "Conj", _conj, rules.NUMBERS, lambda g, x, y: conj(g), "Return the complex conjugate."
)
