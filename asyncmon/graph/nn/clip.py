"""Clipping of values and gradients by bounds and norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.indexed_slices import IndexedSlices
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.shape import merge
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.elementwise import add_n, logical_or, maximum, sqrt, square
from asyncmon.graph.ops.reduce import reduce_sum
from asyncmon.graph.ops.shape_ops import unbroadcast


def _clip_rule(x: Spec, low: Spec, high: Spec) -> Spec:
    rules.check_dtype(x.dtype, rules.REALS, "t")
    for bound, name in ((low, "clip_value_min"), (high, "clip_value_max")):
        rules.check_same_dtype("ClipByValue", x, bound, ("t", name))
    merge(x.shape, rules.broadcast(x.shape, rules.broadcast(low.shape, high.shape)))
    return Spec(x.dtype, x.shape)


def _clip_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, low, high = op.inputs
    zero = create_op("ZerosLike", (grad,))
    below, above = x < low, x > high
    return [
        create_op("SelectV2", (logical_or(below, above), zero, grad)),
        unbroadcast(create_op("SelectV2", (below, grad, zero)), low, x),
        unbroadcast(create_op("SelectV2", (above, grad, zero)), high, x),
    ]


register(OpDef("ClipByValue",
    lambda x, low, high, out=None: np.maximum(np.minimum(x, high), low, out=out),
    _clip_rule, _clip_gradient, elementwise=True))  # fmt: skip


def clip_by_value(t: Any, clip_value_min: Any, clip_value_max: Any, name: str | None = None) -> Any:
    """Limit values to an interval.

    TF1: ``tf.clip_by_value``.

    Args:
        t: a tensor, or an :class:`IndexedSlices`; the result is of the same type.
        clip_value_min: the lower bound; broadcasts.
        clip_value_max: the upper bound; broadcasts.
        name: the node's name.
    """

    def clip(x: Tensor) -> Tensor:
        bounds = [_in_dtype(x.dtype, bound) for bound in (clip_value_min, clip_value_max)]
        return create_op("ClipByValue", (x, *bounds), None, name or "clip_by_value")

    return _map_values(clip, t)


def _in_dtype(dtype: DType | None, value: Any) -> Tensor:
    """Return a value as a tensor; a value that is not a tensor gets the dtype."""
    return convert_to_tensor(value, None if is_tensor_like(value) else dtype)


def _map_values(function: Callable[[Tensor], Tensor], t: Any) -> Any:
    """Apply a function to a tensor, or to the values of slices."""
    if isinstance(t, IndexedSlices):
        return IndexedSlices(function(t.values), t.indices, t.dense_shape)
    return function(convert_to_tensor(t))


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Scale a tensor down to a Euclidean norm of at most ``clip_norm``.

    TF1: ``tf.clip_by_norm``.

    Args:
        t: a tensor, or an :class:`IndexedSlices`; the result is of the same type.
        clip_norm: the maximum norm.
        axes: the axes of the norm; by default all.
        name: the scope of the ops.
    """

    def clip(x: Tensor) -> Tensor:
        with name_scope(name, "clip_by_norm", [x]) as scope:
            norm = sqrt(reduce_sum(square(x), axes, True))
            limit = _in_dtype(x.dtype, clip_norm)
            return create_op("RealDiv", (x * limit, maximum(norm, limit)), None, scope)

    return _map_values(clip, t)


def global_norm(t_list: Sequence[Any], name: str | None = None) -> Tensor:
    """Return the Euclidean norm of all elements of several tensors. TF1: ``tf.global_norm``.

    Args:
        t_list: tensors, :class:`IndexedSlices` or None, which is skipped.
        name: the scope of the ops.

    Raises:
        TypeError: ``t_list`` is not a sequence.
    """
    if not isinstance(t_list, list | tuple):
        raise TypeError("t_list should be a sequence")
    tensors = [_values(t) for t in t_list if t is not None]
    if not tensors:
        return convert_to_tensor(0.0, name=name or "global_norm")
    with name_scope(name, "global_norm", tensors):
        halves = [create_op("L2Loss", (t,)) for t in tensors]
        return sqrt(add_n(halves) * 2, "global_norm")


def _values(t: Any) -> Tensor:
    return t.values if isinstance(t, IndexedSlices) else convert_to_tensor(t)


def clip_by_global_norm(
    t_list: Sequence[Any], clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Tensor]:
    """Scale tensors down to a global norm of at most ``clip_norm``; return them and the original norm.

    TF1: ``tf.clip_by_global_norm``. A norm that is not finite makes all results NaN, as in TF1.

    Args:
        t_list: tensors, :class:`IndexedSlices` or None, which stays None.
        clip_norm: the maximum norm.
        use_norm: the global norm, if it is computed already.
        name: the scope of the ops.

    Raises:
        TypeError: ``t_list`` is not a sequence.
    """
    if use_norm is None:
        norm = global_norm(t_list)
    else:
        norm = _in_dtype(next((_values(t).dtype for t in t_list if t is not None), None), use_norm)
    with name_scope(name, "clip_by_global_norm", [norm]):
        scale = create_op("GlobalNormScale", (norm, _in_dtype(norm.dtype, clip_norm)))
        return [t if t is None else _map_values(lambda x: x * scale, t) for t in t_list], norm


def _norm_scale_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    norm, limit = op.inputs
    flow = cast(norm > limit, norm.dtype) * grad
    return [-(flow * limit / (norm * norm)), flow / norm]


register(OpDef("GlobalNormScale",
    lambda norm, limit: np.where(np.isfinite(norm), np.minimum(np.divide(limit, norm), 1), np.nan),
    rules.binary("GlobalNormScale", rules.FLOATS), _norm_scale_gradient))  # fmt: skip
