"""Functions of one or two tensors that ports need: complex parts, truncation, statistics."""

from __future__ import annotations

from math import lgamma as _lgamma_of
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.construction.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.arithmetic import check_nonzero
from asyncmon.graph.ops.families import binary, unary
from asyncmon.graph.ops.functions import sqrt
from asyncmon.graph.ops.reduce import reduce_mean
from asyncmon.graph.ops.shape_ops import cast

if TYPE_CHECKING:
    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array


# --- complex numbers ------------------------------------------------------------------------------
def _part_rule(x: Spec) -> Spec:
    rules.check_dtype(x.dtype, rules.COMPLEX, "input")
    return Spec(x.dtype.real_dtype, x.shape)


def _paired(re: Array, im: Array) -> Array:
    result = np.empty(np.broadcast_shapes(np.shape(re), np.shape(im)), np.result_type(re, np.complex64))
    result.real, result.imag = re, im
    return result


def _paired_rule(re: Spec, im: Spec) -> Spec:
    rules.check_dtype(re.dtype, (dtypes.float32, dtypes.float64), "real")
    rules.check_same_dtype("Complex", re, im, ("real", "imag"))
    dtype = dtypes.complex64 if re.dtype is dtypes.float32 else dtypes.complex128
    return Spec(dtype, rules.broadcast(re.shape, im.shape))


def _zero(x: Tensor) -> Tensor:
    return create_op("ZerosLike", (x,))


register(OpDef("Real", np.real, _part_rule, aliases=True))
register(OpDef("Imag", np.imag, _part_rule, aliases=True))
register(OpDef("Angle", np.angle, _part_rule))
register(OpDef("Complex", _paired, _paired_rule))


def _part(op_type: str, input: Any, name: str | None) -> Tensor:
    x = convert_to_tensor(input)
    return create_op(op_type, (x,), None, name) if x.dtype.is_complex else x


def real(input: Any, name: str | None = None) -> Tensor:
    """Return the real parts; real numbers as they are. TF1: ``tf.real``."""
    return _part("Real", input, name)


def imag(input: Any, name: str | None = None) -> Tensor:
    """Return the imaginary parts; 0 of real numbers. TF1: ``tf.imag``."""
    x = convert_to_tensor(input)
    return create_op("Imag", (x,), None, name) if x.dtype.is_complex else _zero(x)


def angle(input: Any, name: str | None = None) -> Tensor:
    """Return the angles of complex or real numbers, in radians. TF1: ``tf.angle``."""
    x = convert_to_tensor(input)
    return create_op("Angle", (x if x.dtype.is_complex else complex(x, _zero(x)),), None, name)


def complex(real: Any, imag: Any, name: str | None = None) -> Tensor:
    """Return complex numbers of their parts, which have one shape. TF1: ``tf.complex``."""
    return create_op("Complex", (real, imag), None, name)


# --- integers -------------------------------------------------------------------------------------
def _truncate_div(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    if y.dtype.kind == "f":
        return np.trunc(np.divide(x, y), out=out)
    quotient = np.floor_divide(x, y)
    return np.add(quotient, (np.remainder(x, y) != 0) & ((x < 0) != (y < 0)), out=out, casting="unsafe")


def _truncate_mod(x: Array, y: Array, out: Array | None = None) -> Any:
    check_nonzero(y)
    return np.fmod(x, y, out=out)


def _xlogy(x: Array, y: Array, out: Array | None = None) -> Any:
    return np.multiply(x, np.where(x == 0, y.dtype.type(0), np.log(y)), out=out)


def _xdivy(x: Array, y: Array, out: Array | None = None) -> Any:
    return np.divide(x, np.where(x == 0, y.dtype.type(1), y), out=out)


# fmt: off
truncatediv = binary("truncatediv", "TruncateDiv", _truncate_div, rules.REALS, None,
    "Return ``x / y`` rounded towards zero.")
truncatemod = binary("truncatemod", "TruncateMod", _truncate_mod, rules.REALS, None,
    "Return the remainder of :func:`truncatediv`, with the sign of ``x``.")
xlogy = binary("xlogy", "Xlogy", _xlogy, rules.SMOOTH, lambda g, x, y, z:
    (g * create_op("Xlogy", (_unless_zero(x), y)), g * create_op("Xdivy", (x, y))),
    "Return ``x * log(y)``, and 0 where ``x`` is 0.")
xdivy = binary("xdivy", "Xdivy", _xdivy, rules.SMOOTH, lambda g, x, y, z:
    (g * create_op("Xdivy", (_unless_zero(x), y)), -g * create_op("Xdivy", (x, y * y))),
    "Return ``x / y``, and 0 where ``x`` is 0.")
# fmt: on


def _unless_zero(x: Tensor) -> Tensor:
    return cast(create_op("NotEqual", (x, _zero(x))), x.dtype)


# --- the gamma function ---------------------------------------------------------------------------
def _lgamma(x: Array, out: Array | None = None) -> Any:
    def one(value: float) -> float:
        try:
            return _lgamma_of(value)
        except (ValueError, OverflowError):  # a pole
            return np.inf

    found = np.asarray(np.frompyfunc(one, 1, 1)(np.asarray(x, np.float64)), np.float64)
    return _written(found, x, out)


_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _digamma(x: Array, out: Array | None = None) -> Any:
    """The asymptotic series, after the recurrence has raised the argument to 10 or more."""
    wide = np.array(x, np.float64)
    reflected = wide < 0.5
    value = np.where(reflected, 1 - wide, wide)
    total = np.zeros_like(value)
    for _ in range(10):
        low = value < 10
        total = np.where(low, total - 1 / value, total)
        value = np.where(low, value + 1, value)
    square = 1 / (value * value)
    tail = np.zeros_like(value)
    for factor in reversed(_SERIES):
        tail = square * (factor + tail)
    total += np.log(value) - 0.5 / value - tail
    pole = (wide <= 0) & (wide == np.floor(wide))
    turned = total - np.pi / np.tan(np.pi * np.where(pole, 0.5, wide))
    found = np.where(pole, np.nan, np.where(reflected, turned, total))
    return _written(found, x, out)


def _written(found: Array, x: Array, out: Array | None) -> Any:
    if out is None:
        return found.astype(x.dtype)
    np.copyto(out, found, casting="same_kind")
    return out


register(OpDef("Digamma", _digamma, rules.unary(rules.FLOATS), elementwise=True))


def digamma(x: Any, name: str | None = None) -> Tensor:
    """Return the derivative of :func:`lgamma`; it has no gradient itself. TF1: ``tf.digamma``."""
    return create_op("Digamma", (x,), None, name)


# fmt: off
lgamma = unary("lgamma", "Lgamma", _lgamma, rules.FLOATS, lambda g, x, y: g * digamma(x),
    "Return the logarithm of the absolute value of the gamma function.")
# fmt: on


# --- statistics -----------------------------------------------------------------------------------
def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the variance along axes. TF1: ``tf.math.reduce_variance``."""
    with name_scope(name, "reduce_variance"):
        x = convert_to_tensor(input_tensor)
        centred = x - reduce_mean(x, axis, True)
        return reduce_mean(centred * centred, axis, keepdims)


def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """Return the standard deviation along axes. TF1: ``tf.math.reduce_std``."""
    with name_scope(name, "reduce_std"):
        return sqrt(reduce_variance(input_tensor, axis, keepdims))


# --- bits -----------------------------------------------------------------------------------------
def _bitcast(x: Array, *, dtype: DType) -> Array:
    old, new = x.dtype.itemsize, dtype.numpy.itemsize
    x = np.asarray(x, order="C")
    if new == old:
        return x.view(dtype.numpy)
    if new < old:
        return x[..., None].view(dtype.numpy)
    return x.view(dtype.numpy)[..., 0]


def _bitcast_rule(x: Spec, *, dtype: DType) -> Spec:
    rules.check_dtype(x.dtype, rules.NUMBERS, "input")
    rules.check_dtype(dtype, rules.NUMBERS, "type")
    if x.shape is None:
        return Spec(dtype, None)
    if dtype.size == x.dtype.size:
        return Spec(dtype, x.shape)
    if dtype.size < x.dtype.size:
        return Spec(dtype, (*x.shape, x.dtype.size // dtype.size))
    rules.merge_dim((rules.with_rank_at_least(x.shape, 1) or (None,))[-1], dtype.size // x.dtype.size)
    return Spec(dtype, x.shape[:-1])


register(OpDef("Bitcast", _bitcast, _bitcast_rule, aliases=True))


def bitcast(input: Any, type: Any, name: str | None = None) -> Tensor:
    """Return the same bytes as elements of another dtype. TF1: ``tf.bitcast``.

    A smaller one adds a last dimension; a larger one takes the last, which must fit, away.
    """
    return create_op("Bitcast", (input,), {"dtype": dtypes.as_dtype(type)}, name)
