"""Axes that are tensors: an op along one is the same op along the middle of three dimensions.

An axis that is known when the graph is built is an attribute of the node. For an axis of the run,
:func:`folded` merges the dimensions before it, and those after it, and :func:`with_size` restores them.
So each op needs one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, create_ops
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.numerics.arrays import Array

_INDEX_TYPES = (dtypes.int32, dtypes.int64)


# --- around one axis ------------------------------------------------------------------------------
def _position(axis: Any, rank: int, slots: int = 0) -> int:
    """Return an axis as a non-negative int, of ``rank`` and ``slots`` more dimensions."""
    if np.size(axis) != 1:
        raise InvalidArgumentError(f"axis must be one integer, got {np.asarray(axis).tolist()}")
    value, end = int(np.reshape(axis, ())), rank + slots
    if not -end <= value < end:
        raise InvalidArgumentError(f"Invalid axis {value}: expected a value in [{-end}, {end})")
    return value % end


def _around(sizes: Array, axis: Array) -> Array:
    at = _position(axis, len(sizes))
    listed = sizes.tolist()
    return np.array([prod(listed[:at]), listed[at], prod(listed[at + 1 :])], sizes.dtype)


def _replaced(sizes: Array, axis: Array, new: Array, *, insert: bool) -> Array:
    at = _position(axis, len(sizes), int(insert))
    return np.concatenate([sizes[:at], new.astype(sizes.dtype), sizes[at + (not insert) :]])


def _replaced_rule(sizes: Spec, axis: Spec, new: Spec, *, insert: bool) -> Spec:
    (rank,), (count,) = rules.with_rank(sizes.shape, 1), rules.with_rank(new.shape, 1)
    return Spec(sizes.dtype, (None if rank is None or count is None else rank + count - (not insert),))


register(OpDef("ShapeAround", _around, lambda sizes, axis: Spec(sizes.dtype, (3,)), ZERO))
register(OpDef("ShapeWithSize", _replaced, _replaced_rule, ZERO))


def _shape(x: Any) -> Tensor:
    return create_op("Shape", (x,))


def _reshaped(x: Any, sizes: Tensor) -> Tensor:
    return create_op("Reshape", (x, sizes))


def folded(x: Any, axis: Tensor) -> Tensor:
    """Reshape ``x`` to three dimensions, of which the middle one is the axis."""
    return _reshaped(x, create_op("ShapeAround", (_shape(x), axis)))


def with_size(y: Tensor, x: Any, axis: Tensor, new: Any, insert: bool = False) -> Tensor:
    """Reshape ``y`` to the shape of ``x`` with the sizes ``new`` in place of an axis.

    With ``insert`` they are added before the axis.
    """
    sizes = convert_to_tensor(new if len(np.shape(new)) else np.zeros(0, np.int32))
    return _reshaped(y, create_op("ShapeWithSize", (_shape(x), axis, sizes), {"insert": insert}))


def along(function: Callable[[Tensor, int], Tensor], x: Any, axis: int | Tensor) -> Tensor:
    """Apply a function of a tensor and an axis that keeps the shape."""
    tensor = convert_to_tensor(x)
    if isinstance(axis, int):
        return function(tensor, axis)
    return _reshaped(function(folded(tensor, axis), 1), _shape(tensor))


# --- reductions -----------------------------------------------------------------------------------
def _reduced(sizes: Array, axes: Array, *, keepdims: bool) -> tuple[Array, Array, Array]:
    rank, listed = len(sizes), np.ravel(axes).tolist()
    for axis in listed:
        if not -rank <= axis < rank:
            raise InvalidArgumentError(
                f"Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
            )
    gone = [axis % rank for axis in listed]
    check_distinct(gone)
    kept = [i for i in range(rank) if i not in gone]
    rows = [*sizes[kept].tolist(), prod(sizes[gone].tolist())]
    result = np.array(sizes)
    result[gone] = 1
    order = np.array([*kept, *gone], np.int32)
    return order, np.array(rows, sizes.dtype), result if keepdims else sizes[kept]


def check_distinct(axes: list[int]) -> None:
    """Raise ValueError if an axis is to be reduced twice."""
    for axis in axes:
        if axes.count(axis) > 1:
            raise ValueError(f"Invalid reduction arguments: Axes contains duplicate dimension: {axis}")


def _reduced_rule(sizes: Spec, axes: Spec, *, keepdims: bool) -> tuple[Spec, ...]:
    rules.check_dtype(axes.dtype, _INDEX_TYPES, "reduction_indices")
    own = rules.with_rank(sizes.shape, 1)
    kept = own if keepdims else (None,)
    return Spec(dtypes.int32, own), Spec(sizes.dtype, (None,)), Spec(sizes.dtype, kept)


register(OpDef("ReducedShape", _reduced, _reduced_rule, ZERO))


def reduced(function: Callable[[Tensor], Tensor], x: Any, axes: Tensor, keepdims: bool) -> Tensor:
    """Apply ``function``, a reduction of the last axis, to several axes that are a tensor."""
    tensor = convert_to_tensor(x)
    order, rows, result = create_ops("ReducedShape", (_shape(tensor), axes), {"keepdims": keepdims})
    moved = create_op("Transpose", (tensor, order), {"perm": None})
    return _reshaped(function(_reshaped(moved, rows)), result)


# --- permutations ---------------------------------------------------------------------------------
def _inverse(x: Array) -> Array:
    count = len(x)
    if sorted(x.tolist()) != list(range(count)):
        raise InvalidArgumentError(f"Not a permutation of 0 to {count - 1}: {x.tolist()}")
    result = np.empty_like(x)
    result[x] = np.arange(count, dtype=x.dtype)
    return result


def _inverse_rule(x: Spec) -> Spec:
    rules.check_dtype(x.dtype, _INDEX_TYPES)
    return Spec(x.dtype, rules.with_rank(x.shape, 1))


register(OpDef("InvertPermutation", _inverse, _inverse_rule, ZERO))
