"""What the gradient of a product needs: for each element the product of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.create import one_hot
from asyncmon.graph.ops.create import range as range_op
from asyncmon.graph.ops.join import concat
from asyncmon.graph.ops.shape_ops import expand_dims, reshape, shape, transpose

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Axes = tuple[int, ...] | None

__all__ = ["product_of_others"]


def product_of_others(x: Tensor, axis: Axes) -> Tensor:
    """Return for each element of x the product of the others along axes; all axes for None."""
    return create_op("ProdOfOthers", (x,), {"axis": axis})


def _product_of_others(x: Array, *, axis: Axes) -> Any:
    """Exact also where elements are zero, for it does not divide."""
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


def _gradient(op: Operation, grad: Tensor) -> list[Tensor]:
    (x,) = op.inputs
    (by_x,) = gradients(_written_out(x, op.attrs["axis"]), x, grad)
    return [by_x]


def _written_out(x: Tensor, axis: Axes) -> Tensor:
    """Return the products of rows with a 1 in turn for each element: exact derivatives of any order.

    Takes the square of the memory; who differentiates a product twice multiplies few numbers.
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
    size = shape(rows)[-1]
    own = one_hot(range_op(size), size, dtype=rows.dtype)
    others = expand_dims(rows, -2) * (1 - own) + own
    return reshape(create_op("Prod", (others,), {"axis": (-1,), "keepdims": False}), result_shape)


register(
    OpDef("ProdOfOthers", _product_of_others, lambda x, *, axis: Spec(x.dtype, x.shape), _gradient)
)
