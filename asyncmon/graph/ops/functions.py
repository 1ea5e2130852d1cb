"""Elementwise functions of one tensor, one row each."""

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
    # 1 where g is 0, so that where(x > 0, sqrt(x), 0) has a gradient at 0
    unused = create_op("Equal", (g, create_op("ZerosLike", (g,))))
    return create_op("SelectV2", (unused, create_op("OnesLike", (y,)), y))


def _abs_rule(x: Spec) -> Spec:
    spec: Spec = unary_rule(NUMBERS)(x)
    return Spec(x.dtype.real_dtype, spec.shape)


def _abs_gradient(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    if x.dtype.is_complex:
        raise LookupError(f"abs() of complex numbers has no gradient: {x!r}")
    return g * sign(x)


# --- the error function: numpy has none ---------------------------------------------------------------
# fmt: off
# Chebyshev fit, in powers of u = 2t - 1 with t = 2 / (2 + x), of erfc(x) * exp(x * x) / t on x >= 0.
# Relative error below 4e-15 for x < 6.
_ERFC = (
    0.5107913526210124, 0.3435803422068917, 0.13973604627785224, 0.018221115754024388,
    -0.010755330938080739, -0.0032395925389550814, 0.0015453059220723998, 0.0004186480121049957,
    -0.00033153580579402064, -1.7185205034784614e-05, 7.223023866643177e-05, -1.7077769936949902e-05,
    -1.0829788410785814e-05, 8.071863220540517e-06, -6.073273851650315e-07, -1.8455684232103453e-06,
    1.0758962326715049e-06, 2.9459310738862365e-08, -3.7256669121453796e-07, 1.3896902457110202e-07,
    6.631542011054334e-08, -4.681124533329958e-08, -4.957954734807589e-09, 5.742079780938988e-09,
)

# The Taylor series of erf(x) / x in powers of x * x, exact to double precision for |x| < 1.
_ERF_NEAR_ZERO = (
    1.1283791670955126, -0.37612638903183754, 0.11283791670955126, -0.026866170645131252,
    0.005223977625442188, -0.0008548327023450852, 0.00012055332981789664, -1.4925650358406251e-05,
    1.6462114365889246e-06, -1.6365844691234924e-07, 1.4807192815879218e-08, -1.2290555301717926e-09,
    9.422759064650411e-11, -6.711366855164110e-12, 4.463224263286477e-13, -2.7835162072109213e-14,
    1.6342614095367152e-15, -9.063970842808672e-17,
)

# The rational approximation of single precision: erf(x) = x P(x * x) / Q(x * x) for |x| <= 4.
_ERF32_P = (
    -1.60960333262415e-02, -2.95459980854025e-03, -7.34990630326855e-04, -5.69250639462346e-05,
    -2.10102402082508e-06, 2.77068142495902e-08, -2.72614225801306e-10,
)
_ERF32_Q = (
    -1.42647390514189e-02, -7.37332916720468e-03, -1.68282697438203e-03, -2.13374055278905e-04,
    -1.45660718464996e-05,
)
# fmt: on


def _erf(x: Array) -> Array:
    x = np.asarray(x)
    if x.dtype != np.float64:
        return _erf32(x)
    near = np.minimum(x * x, 1.0)
    small = x * _horner(_ERF_NEAR_ZERO, near)
    large = np.copysign(1.0 - _erfc_positive(np.abs(x)), x)
    return np.where(np.abs(x) < 1.0, small, large)


def _erfc(x: Array) -> Array:
    x = np.asarray(x)
    wide = x.astype(np.float64, copy=False)
    tail = _erfc_positive(np.abs(wide))
    return np.where(wide < 0.0, 2.0 - tail, tail).astype(x.dtype, copy=False)


def _erfc_positive(x: Array) -> Array:
    t = 2.0 / (2.0 + x)
    return t * _horner(_ERFC, 2.0 * t - 1.0) * np.exp(-x * x)


def _erf32(x: Array) -> Array:
    clipped = np.clip(x.astype(np.float32, copy=False), -4.0, 4.0)
    squared = clipped * clipped
    value = clipped * _horner(_ERF32_P, squared) / _horner(_ERF32_Q, squared)
    return value.astype(x.dtype, copy=False)


def _horner(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value *= x
        value += coefficient
    return value


# --- the table --------------------------------------------------------------------------------------
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
erf = unary("erf", "Erf", _with_out(_erf), FLOATS,
    lambda g, x, y: g * (2 / _root(pi)) * exp(-(x * x)), "Return the Gauss error function.")
erfc = unary("erfc", "Erfc", _with_out(_erfc), FLOATS,
    lambda g, x, y: g * (-2 / _root(pi)) * exp(-(x * x)), "Return one minus the Gauss error function.")
conj: UnaryFunction = unary("conj", "Conj", np.conjugate, NUMBERS, lambda g, x, y: conj(g),
    "Return the complex conjugate.")
# fmt: on
