"""Elementwise ops: functions, arithmetic, comparison, logic and ``where``, most of them a table row.

The operands of an op must have the same dtype; a Python or numpy value takes the dtype of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi
from math import sqrt as _root
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.core.rules import FLOATS, NUMBERS, REALS, SMOOTH, rank_of
from asyncmon.graph.core.shape import merge
from asyncmon.graph.numerics.arrays import Array, as_out
from asyncmon.graph.ops import families
from asyncmon.graph.ops.families import BinaryFunction, UnaryFunction
from asyncmon.graph.ops.join import check_one_dtype
from asyncmon.graph.ops.shape_ops import unbroadcast

unary, binary = partial(families.unary, __name__), partial(families.binary, __name__)
comparison = partial(families.comparison, __name__)
binary_function = partial(families.binary_function, __name__)


# --- functions of one tensor --------------------------------------------------------------------------
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
    spec: Spec = rules.unary(NUMBERS)(x)
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


# --- arithmetic of two tensors ------------------------------------------------------------------------
Pair = tuple[Tensor, Tensor]


def _squared_difference(x: Array, y: Array, out: Array | None = None) -> Any:
    difference = np.subtract(x, y, out=out)
    if x.dtype.kind == "c":
        return np.multiply(np.conjugate(difference), difference, out=out)
    return np.multiply(difference, difference, out=out)


def _true_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    if out is None and x.dtype.kind in "iu" and x.dtype.itemsize <= 2:
        return np.true_divide(x, y, dtype=np.float32)
    return np.true_divide(x, y, out=out)


def _quotient_rule(x: Spec, y: Spec) -> Spec:
    spec: Spec = rules.binary("RealDiv")(x, y)
    if not spec.dtype.is_integer:
        return spec
    return Spec(dtypes.float32 if spec.dtype.size <= 2 else dtypes.float64, spec.shape)


def check_nonzero(divisor: Array) -> None:
    if divisor.dtype.kind in "iu" and not np.all(divisor):
        raise InvalidArgumentError("Integer division by zero")


def _floor_divide(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    if y.dtype.kind in "iu":
        return np.floor_divide(x, y, out=out)
    quotient = np.divide(x, y, out=out)  # numpy's floor_divide gives 9 for 1.0 // 0.1
    return np.floor(quotient, out=as_out(quotient))


def _floor_mod(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    return np.remainder(x, y, out=out)


def _div_no_nan(x: Array, y: Array, out: Array | None = None) -> Any:
    zero = np.equal(y, 0)
    quotient = np.asarray(np.divide(x, y, out=out))
    np.copyto(quotient, 0, where=zero)
    return quotient


def _pow_gradient(g: Tensor, x: Tensor, y: Tensor, z: Tensor) -> Pair:
    # the exponent of a base that is not positive has no gradient
    positive = create_op("Greater", (x, create_op("ZerosLike", (x,))))
    base = create_op("SelectV2", (positive, x, create_op("OnesLike", (x,))))
    return g * y * x ** (y - 1), g * z * create_op("Log", (base,))


def _either(x_wins: Tensor, g: Tensor) -> Pair:
    zero = create_op("ZerosLike", (g,))
    return create_op("SelectV2", (x_wins, g, zero)), create_op("SelectV2", (x_wins, zero, g))


# fmt: off
add = binary("add", "AddV2", np.add, (*NUMBERS, dtypes.string, dtypes.variant),
    lambda g, x, y, z: (g, g), "Return ``x + y``; strings are joined.", node="Add")
subtract = binary("subtract", "Sub", np.subtract, NUMBERS, lambda g, x, y, z: (g, -g),
    "Return ``x - y``.")
multiply = binary("multiply", "Mul", np.multiply, NUMBERS, lambda g, x, y, z: (g * y, g * x),
    "Return ``x * y``, element by element.")
pow = binary("pow", "Pow", np.power, NUMBERS, _pow_gradient, "Return ``x`` to the power ``y``.")
squared_difference = binary("squared_difference", "SquaredDifference", _squared_difference, NUMBERS,
    lambda g, x, y, z: (of_x := g * 2 * (x - y), -of_x), "Return ``(x - y) ** 2``.")
realdiv = binary("realdiv", "RealDiv", _true_divide, NUMBERS, lambda g, x, y, z: (g / y, g * (-z / y)),
    "Return ``x / y``.", rule=_quotient_rule)
truediv = binary_function("truediv", "RealDiv", NUMBERS,
    "Return ``x / y``; integers give float64, those of up to 16 bits float32.", "truediv")
divide = binary_function("divide", "RealDiv", NUMBERS, "Return ``x / y`` as Python 3 does.",
    "truediv")
floordiv = binary("floordiv", "FloorDiv", _floor_divide, REALS, None, node="floordiv",
    doc="Return ``x / y`` rounded down. Integers by zero: InvalidArgumentError in the run.")
floormod = binary("floormod", "FloorMod", _floor_mod, REALS, lambda g, x, y, z: (g, g * -(x // y)),
    "Return the remainder of :func:`floordiv`, with the sign of ``y``; also ``tf.mod``.")
div_no_nan: BinaryFunction = binary("div_no_nan", "DivNoNan", _div_no_nan, SMOOTH,
    lambda g, x, y, z: (of_x := div_no_nan(g, y), -(of_x * z)),
    "Return ``x / y``, and 0 where ``y`` is 0.", node="div_no_nan")
maximum = binary("maximum", "Maximum", np.maximum, REALS, lambda g, x, y, z: _either(x >= y, g),
    "Return the greater of ``x`` and ``y``; where they are equal the gradient goes to ``x``.")
minimum = binary("minimum", "Minimum", np.minimum, REALS, lambda g, x, y, z: _either(x <= y, g),
    "Return the smaller of ``x`` and ``y``; where they are equal the gradient goes to ``x``.")
mod = floormod
# fmt: on


# --- add_n ----------------------------------------------------------------------------------------
def _add_n(*inputs: Array) -> Any:
    if len(inputs) == 1:
        return inputs[0]
    total = np.add(inputs[0], inputs[1])
    for value in inputs[2:]:
        total = np.add(total, value, out=total if isinstance(total, np.ndarray) else None)
    return total


def _add_n_rule(*inputs: Spec) -> Spec:
    rules.check_dtype(inputs[0].dtype, (*NUMBERS, dtypes.variant), "inputs")
    check_one_dtype("AddN", inputs, "inputs")
    return rules.like_first(*inputs)


register(OpDef("AddN", _add_n, _add_n_rule, lambda op, g: [g] * len(op.inputs), aliases=True))


def add_n(inputs: Any, name: str | None = None) -> Tensor:
    """Return the sum of tensors of one shape and dtype. TF1: ``tf.add_n``.

    Raises:
        ValueError: ``inputs`` is not a list of at least one tensor, or shapes differ.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError(
            "inputs must be an iterable of at least one Tensor/IndexedSlices with the same "
            "dtype and shape"
        )
    return create_op("AddN", [convert_to_tensor(value) for value in inputs], {}, name)


# --- comparison and logic -----------------------------------------------------------------------------
_ANY = (*NUMBERS, dtypes.bool, dtypes.string)
_BOOL = (dtypes.bool,)


def _objects_too(ufunc: np.ufunc) -> Callable[..., Any]:
    """Return a comparison with a bool result for strings, too, for which numpy returns objects."""

    def kernel(x: Array, y: Array, out: Array | None = None) -> Any:
        if out is None and x.dtype == object:
            return ufunc(x, y, dtype=np.bool_)
        return ufunc(x, y, out=out)

    return kernel


# fmt: off
less = comparison("less", "Less", np.less, REALS, "Return ``x < y``.")
less_equal = comparison("less_equal", "LessEqual", np.less_equal, REALS, "Return ``x <= y``.")
greater = comparison("greater", "Greater", np.greater, REALS, "Return ``x > y``.")
greater_equal = comparison("greater_equal", "GreaterEqual", np.greater_equal, REALS,
    "Return ``x >= y``.")
equal = comparison("equal", "Equal", _objects_too(np.equal), _ANY,
    "Return ``x == y``, element by element.")
not_equal = comparison("not_equal", "NotEqual", _objects_too(np.not_equal), _ANY,
    "Return ``x != y``, element by element.")

logical_and = comparison("logical_and", "LogicalAnd", np.logical_and, _BOOL, "Return ``x and y``.")
logical_or = comparison("logical_or", "LogicalOr", np.logical_or, _BOOL, "Return ``x or y``.")
logical_xor = comparison("logical_xor", "LogicalXor", np.logical_xor, _BOOL,
    "Return whether exactly one of ``x`` and ``y`` is true.", default="LogicalXor")
logical_not = unary("logical_not", "LogicalNot", np.logical_not, _BOOL, None, "Return ``not x``.")

is_nan = unary("is_nan", "IsNan", np.isnan, FLOATS, None,
    "Return whether each element is not a number.", output=dtypes.bool)
is_inf = unary("is_inf", "IsInf", np.isinf, FLOATS, None,
    "Return whether each element is an infinity.", output=dtypes.bool)
is_finite = unary("is_finite", "IsFinite", np.isfinite, FLOATS, None,
    "Return whether each element is a finite number.", output=dtypes.bool)
# fmt: on


# --- choice ---------------------------------------------------------------------------------------
def _select(condition: Array, x: Array, y: Array, out: Array | None = None) -> Any:
    if out is None:
        return np.where(condition, x, y)
    np.copyto(out, y)
    np.copyto(out, x, where=condition)
    return out


def _select_spec(condition: Spec, x: Spec, y: Spec) -> Spec:
    rules.check_dtype(condition.dtype, _BOOL, "condition")
    rules.check_same_dtype("SelectV2", x, y, ("t", "e"))
    return Spec(x.dtype, rules.broadcast(condition.shape, rules.broadcast(x.shape, y.shape)))


def _choose(condition: Array, x: Array, y: Array, out: Array | None = None) -> Any:
    if condition.ndim == 1 < np.ndim(x):  # it selects rows
        condition = condition.reshape(-1, *[1] * (np.ndim(x) - 1))
    return _select(condition, x, y, out)


def _choose_spec(condition: Spec, x: Spec, y: Spec) -> Spec:
    rules.check_dtype(condition.dtype, _BOOL, "condition")
    rules.check_same_dtype("Select", x, y, ("t", "e"))
    shape, test = merge(x.shape, y.shape), condition.shape
    if shape is not None and test:
        shape = merge(shape, test if len(test) > 1 else (*test, *shape[1:]))
    return Spec(x.dtype, shape)


def _select_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    condition, x, y = op.inputs
    zero, z = create_op("ZerosLike", (grad,)), op.outputs[0]
    of_x, of_y = (create_op(op.type, (condition, *pair)) for pair in ((grad, zero), (zero, grad)))
    if op.type == "Select":  # nothing was broadcast
        return [None, of_x, of_y]
    return [None, unbroadcast(of_x, x, z), unbroadcast(of_y, y, z)]


register(OpDef("SelectV2", _select, _select_spec, _select_gradient, out=True))
register(OpDef("Select", _choose, _choose_spec, _select_gradient, out=True))
register(OpDef("Where", lambda condition: np.argwhere(condition).astype(np.int64),
    lambda condition: Spec(dtypes.int64, (None, rank_of(condition.shape))), ZERO))  # fmt: skip


def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """Return ``x`` where the condition holds and ``y`` elsewhere. TF1: ``tf.where``.

    Without ``x`` and ``y``: the positions of the true elements, an int64 matrix with a row for each.

    Args:
        condition: a bool tensor of the shape of ``x``, a vector that selects whole rows, or a scalar.
        x: a tensor of the dtype and shape of ``y``, without broadcasting.
        y: the values where the condition is false.
    """
    test = convert_to_tensor(condition)
    if x is None and y is None:
        return create_op("Where", (test,), None, name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return create_op("Select", (test, *convert_pair(x, y, name or "Select")), None, name)
