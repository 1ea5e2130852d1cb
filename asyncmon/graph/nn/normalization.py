"""Moments, normalization and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import (
    axes_of,
    convert_to_tensor,
    create_op,
    create_ops,
    name_scope,
    shape_tensor,
)
from asyncmon.graph.core.convert import is_tensor_like, renamed_argument
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import merge, merge_dim
from asyncmon.graph.numerics.arrays import Array, as_out, ones
from asyncmon.graph.ops.basic import cast, in_single, stop_gradient
from asyncmon.graph.ops.create import zeros_like
from asyncmon.graph.ops.elementwise import (
    maximum,
    rsqrt,
    square,
    squared_difference,
)
from asyncmon.graph.ops.random_ops import random_uniform
from asyncmon.graph.ops.reduce import reduce_mean, reduce_min, reduce_sum
from asyncmon.graph.ops.shape_ops import reshape


def moments(
    x: Any,
    axes: Any,
    shift: Any = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes. TF1: ``tf.nn.moments``.

    Args:
        x: a tensor; half precision is computed in float32.
        axes: the axes, which may be a tensor.
        shift: without effect, as in TF1.
        name: the scope of the ops.
        keep_dims: old name of ``keepdims``.
        keepdims: keep the axes, with size 1.
    """
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "moments"):
        value, axis = convert_to_tensor(x), axes_of(axes, "axes")
        wide = in_single(value)
        mean = reduce_mean(wide, axis, True, "mean")
        squares = squared_difference(wide, stop_gradient(mean))
        variance = reduce_mean(squares, axis, True, "variance")
        if not keep and (axis is None or isinstance(axis, tuple)):
            mean, variance = _without(mean, axis), _without(variance, axis)
        elif not keep:  # all elements along the axes are equal
            mean, variance = reduce_min(mean, axis), reduce_min(variance, axis)
        return cast(mean, value.dtype), cast(variance, value.dtype)


def _without(reduced: Tensor, axis: tuple[int, ...] | None) -> Tensor:
    if axis is None:
        return reshape(reduced, [])
    return create_op("Squeeze", (reduced,), {"axis": axis}) if axis else reduced


def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    offset: Any,
    scale: Any,
    variance_epsilon: Any,
    name: str | None = None,
) -> Tensor:
    """Return ``scale * (x - mean) / sqrt(variance + variance_epsilon) + offset``.

    TF1: ``tf.nn.batch_normalization``.

    Args:
        x: the tensor.
        mean: broadcasts with ``x``, as do the next three; they may have a wider dtype.
        variance: likewise.
        offset: likewise; None adds nothing.
        scale: likewise; None scales nothing.
        variance_epsilon: prevents a division by zero.
        name: the scope of the ops.
    """
    with name_scope(name, "batchnorm"):
        value = convert_to_tensor(x)
        inverse: Any = rsqrt(variance + variance_epsilon)
        if scale is not None:
            inverse = inverse * scale
        shift = -(inverse * mean) if offset is None else offset - inverse * mean
        return value * cast(inverse, value.dtype) + cast(shift, value.dtype)


# --- dropout ---------------------------------------------------------------------------------------


def _drop(x: Array, draws: Array, rate: Array) -> Array:
    kept = np.multiply(x, np.greater_equal(draws, rate))
    return np.multiply(kept, np.divide(1, np.subtract(1, rate)), out=as_out(kept))


def _drop_rule(x: Spec, draws: Spec, rate: Spec) -> Spec:
    for other, name in ((draws, "draws"), (rate, "rate")):
        rules.check_same_dtype("Dropout", x, other, ("x", name))
    merge(x.shape, rules.broadcast(x.shape, draws.shape))
    return Spec(x.dtype, x.shape)


register(OpDef("Dropout", _drop, _drop_rule,
    lambda op, grad: [create_op("Dropout", (grad, *op.inputs[1:])), None, None]))  # fmt: skip


def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Tensor:
    """Set random elements to 0 and scale the others up to keep the expected sum.

    TF1: ``tf.nn.dropout``.

    Args:
        x: a tensor of floats.
        keep_prob: ``1 - rate``, TF1's older argument.
        noise_shape: the shape of the random choices, which broadcasts; 1 to drop whole rows.
        seed: the random seed.
        name: the scope of the ops.
        rate: the probability to drop an element, in [0, 1); a number or a scalar tensor.

    Raises:
        ValueError: neither or both of ``rate`` and ``keep_prob``, or a number out of range; not floats.
    """
    rate = renamed_argument("rate", rate, "keep_prob", None if keep_prob is None else 1 - keep_prob)
    if rate is None:
        raise ValueError("You must provide a rate to dropout.")
    value = convert_to_tensor(x)
    if not value.dtype.is_floating:
        raise ValueError(
            f"x has to be a floating point tensor since it will be scaled. Got {value.dtype.name}"
        )
    if not is_tensor_like(rate):
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be a scalar tensor or a float in the range [0, 1), got {rate}")
        if rate == 0:
            return value
    with name_scope(name, "dropout"):
        chance = convert_to_tensor(rate, None if is_tensor_like(rate) else value.dtype)
        rules.with_rank(chance.spec.shape, 0)
        draws = random_uniform(_noise_shape(value, noise_shape), seed=seed, dtype=value.dtype)
        if noise_shape is None:
            draws.set_shape(value.spec.shape)
        return create_op("Dropout", (value, draws, chance))


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    if noise_shape is None:
        known = x.spec.shape
        return create_op("Shape", (x,)) if known is None or None in known else list(known)
    if is_tensor_like(noise_shape):
        return noise_shape
    dims = list(noise_shape)
    if None in dims:  # as in x
        shape = create_op("Shape", (x,))
        dims = [shape[i] if d is None else d for i, d in enumerate(dims)]
    return shape_tensor(dims)


def l2_normalize(
    x: Any, axis: Any = None, epsilon: Any = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """Scale a tensor to a Euclidean norm of 1 along axes. TF1: ``tf.nn.l2_normalize``.

    Args:
        x: the tensor.
        axis: the axes; by default all.
        epsilon: the minimum of the sum of squares in the divisor.
        name: the scope of the ops.
        dim: old name of ``axis``.
    """
    axes = renamed_argument("axis", axis, "dim", dim)
    with name_scope(name, "l2_normalize") as scope:
        value = convert_to_tensor(x)
        squares = reduce_sum(square(value), axes, True)
        bounded = maximum(squares, convert_to_tensor(epsilon, value.dtype))
        return create_op("Mul", (value, rsqrt(bounded)), None, scope)


# --- normalization of a batch by its moments --------------------------------------------------------


def normalized_batch(
    x: Tensor, scale: Tensor, offset: Tensor, axis: int, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch normalized along ``axis``, and its mean and variance, as one op.

    Args:
        x: the batch.
        scale: vector of the size of ``axis``.
        offset: likewise.
        axis: the dimension of the channels, which have moments of their own; not negative.
        epsilon: added to the variance.
    """
    attrs = {"axis": axis, "epsilon": epsilon}
    y, mean, variance, _ = create_ops("BatchNorm", (x, scale, offset), attrs)
    return y, mean, variance


def _columns(x: Array, axis: int) -> Array:
    """Return a matrix with a column for each element of the axis; a view if possible."""
    return np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])


def _from_columns(columns: Array, x: Array, axis: int) -> Array:
    return np.moveaxis(columns.reshape(np.moveaxis(x, axis, -1).shape), -1, axis)


def _mean_of_rows(x: Array) -> Array:
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
    return _from_columns(centered, x, axis), mean, variance, inverse


def _batch_norm_rule(x: Spec, scale: Spec, offset: Spec, *, axis: int, epsilon: float) -> Any:
    size = None if x.shape is None else x.shape[axis]
    for vector, name in ((scale, "scale"), (offset, "offset")):
        rules.check_same_dtype("BatchNorm", x, vector, ("x", name))
        size = merge_dim(size, *rules.with_rank(vector.shape, 1))
    return Spec(x.dtype, x.shape), *(Spec(x.dtype, (size,)) for _ in range(3))


def _batch_norm_gradient(
    op: Operation, grad: Tensor | None, *others: Tensor | None
) -> list[Tensor | None]:
    x, scale, _ = op.inputs
    if any(other is not None for other in others):
        return _gradients(_composed(*op.inputs, **op.attrs), op.inputs, (grad, *others))
    _, mean, _, inverse = op.outputs
    return list(create_ops("BatchNormGrad", (x, grad, scale, mean, inverse), op.attrs))


def _batch_norm_grad(
    x: Array, grad: Array, scale: Array, mean: Array, inverse: Array, *, axis: int, epsilon: float
) -> tuple[Array, Array, Array]:
    columns, flow = _columns(x, axis), _columns(grad, axis)
    count, one = len(flow), ones(len(flow), flow.dtype)
    normal = np.subtract(columns, mean)
    normal *= inverse
    grad_offset = np.dot(one, flow)
    weighted = np.multiply(normal, flow)
    grad_scale = np.dot(one, weighted)
    # dx = scale * inverse * (dy - mean(dy) - normal * mean(dy * normal))
    normal *= grad_scale / count
    np.subtract(flow, normal, out=weighted)
    weighted -= grad_offset / count
    weighted *= scale * inverse
    return _from_columns(weighted, x, axis), grad_scale, grad_offset


def _batch_norm_grad_gradient(op: Operation, *grads: Tensor | None) -> list[Tensor | None]:
    """Differentiate through the moments; the last two inputs get no gradient."""
    x, grad, scale, _, _ = op.inputs
    inputs = (x, scale, zeros_like(scale))
    first = _gradients(_composed(*inputs, **op.attrs)[:1], inputs, [grad])
    return [*_gradients(first, (x, grad, scale), grads), None, None]


def _gradients(
    ys: Sequence[Tensor | None], xs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the gradients of ``ys`` with respect to ``xs``, with other ``xs`` constant."""
    pairs = [(y, grad) for y, grad in zip(ys, grads, strict=True) if grad is not None]
    return gradients([y for y, _ in pairs], xs, [grad for _, grad in pairs], stop_gradients=xs)


def _composed(
    x: Tensor, scale: Tensor, offset: Tensor, *, axis: int, epsilon: float
) -> tuple[Tensor, ...]:
    """Return the outputs of BatchNorm, composed of ordinary ops."""
    rank = len(x.shape)
    axes = tuple(a for a in range(rank) if a != axis)
    shape = [-1 if a == axis else 1 for a in range(rank)]
    mean = reduce_mean(x, axes, True)
    centered = x - mean
    variance = reduce_mean(square(centered), axes, True)
    inverse = rsqrt(variance + epsilon)
    y = centered * inverse * reshape(scale, shape) + reshape(offset, shape)
    return y, *(reshape(part, [-1]) for part in (mean, variance, inverse))


register(OpDef("BatchNorm", _batch_norm, _batch_norm_rule, _batch_norm_gradient))
register(OpDef("BatchNormGrad", _batch_norm_grad, lambda x, grad, scale, *_, **attrs:
    tuple(rules.like_first(spec) for spec in (x, scale, scale)),
    _batch_norm_grad_gradient))  # fmt: skip
