"""Functions of one tensor, element by element: a row an op."""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from math import sqrt as _root
from typing import Any

import numpy as np

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import Spec
from asyncmon.graph.core.rules import FLOATS, NUMBERS, REALS, SMOOTH
from asyncmon.graph.core.rules import unary as unary_rule
from asyncmon.graph.numerics.arrays import Array, as_out
from asyncmon.graph.ops import special
from asyncmon.graph.ops.families import UnaryFunction, unary


def _rsqrt(x: Array, out: Array | None = None) -> Any:
    root = np.sqrt(x, out=out)
    return np.reciprocal(root, out=as_out(root))


def _sigmoid(x: Array, out: Array | None = None) -> Any:
    value = np.negative(x, out=out)
    value = np.exp(value, out=as_out(value))
    value = np.add(value, 1, out=as_out(value))
    return np.reciprocal(value, out=as_out(value))


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


def _where_used(g: Tensor, y: Tensor) -> Tensor:
    """Return ``y``, but 1 where ``g`` is 0: there even an infinite slope counts for nothing.

    So ``where(x > 0, sqrt(x), 0)`` has a gradient at 0.
    """
    unused = create_op("Equal", (g, create_op("ZerosLike", (g,))))
    return create_op("SelectV2", (unused, create_op("OnesLike", (y,)), y))


def _abs_rule(x: Spec) -> Spec:
    spec: Spec = unary_rule(NUMBERS)(x)
    return Spec(x.dtype.real_dtype, spec.shape)


def _abs_gradient(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_complex:
        raise LookupError(f"abs() of complex numbers has no gradient: {x!r}")
    return g * sign(x)


# fmt: off
negative = unary("negative", "Neg", np.negative, NUMBERS, lambda g, x, y: -g, "Return ``-x``.")
abs = unary("abs", "Abs", np.absolute, NUMBERS, _abs_gradient,
    "Return ``|x|``, a real number.", rule=_abs_rule)
sign: UnaryFunction = unary("sign", "Sign", np.sign, REALS,
    lambda g, x, y: create_op("ZerosLike", (x,)), "Return -1, 0 or 1.")
exp = unary("exp", "Exp", np.exp, SMOOTH, lambda g, x, y: g * y, "Return e to the power ``x``.")
expm1 = unary("expm1", "Expm1", np.expm1, SMOOTH, lambda g, x, y: g * exp(x),
    "Return ``exp(x) - 1``, exact near 0.")
log = unary("log", "Log", np.log, SMOOTH, lambda g, x, y: g / x, "Return the natural logarithm.")
log1p = unary("log1p", "Log1p", np.log1p, SMOOTH, lambda g, x, y: g / (x + 1),
    "Return ``log(1 + x)``, exact near 0.")
sqrt = unary("sqrt", "Sqrt", np.sqrt, SMOOTH, lambda g, x, y: g * 0.5 / _where_used(g, y),
    "Return the square root.")
rsqrt = unary("rsqrt", "Rsqrt", _rsqrt, FLOATS,
    lambda g, x, y: g * -0.5 * (used := _where_used(g, y)) * used * used, "Return ``1 / sqrt(x)``.")
square = unary("square", "Square", np.square, NUMBERS, lambda g, x, y: g * (x * 2), "Return ``x * x``.")
reciprocal = unary("reciprocal", "Reciprocal", np.reciprocal, SMOOTH, lambda g, x, y: -g * y * y,
    "Return ``1 / x``.")

sin = unary("sin", "Sin", np.sin, SMOOTH, lambda g, x, y: g * cos(x), "Return the sine of radians.")
cos: UnaryFunction = unary("cos", "Cos", np.cos, SMOOTH, lambda g, x, y: -g * sin(x),
    "Return the cosine of radians.")
tan = unary("tan", "Tan", np.tan, SMOOTH, lambda g, x, y: g * (y * y + 1),
    "Return the tangent of radians.")
asin = unary("asin", "Asin", np.arcsin, SMOOTH, lambda g, x, y: g * rsqrt(1 - x * x),
    "Return the inverse sine.")
acos = unary("acos", "Acos", np.arccos, SMOOTH, lambda g, x, y: -g * rsqrt(1 - x * x),
    "Return the inverse cosine.")
atan = unary("atan", "Atan", np.arctan, SMOOTH, lambda g, x, y: g / (x * x + 1),
    "Return the inverse tangent.")
sinh = unary("sinh", "Sinh", np.sinh, SMOOTH, lambda g, x, y: g * cosh(x),
    "Return the hyperbolic sine.")
cosh: UnaryFunction = unary("cosh", "Cosh", np.cosh, SMOOTH, lambda g, x, y: g * sinh(x),
    "Return the hyperbolic cosine.")
asinh = unary("asinh", "Asinh", np.arcsinh, SMOOTH, lambda g, x, y: g / cosh(y),
    "Return the inverse hyperbolic sine.")
acosh = unary("acosh", "Acosh", np.arccosh, SMOOTH, lambda g, x, y: g / sinh(y),
    "Return the inverse hyperbolic cosine.")
atanh = unary("atanh", "Atanh", np.arctanh, SMOOTH, lambda g, x, y: g / (1 - x * x),
    "Return the inverse hyperbolic tangent.")

sigmoid = unary("sigmoid", "Sigmoid", _sigmoid, SMOOTH, lambda g, x, y: (1 - y) * y * g,
    "Return ``1 / (1 + exp(-x))``.")
tanh = unary("tanh", "Tanh", np.tanh, SMOOTH, lambda g, x, y: (1 - y * y) * g,
    "Return the hyperbolic tangent.")

floor = unary("floor", "Floor", np.floor, FLOATS, None, "Round down.")
ceil = unary("ceil", "Ceil", np.ceil, FLOATS, None, "Round up.")
round = unary("round", "Round", _round, REALS, None, "Round to the nearest integer, halves to even.")
rint = unary("rint", "Rint", np.rint, FLOATS, None, "Round to the nearest integer, halves to even.")
erf = unary("erf", "Erf", _with_out(special.erf), FLOATS,
    lambda g, x, y: g * (2 / _root(pi)) * exp(-(x * x)), "Return the Gauss error function.")
erfc = unary("erfc", "Erfc", _with_out(special.erfc), FLOATS,
    lambda g, x, y: g * (-2 / _root(pi)) * exp(-(x * x)), "Return one minus the Gauss error function.")
conj: UnaryFunction = unary("conj", "Conj", np.conjugate, NUMBERS, lambda g, x, y: conj(g),
    "Return the complex conjugate.")
# fmt: on
