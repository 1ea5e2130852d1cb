"""Normalization over neighbouring channels, fused batch normalization, and moments with weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import convert_to_tensor, name_scope
from asyncmon.graph.construction.convert import renamed_argument, static_axes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.nn.images import check_data_format
from asyncmon.graph.nn.normalization import batch_normalization, normalized_batch
from asyncmon.graph.ops.arithmetic import (
    add,
    div_no_nan,
    maximum,
    multiply,
    squared_difference,
    subtract,
)
from asyncmon.graph.ops.compare import less_equal
from asyncmon.graph.ops.create import range as range_of
from asyncmon.graph.ops.create import zeros_like
from asyncmon.graph.ops.functions import abs as absolute
from asyncmon.graph.ops.functions import reciprocal, square
from asyncmon.graph.ops.linalg import tensordot
from asyncmon.graph.ops.reduce import reduce_prod, reduce_sum
from asyncmon.graph.ops.shape_ops import cast, expand_dims, in_single, reshape, shape, size, squeeze

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> Tensor:
    """Return ``input / (bias + alpha * s) ** beta``, s the squares of neighbouring channels summed.

    TF1: ``tf.nn.local_response_normalization``, ``tf.nn.lrn``.

    Args:
        input: images, ``[batch, height, width, depth]``.
        depth_radius: how many channels to either side are neighbours.
        bias: see above, as the next two.
        alpha: see above.
        beta: see above.
        name: the scope of the ops.
    """
    with name_scope(name, "LRN") as scope:
        value = convert_to_tensor(input)
        rules.check_dtype(value.dtype, rules.FLOATS, "input")
        rules.with_rank(value.spec.shape, 4)
        x = in_single(value)
        at = range_of(shape(x)[3])
        near = less_equal(absolute(expand_dims(at, 1) - at), depth_radius)
        sums = tensordot(square(x), cast(near, x.dtype), [[3], [0]])
        scale = (sums * alpha + bias) ** -beta
        if value.dtype is x.dtype:
            return multiply(x, scale, name=scope)
        return cast(x * scale, value.dtype, name=scope)


lrn = local_response_normalization


def fused_batch_norm(
    x: Any,
    scale: Any,
    offset: Any,
    mean: Any = None,
    variance: Any = None,
    epsilon: float = 0.001,
    data_format: str = "NHWC",
    is_training: bool = True,
    name: str | None = None,
    exponential_avg_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a batch of images normalized, a mean and a variance. TF1: ``tf.nn.fused_batch_norm``.

    Args:
        x: images, ``[batch, height, width, depth]``.
        scale: vector of the size of the depth.
        offset: likewise.
        mean: likewise; in training the running mean, which only a factor other than 1 needs.
        variance: likewise.
        epsilon: added to the variance.
        data_format: "NCHW" for images of ``[batch, depth, height, width]``.
        is_training: normalize by the batch's own moments, and return its mean and its unbiased
            variance; else by those given, which are returned.
        name: the scope of the ops.
        exponential_avg_factor: how much of the batch's moments there is in those returned, the rest is
            of those given.

    Raises:
        ValueError: no mean or variance where they are needed, or images of an unknown rank.
    """
    mixes = exponential_avg_factor != 1.0
    if (not is_training or mixes) and (mean is None or variance is None):
        raise ValueError(
            "Both `mean` and `variance` must be a 1D tensor when `is_training` is False or "
            f"`exponential_avg_factor` != 1.0. Received: `mean` {mean!r} and `variance` {variance!r}"
        )
    at = 3 if check_data_format(data_format) == "NHWC" else 1
    with name_scope(name, "FusedBatchNorm"):
        value = convert_to_tensor(x)
        rules.with_rank(value.spec.shape, 4)
        wide = in_single(value)
        factor, shift = (convert_to_tensor(v, wide.dtype) for v in (scale, offset))
        if not is_training:
            own_mean, spread = (convert_to_tensor(v, wide.dtype) for v in (mean, variance))
            along = [-1 if i == at else 1 for i in range(4)]
            parts = (reshape(v, along) for v in (own_mean, spread, shift, factor))
            centre, width, moved, scaled = parts
            y = batch_normalization(wide, centre, width, moved, scaled, epsilon)
            return cast(y, value.dtype), own_mean, spread
        y, own_mean, biased = normalized_batch(wide, factor, shift, at, epsilon)
        count = cast(size(wide), wide.dtype) / cast(shape(wide)[at], wide.dtype)
        unbiased = biased * (count / maximum(count - 1, 1.0))
        if mixes:
            kept = 1 - exponential_avg_factor
            own_mean = own_mean * exponential_avg_factor + convert_to_tensor(mean) * kept
            unbiased = unbiased * exponential_avg_factor + convert_to_tensor(variance) * kept
        return cast(y, value.dtype), own_mean, unbiased


def batch_norm_with_global_normalization(
    t: Any = None,
    m: Any = None,
    v: Any = None,
    beta: Any = None,
    gamma: Any = None,
    variance_epsilon: Any = None,
    scale_after_normalization: Any = None,
    name: str | None = None,
    input: Any = None,
    mean: Any = None,
    variance: Any = None,
) -> Tensor:
    """As :func:`batch_normalization`, under older names. TF1: same name, in ``tf.nn``."""
    x = renamed_argument("input", input, "t", t)
    centre, spread = (
        renamed_argument("mean", mean, "m", m),
        renamed_argument("variance", variance, "v", v),
    )
    scale = gamma if scale_after_normalization else None
    return batch_normalization(x, centre, spread, beta, scale, variance_epsilon, name)


def weighted_moments(
    x: Any,
    axes: Any,
    frequency_weights: Any,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return mean and variance along axes, of values that count by weights.

    TF1: ``tf.nn.weighted_moments``. ``frequency_weights`` broadcasts against ``x``; where all are 0, so
    are the moments. The other arguments are those of :func:`moments`.
    """
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "weighted_moments"):
        value, along = convert_to_tensor(x), static_axes(axes, "axes")
        wide = in_single(value)
        weights = cast(frequency_weights, wide.dtype)
        total = reduce_sum(weights + zeros_like(wide), along, True)
        mean = div_no_nan(reduce_sum(weights * wide, along, True), total)
        spread = reduce_sum(weights * squared_difference(wide, mean), along, True)
        variance = div_no_nan(spread, total)
        if not keep:
            mean, variance = (squeeze(part, along) for part in (mean, variance))
        return cast(mean, value.dtype), cast(variance, value.dtype)


def sufficient_statistics(
    x: Any,
    axes: Any,
    shift: Any = None,
    keep_dims: bool | None = None,
    name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return count, sum and sum of squares along axes, and the shift.

    TF1: ``tf.nn.sufficient_statistics``. ``shift`` is taken from ``x`` before both sums;
    :func:`normalize_moments` makes moments of the four.
    """
    keep = bool(renamed_argument("keepdims", keepdims, "keep_dims", keep_dims))
    with name_scope(name, "sufficient_statistics"):
        value, along = convert_to_tensor(x), static_axes(axes, "axes")
        sizes = shape(value)
        axis = range(len(value.shape)) if along is None else sorted(set(along))
        count = reduce_prod(cast(convert_to_tensor([sizes[i] for i in axis]), value.dtype))
        by = None if shift is None else convert_to_tensor(shift, value.dtype)
        moved = value if by is None else value - by
        total = reduce_sum(moved, along, keep, "mean_ss")
        return count, total, reduce_sum(square(moved), along, keep, "var_ss"), by


def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean and variance of :func:`sufficient_statistics`. TF1: ``tf.nn.normalize_moments``."""
    with name_scope(name, "normalize"):
        each = reciprocal(counts)
        moved = multiply(mean_ss, each, "mean" if shift is None else "shifted_mean")
        variance = subtract(multiply(variance_ss, each), square(moved), "variance")
        return moved if shift is None else add(moved, shift, "mean"), variance
