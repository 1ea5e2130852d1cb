"""Reductions, cumulative sums and products, and argmax and argmin."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import axis_of, convert_to_tensor, create_op
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops import families
from asyncmon.graph.ops.axes import along, folded, with_size
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.create import one_hot
from asyncmon.graph.ops.create import range as range_op
from asyncmon.graph.ops.families import ReductionFunction
from asyncmon.graph.ops.join import concat
from asyncmon.graph.ops.shape_ops import broadcast_like, reshape, shape, size, transpose

Axes = tuple[int, ...] | None

reduction = partial(families.reduction, __name__)


# --- reductions -----------------------------------------------------------------------------------
_add_up: Any = np.add.reduce  # called by position, which numpy's type hints do not allow


def _sum(x: Array, *, axis: Any, keepdims: Any) -> Any:
    return _add_up(x, axis, x.dtype, None, keepdims)


def _mean(x: Array, *, axis: Any, keepdims: Any) -> Any:
    count = x.size if axis is None else prod(x.shape[a] for a in axis)
    if x.dtype.kind in "iu":
        return _integer_mean(x, count, axis, keepdims)
    return _add_up(x, axis, x.dtype, None, keepdims) / x.dtype.type(count)


def _integer_mean(x: Array, count: int, axis: Any, keepdims: Any) -> Any:
    """Return the mean rounded towards zero; the sum may exceed the range of the dtype."""
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    total, divisor = np.asarray(_add_up(x, axis, wide, None, keepdims)), wide(max(count, 1))
    quotient = total // divisor
    return (quotient + ((total < 0) & (quotient * divisor != total))).astype(x.dtype)


def _mean_gradient(g: Tensor, x: Tensor, y: Tensor, axis: Axes) -> Tensor:
    count = size(x, out_type=dtypes.int64)
    if axis is not None:
        count = count // create_op("Maximum", (size(y, out_type=dtypes.int64), np.int64(1)))
    return broadcast_like(g / cast(count, g.dtype), x)


def _extreme(ufunc: Any, worst: str) -> Callable[..., Any]:
    def kernel(x: Array, *, axis: Axes, keepdims: bool) -> Any:
        return ufunc.reduce(x, axis=axis, keepdims=keepdims, initial=_limit(x.dtype, worst))

    return kernel


@lru_cache(maxsize=64)
def _limit(dtype: np.dtype[Any], which: str) -> Any:
    if dtype.kind == "f":
        return dtype.type(np.inf if which == "max" else -np.inf)
    return getattr(np.iinfo(dtype), which)


def _extreme_gradient(g: Tensor, x: Tensor, y: Tensor, axis: Axes) -> Tensor:
    chosen = cast(create_op("Equal", (x, y)), g.dtype)
    return chosen / reduce_sum(chosen, axis, True) * g


def _log_sum_exp(x: Array, *, axis: Any, keepdims: Any) -> Any:
    top = np.maximum.reduce(x, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.add.reduce(np.exp(x - top), axis=axis, keepdims=keepdims)
    return np.log(total) + (top if keepdims else top.reshape(np.shape(total)))


# fmt: off
reduce_sum: ReductionFunction = reduction("reduce_sum", "Sum", _sum, rules.NUMBERS,
    lambda g, x, y, axis: broadcast_like(g, x), "Return the sum along axes.")
reduce_mean = reduction("reduce_mean", "Mean", _mean, rules.NUMBERS, _mean_gradient,
    "Return the mean along axes; of integers, rounded towards zero.")
reduce_max = reduction("reduce_max", "Max", _extreme(np.maximum, "min"), rules.REALS, _extreme_gradient,
    "Return the greatest element along axes; equal ones share the gradient.")
reduce_min = reduction("reduce_min", "Min", _extreme(np.minimum, "max"), rules.REALS, _extreme_gradient,
    "Return the smallest element along axes; equal ones share the gradient.")
reduce_prod = reduction("reduce_prod", "Prod",
    lambda x, *, axis, keepdims: np.multiply.reduce(x, axis, x.dtype, keepdims=keepdims), rules.NUMBERS,
    lambda g, x, y, axis: g * create_op("ProdOfOthers", (x,), {"axis": axis}),
    "Return the product along axes.")
reduce_any = reduction("reduce_any", "Any", np.any, (dtypes.bool,), None,
    "Return whether any element along axes is true.")
reduce_all = reduction("reduce_all", "All", np.all, (dtypes.bool,), None,
    "Return whether all elements along axes are true.")
reduce_logsumexp = reduction("reduce_logsumexp", "LogSumExp", _log_sum_exp, rules.FLOATS,
    lambda g, x, y, axis: create_op("Exp", (x - y,)) * g,
    "Return ``log(sum(exp(x)))`` along axes, safe from overflow.", node="ReduceLogSumExp")
# fmt: on


# --- the gradient of a product --------------------------------------------------------------------
def _product_of_others(x: Array, *, axis: Axes) -> Any:
    """Return for each element the product of the others along axes, which is exact for zeros."""
    axes = tuple(range(x.ndim)) if axis is None else tuple(a % x.ndim for a in axis)
    if not axes or not x.size:
        return np.ones_like(x)
    last = tuple(range(x.ndim - len(axes), x.ndim))
    moved = np.moveaxis(x, axes, last)
    flat = moved.reshape(*moved.shape[: last[0]], -1)
    before = np.cumprod(flat, axis=-1)
    after = np.cumprod(flat[..., ::-1], axis=-1)[..., ::-1]
    others = np.ones_like(flat)
    others[..., 1:] = before[..., :-1]
    others[..., :-1] *= after[..., 1:]
    return np.moveaxis(others.reshape(moved.shape), last, axes)


def _written_out(x: Tensor, axis: Axes) -> Tensor:
    """Return the same built of ops: products of rows in which a 1 replaces each element in turn.

    Its derivatives of any order are exact. It uses the square of the memory.
    """
    if axis is None:
        return _others_of_rows(reshape(x, [-1]), shape(x))
    rank = x.shape.ndims
    if rank is None:
        raise LookupError(f"The second derivative of a product along an axis needs the rank of {x!r}.")
    gone = [a % rank for a in axis]
    order = [a for a in range(rank) if a not in gone] + gone
    moved = transpose(x, order)
    rows = reshape(moved, concat([shape(moved)[: rank - len(gone)], [-1]], 0))
    return transpose(_others_of_rows(rows, shape(moved)), np.argsort(order).tolist())


def _others_of_rows(rows: Tensor, result_shape: Tensor) -> Tensor:
    count = shape(rows)[-1]
    own = one_hot(range_op(count), count, dtype=rows.dtype)
    others = create_op("ExpandDims", (rows,), {"axis": (-2,)}) * (1 - own) + own
    return reshape(reduce_prod(others, -1), result_shape)


register(OpDef("ProdOfOthers", _product_of_others, rules.like_first, lambda op, grad:
    gradients(_written_out(op.inputs[0], op.attrs["axis"]), op.inputs, grad)))  # fmt: skip


# --- cumulative sums and products -------------------------------------------------------------------
def _scan(ufunc: np.ufunc) -> Callable[..., Any]:
    def kernel(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Any:
        moved = np.moveaxis(x, axis, 0)
        moved = moved[::-1] if reverse else moved
        result = np.empty_like(moved)
        if exclusive:
            result[:1] = ufunc.identity
            ufunc.accumulate(moved[:-1], axis=0, out=result[1:])
        else:
            ufunc.accumulate(moved, axis=0, out=result)
        return np.moveaxis(result[::-1] if reverse else result, 0, axis)

    return kernel


def _scan_rule(x: Spec, *, axis: int, exclusive: bool, reverse: bool) -> Spec:
    rules.check_dtype(x.dtype, rules.NUMBERS)
    if x.shape is not None:
        rules.normalize_axis(axis, len(x.shape))
    return Spec(x.dtype, x.shape)


def _cumsum_back(op: Operation, grad: Tensor) -> Tensor:
    return create_op("Cumsum", (grad,), {**op.attrs, "reverse": not op.attrs["reverse"]})


def _cumprod_back(op: Operation, grad: Tensor) -> Tensor:
    return create_op("DivNoNan", (_cumsum_back(op, grad * op.outputs[0]), op.inputs[0]))


register(OpDef("Cumsum", _scan(np.add), _scan_rule, lambda op, grad: [_cumsum_back(op, grad)]))
register(OpDef("Cumprod", _scan(np.multiply), _scan_rule, lambda op, grad: [_cumprod_back(op, grad)]))


def _running(op_type: str, x: Any, axis: Any, exclusive: Any, reverse: Any, name: Any) -> Tensor:
    attrs = {"exclusive": bool(exclusive), "reverse": bool(reverse)}

    def scan(value: Tensor, axis: int) -> Tensor:
        return create_op(op_type, (value,), {"axis": axis, **attrs}, name)

    return along(scan, x, axis_of(axis, vector=True))


def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the cumulative sum along an axis, from the end if ``reverse``. TF1: ``tf.cumsum``.

    With ``exclusive`` the first result is 0 and the last element is not added.
    """
    return _running("Cumsum", x, axis, exclusive, reverse, name)


def cumprod(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Return the cumulative product along an axis; arguments as :func:`cumsum`. TF1: ``tf.cumprod``.

    As in TF1, its gradient divides by ``x`` and is wrong (0) where an element is 0.
    """
    return _running("Cumprod", x, axis, exclusive, reverse, name)


# --- positions of extremes ------------------------------------------------------------------------
_OUTSIDE = (
    "Dimension ({axis}) must be in the range {range}, where {rank} is the number of dimensions "
    "in the input"
)


def _arg_rule(x: Spec, *, axis: int, output_type: dtypes.DType) -> Spec:
    rules.check_dtype(x.dtype, (*rules.REALS, dtypes.bool), "input")
    if x.shape is None:
        return Spec(output_type, None)
    axis = rules.normalize_axis(axis, len(x.shape), error=_OUTSIDE)
    return Spec(output_type, x.shape[:axis] + x.shape[axis + 1 :])


def _arg_kernel(find: Callable[..., Any], least: float) -> Callable[..., Any]:
    def kernel(x: Array, *, axis: int, output_type: dtypes.DType) -> Any:
        found = find(x, axis=axis)
        if (
            x.dtype.kind == "f"
            and np.isnan(np.take_along_axis(x, np.expand_dims(found, axis), axis)).any()
        ):
            found = find(
                np.where(np.isnan(x), x.dtype.type(least), x), axis=axis
            )  # numpy finds the NaN
        return np.asarray(found, dtype=output_type.numpy)

    return kernel


register(OpDef("ArgMax", _arg_kernel(np.argmax, -np.inf), _arg_rule, ZERO))
register(OpDef("ArgMin", _arg_kernel(np.argmin, np.inf), _arg_rule, ZERO))


def _arg(
    op_type: str, input: Any, axis: Any, name: str | None, dimension: Any, output_type: Any
) -> Tensor:
    axis = renamed_argument("axis", axis, "dimension", dimension)
    output = dtypes.as_dtype(output_type)
    rules.check_dtype(output, (dtypes.int32, dtypes.int64), "output_type")
    at, x = axis_of(0 if axis is None else axis), convert_to_tensor(input)
    if isinstance(at, int):
        return create_op(op_type, (x,), {"axis": at, "output_type": output}, name)
    found = create_op(op_type, (folded(x, at),), {"axis": 1, "output_type": output}, name)
    return with_size(found, x, at, ())


def argmax(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the position of the greatest element along an axis, 0 by default. TF1: ``tf.argmax``.

    As in TF1, NaN is no greatest element; where all are NaN, the position is 0.
    """
    return _arg("ArgMax", input, axis, name, dimension, output_type)


def argmin(
    input: Any,
    axis: Any = None,
    name: str | None = None,
    dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:
    """Return the position of the smallest element along an axis, 0 by default. TF1: ``tf.argmin``.

    As in TF1, NaN is no smallest element; where all are NaN, the position is 0.
    """
    return _arg("ArgMin", input, axis, name, dimension, output_type)
