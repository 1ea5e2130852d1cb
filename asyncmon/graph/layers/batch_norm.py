"""Batch normalisation in training as one op, with its gradient as another."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import create_op, create_ops
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.shape_ops import reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["normalized_batch"]


def normalized_batch(
    x: Tensor, scale: Tensor, offset: Tensor, axis: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch normalised along ``axis``, and its mean and variance.

    Args:
        x: the batch.
        scale: vector of the size of ``axis``.
        offset: likewise.
        axis: the dimension that keeps its own mean and variance; not negative.
        epsilon: added to the variance.
    """
    y, mean, variance, _ = create_ops(
        "BatchNorm", (x, scale, offset), {"axis": axis, "epsilon": epsilon}
    )
    return y, mean, variance


def _columns(x: Array, axis: int) -> Array:
    """Return a view of, or a copy as, a matrix with a column per element of the axis."""
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _back(columns: Array, x: Array, axis: int) -> Array:
    shape = np.moveaxis(x, axis, -1).shape
    return np.moveaxis(columns.reshape(shape), -1, axis)


def _mean_of_rows(x: Array) -> Array:
    """As fast as BLAS adds up rows."""
    return np.dot(np.full(len(x), 1 / max(len(x), 1), x.dtype), x)


def _batch_norm(
    x: Array, scale: Array, offset: Array, *, axis: int, epsilon: float
) -> tuple[Array, Array, Array, Array]:
    columns = _columns(x, axis)
    mean = _mean_of_rows(columns)
    centered = np.subtract(columns, mean)
    variance = _mean_of_rows(np.square(centered))
    inverse = np.reciprocal(np.sqrt(variance + x.dtype.type(epsilon)))
    centered *= inverse * scale
    centered += offset
    return _back(centered, x, axis), mean, variance, inverse


def _batch_norm_spec(
    x: Spec, scale: Spec, offset: Spec, *, axis: int, epsilon: float
) -> tuple[Spec, Spec, Spec, Spec]:
    for other, name in ((scale, "scale"), (offset, "offset")):
        rules.check_same_dtype("BatchNorm", x, other, ("x", name))
    size = None if x.shape is None else x.shape[axis]
    for other in (scale, offset):
        (other_size,) = rules.with_rank(other.shape, 1)
        size = rules.merge_dim(size, other_size)
    vector = Spec(x.dtype, (size,))
    return Spec(x.dtype, x.shape), vector, vector, vector


def _batch_norm_gradient(
    op: Operation, grad: Tensor | None, *others: Tensor | None
) -> list[Tensor | None]:
    x, scale, offset = op.inputs
    if any(other is not None for other in others):
        written_out = _written_out(x, scale, offset, op.attrs)
        return _flowing(written_out, op.inputs, (grad, *others))
    assert grad is not None  # one of the gradients is there
    _, mean, _, inverse = op.outputs
    return list(create_ops("BatchNormGrad", (x, grad, scale, mean, inverse), op.attrs))


def _batch_norm_grad(
    x: Array, grad: Array, scale: Array, mean: Array, inverse: Array, *, axis: int, epsilon: float
) -> tuple[Array, Array, Array]:
    columns, flow = _columns(x, axis), _columns(grad, axis)
    normal = np.subtract(columns, mean)
    normal *= inverse
    count = prod(flow.shape[:1])
    ones = np.ones(count, flow.dtype)
    grad_offset = np.dot(ones, flow)
    weighted = np.multiply(normal, flow)
    grad_scale = np.dot(ones, weighted)
    # dx = scale * inverse * (dy - mean(dy) - normal * mean(dy * normal))
    normal *= grad_scale / count
    np.subtract(flow, normal, out=weighted)
    weighted -= grad_offset / count
    weighted *= scale * inverse
    return _back(weighted, x, axis), grad_scale, grad_offset


def _batch_norm_grad_spec(
    x: Spec, grad: Spec, scale: Spec, *_: Spec, **__: Any
) -> tuple[Spec, Spec, Spec]:
    vector = Spec(scale.dtype, scale.shape)
    return Spec(x.dtype, x.shape), vector, vector


def _batch_norm_grad_gradient(op: Operation, *grads: Tensor | None) -> list[Tensor | None]:
    """Of the whole way from x on, the moments included: they get no gradients of their own."""
    x, grad, scale, _, _ = op.inputs
    _, mean, _, inverse = _written_out(x, scale, scale, op.attrs)
    axes, shape = _around(x, op.attrs["axis"])
    normal = (x - reshape(mean, shape)) * reshape(inverse, shape)
    rest = grad - _mean(grad, axes) - normal * _mean(grad * normal, axes)
    grad_x = reshape(scale, shape) * reshape(inverse, shape) * rest
    sums = [create_op("Sum", (y,), {"axis": axes, "keepdims": False}) for y in (grad * normal, grad)]
    return [*_flowing((grad_x, *sums), (x, grad, scale), grads), None, None]


def _flowing(
    ys: Sequence[Tensor], xs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of ``ys`` by ``xs`` as if these did not depend on each other."""
    pairs = [(y, grad) for y, grad in zip(ys, grads, strict=True) if grad is not None]
    return gradients([y for y, _ in pairs], xs, [grad for _, grad in pairs], stop_gradients=xs)


def _written_out(x: Tensor, scale: Tensor, offset: Tensor, attrs: dict[str, Any]) -> tuple[Tensor, ...]:
    """Return the outputs of the op, built of others."""
    axes, shape = _around(x, attrs["axis"])
    mean = _mean(x, axes)
    centered = x - mean
    variance = _mean(create_op("Square", (centered,)), axes)
    inverse = create_op("Rsqrt", (variance + attrs["epsilon"],))
    y = centered * inverse * reshape(scale, shape) + reshape(offset, shape)
    return y, *(reshape(part, [-1]) for part in (mean, variance, inverse))


def _around(x: Tensor, axis: int) -> tuple[tuple[int, ...], list[int]]:
    """Return the other axes, and the shape of a vector along the axis that broadcasts to x."""
    rank = len(x.shape)
    return tuple(a for a in range(rank) if a != axis), [-1 if a == axis else 1 for a in range(rank)]


def _mean(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return create_op("Mean", (x,), {"axis": axes, "keepdims": True})


register(OpDef("BatchNorm", _batch_norm, _batch_norm_spec, _batch_norm_gradient))
register(OpDef("BatchNormGrad", _batch_norm_grad, _batch_norm_grad_spec, _batch_norm_grad_gradient))
