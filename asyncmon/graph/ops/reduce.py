"""Reductions along axes: sum, mean, max, min, prod, any, all, logsumexp.

``axis`` is None for all axes, an int, or a list of ints (or a constant tensor of them).
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import renamed_argument, static_axes
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.prod_op import product_of_others

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Axes = tuple[int, ...] | None
    Gradients = list[Tensor | None]

__all__ = [
    "reduce_all",
    "reduce_any",
    "reduce_logsumexp",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]


# --- the shape rule and the way back --------------------------------------------------------------


def _reduced(allowed: Sequence[dtypes.DType]) -> rules.Rule:
    def rule(x: Spec, *, axis: Axes, keepdims: bool) -> Spec:
        rules.check_dtype(x.dtype, allowed, "input")
        return Spec(x.dtype, _reduced_shape(x.shape, axis, keepdims))

    return rule


_OUTSIDE = "Invalid reduction dimension {axis} for input with {rank} dimension(s)"


def _reduced_shape(
    shape: tuple[int | None, ...] | None, axis: Axes, keepdims: bool
) -> tuple[int | None, ...] | None:
    if shape is None:
        return () if axis is None and not keepdims else None
    rank = len(shape)
    axes = range(rank) if axis is None else axis
    gone = {rules.normalize_axis(a, rank, error=_OUTSIDE) for a in axes}
    if keepdims:
        return tuple(1 if i in gone else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in gone)


def _spread(grad: Array, shape: Any, axis: Axes, keepdims: bool) -> Any:
    """Put back the reduced axes and repeat the gradient along them (as a view)."""
    target = tuple(shape)
    if axis is not None and not keepdims:
        kept = [False] * len(target)
        for a in axis:
            kept[a] = True
        grad = np.reshape(grad, [1 if k else d for k, d in zip(kept, target, strict=True)])
    elif axis is None and keepdims:
        grad = np.reshape(grad, ())
    return np.broadcast_to(grad, target)


def _sum_grad(grad: Array, shape: Array, *, axis: Axes, keepdims: bool) -> Any:
    return _spread(grad, shape, axis, keepdims)


_SMALL = 4096  # elements: fewer are rather repeated than broadcast as a view


def _mean_grad(grad: Array, shape: Array, *, axis: Axes, keepdims: bool) -> Any:
    target = shape.tolist()
    if axis is None and not keepdims and (count := prod(target)) <= _SMALL:
        share = np.empty(target, grad.dtype)
        share.fill(grad / grad.dtype.type(count))
        return share
    grad = np.asarray(grad)
    count = prod(target) // max(grad.size, 1)
    return _spread(grad / grad.dtype.type(count), shape, axis, keepdims)


def _grad_spec(grad: Spec, shape: Spec, **_attrs: object) -> Spec:
    return Spec(grad.dtype, shape.known_dims())


def _back(grad_type: str, op: Operation, grad: Tensor) -> Gradients:
    (x,) = op.inputs
    result = create_op(grad_type, (grad, create_op("Shape", (x,), {})), op.attrs)
    result.set_shape(x.spec.shape)
    return [result]


def _forth(reduce_type: str, op: Operation, grad: Tensor) -> Gradients:
    return [create_op(reduce_type, (grad,), op.attrs), None]


def _expanded(y: Tensor, op: Operation) -> Tensor:
    """Return an output of the reduction, or its gradient, so that it broadcasts against the input."""
    axis, keepdims = op.attrs["axis"], op.attrs["keepdims"]
    if keepdims or axis is None or axis == ():
        return y
    return create_op("ExpandDims", (y,), {"axis": _sorted_axes(axis, op.inputs[0])})


def _sorted_axes(axis: tuple[int, ...], x: Tensor) -> tuple[int, ...]:
    if all(a < 0 for a in axis) or all(a >= 0 for a in axis):
        return tuple(sorted(axis))
    rank = len(x.shape)  # raises where the rank is unknown: axes of both signs cannot be put in order
    return tuple(sorted(a % rank for a in axis))


# --- sum, mean ------------------------------------------------------------------------------------


_add_up: Any = np.add.reduce  # called by position, which numpy's types do not foresee


def _sum(x: Array, *, axis: Any, keepdims: Any) -> Any:
    return _add_up(x, axis, x.dtype, None, keepdims)


def _mean(x: Array, *, axis: Any, keepdims: Any) -> Any:
    count = x.size if axis is None else prod(x.shape[a] for a in axis)
    if x.dtype.kind in "iu":
        return _integer_mean(x, count, axis, keepdims)
    return _add_up(x, axis, x.dtype, None, keepdims) / x.dtype.type(count)


def _integer_mean(x: Array, count: int, axis: Any, keepdims: Any) -> Any:
    """The mean rounded towards zero; a sum that the dtype cannot hold has a mean that it can."""
    wide = np.int64 if x.dtype.kind == "i" else np.uint64
    total, divisor = np.asarray(_add_up(x, axis, wide, None, keepdims)), wide(max(count, 1))
    quotient = total // divisor
    return (quotient + ((total < 0) & (quotient * divisor != total))).astype(x.dtype)


register(OpDef("Sum", _sum, _reduced(rules.NUMBERS), partial(_back, "SumGrad")))
register(OpDef("SumGrad", _sum_grad, _grad_spec, partial(_forth, "Sum"), aliases=True))
register(OpDef("Mean", _mean, _reduced(rules.NUMBERS), partial(_back, "MeanGrad")))
register(OpDef("MeanGrad", _mean_grad, _grad_spec, partial(_forth, "Mean")))


def _reduce(
    op_type: str,
    input_tensor: Any,
    axis: Any,
    keepdims: Any,
    name: str | None,
    old_axis: Any,
    old_keepdims: Any,
) -> Tensor:
    x = convert_to_tensor(input_tensor)
    axes = static_axes(renamed_argument("axis", axis, "reduction_indices", old_axis))
    keep = renamed_argument("keepdims", keepdims, "keep_dims", old_keepdims)
    return create_op(op_type, (x,), {"axis": axes, "keepdims": bool(keep)}, name)


def reduce_sum(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the sum along axes.

    TF1: ``tf.reduce_sum``; the last two are old names of axis and keepdims.
    """
    return _reduce("Sum", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_mean(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the mean along axes; of integers, rounded towards zero. TF1: ``tf.reduce_mean``."""
    return _reduce("Mean", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


# --- max, min -------------------------------------------------------------------------------------


def _extreme(op_type: str, ufunc: Any, worst: str) -> None:
    def kernel(x: Array, *, axis: Axes, keepdims: bool) -> Any:
        if x.size:
            return ufunc.reduce(x, axis=axis, keepdims=keepdims)
        return ufunc.reduce(x, axis=axis, keepdims=keepdims, initial=_limit(x.dtype, worst))

    def gradient(op: Operation, grad: Tensor) -> Gradients:
        (x,), y = op.inputs, _expanded(op.outputs[0], op)
        chosen = create_op("Cast", (create_op("Equal", (x, y)),), {"dtype": grad.dtype})
        count = create_op("Sum", (chosen,), {"axis": op.attrs["axis"], "keepdims": True})
        return [chosen / count * _expanded(grad, op)]

    register(OpDef(op_type, kernel, _reduced(rules.REALS), gradient))


def _limit(dtype: np.dtype[Any], which: str) -> Any:
    if dtype.kind == "f":
        return dtype.type(np.inf if which == "max" else -np.inf)
    return getattr(np.iinfo(dtype), which)


_extreme("Max", np.maximum, "min")
_extreme("Min", np.minimum, "max")


def reduce_max(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the greatest element along axes; equal ones share the gradient. TF1: ``tf.reduce_max``."""
    return _reduce("Max", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_min(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the smallest element along axes; equal ones share the gradient. TF1: ``tf.reduce_min``."""
    return _reduce("Min", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


# --- prod, any, all, logsumexp --------------------------------------------------------------------


def _prod(x: Array, *, axis: Any, keepdims: Any) -> Any:
    return np.multiply.reduce(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _prod_gradient(op: Operation, grad: Tensor) -> Gradients:
    (spread,) = _back("SumGrad", op, grad)
    assert spread is not None
    return [spread * product_of_others(op.inputs[0], op.attrs["axis"])]


register(OpDef("Prod", _prod, _reduced(rules.NUMBERS), _prod_gradient))


def reduce_prod(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return the product along axes. TF1: ``tf.reduce_prod``."""
    return _reduce("Prod", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


register(
    OpDef(
        "Any",
        lambda x, *, axis, keepdims: np.any(x, axis=axis, keepdims=keepdims),
        _reduced((dtypes.bool,)),
    )
)
register(
    OpDef(
        "All",
        lambda x, *, axis, keepdims: np.all(x, axis=axis, keepdims=keepdims),
        _reduced((dtypes.bool,)),
    )
)


def reduce_any(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return whether any element along axes is true. TF1: ``tf.reduce_any``."""
    return _reduce("Any", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def reduce_all(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return whether all elements along axes are true. TF1: ``tf.reduce_all``."""
    return _reduce("All", input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


def _log_sum_exp(x: Array, *, axis: Any, keepdims: Any) -> Any:
    if not x.size:
        return np.log(np.add.reduce(np.exp(x), axis=axis, keepdims=keepdims))
    top = np.maximum.reduce(x, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    total = np.add.reduce(np.exp(x - top), axis=axis, keepdims=keepdims)
    return np.log(total) + (top if keepdims else top.reshape(np.shape(total)))


def _log_sum_exp_gradient(op: Operation, grad: Tensor) -> Gradients:
    (x,) = op.inputs
    share = create_op("Exp", (x - _expanded(op.outputs[0], op),))
    return [share * _expanded(grad, op)]


register(OpDef("LogSumExp", _log_sum_exp, _reduced(rules.FLOATS), _log_sum_exp_gradient))


def reduce_logsumexp(
    input_tensor: Any,
    axis: Any = None,
    keepdims: bool | None = None,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:
    """Return ``log(sum(exp(x)))`` along axes, safe from overflow. TF1: ``tf.reduce_logsumexp``."""
    return _reduce(
        "LogSumExp",
        input_tensor,
        axis,
        keepdims,
        name or "ReduceLogSumExp",
        reduction_indices,
        keep_dims,
    )
