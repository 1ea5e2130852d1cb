"""Sums of the rows of a tensor that have equal indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.build import create_op, create_ops
from asyncmon.graph.core.op import OpDef, register
from asyncmon.graph.core.spec import Spec

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


def sum_rows(values: Array, indices: Array, count: Any) -> Any:
    """Add up the rows of each index; rows of a negative index are dropped."""
    result = np.zeros((int(count), *values.shape[np.ndim(indices) :]), values.dtype)
    flat = np.reshape(indices, -1)
    rows = np.reshape(values, (flat.size, *result.shape[1:]))
    if flat.size and flat.min() < 0:
        rows, flat = rows[flat >= 0], flat[flat >= 0]
    add_rows(result, flat, rows)
    return result


def add_rows(target: Array, indices: Array, rows: Array) -> None:
    """Add each row at its index, in place; equal indices add up."""
    if not indices.size:
        return
    if target.ndim == 1 and target.dtype.kind == "f":
        target += np.bincount(indices, rows, target.size).astype(target.dtype, copy=False)
        return
    order = np.argsort(indices, kind="stable")
    ids = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
    target[ids[starts]] += np.add.reduceat(rows[order], starts, axis=0, dtype=target.dtype)


def _segment_rule(values: Spec, indices: Spec, count: Spec) -> Spec:
    rules.check_dtype(values.dtype, rules.NUMBERS, "data")
    (rows,) = count.known_dims() or (None,)
    if values.shape is None or indices.shape is None:
        return Spec(values.dtype, None)
    rules.merge(values.shape[: len(indices.shape)], indices.shape)
    return Spec(values.dtype, (rows, *values.shape[len(indices.shape) :]))


def _segment_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    return [create_op("RowsOf", (grad, op.inputs[1])), None, None]


def _rows_of(x: Array, indices: Array) -> Array:
    """The rows at indices, zeros at negative ones."""
    indices = np.asarray(indices)
    if not len(x):
        return np.zeros((*indices.shape, *x.shape[1:]), x.dtype)
    rows = np.take(x, indices, 0, mode="clip")
    if indices.size and indices.min() < 0:
        rows[indices < 0] = 0
    return rows


def _rows_of_rule(x: Spec, indices: Spec) -> Spec:
    if x.shape is None or indices.shape is None:
        return Spec(x.dtype, None)
    return Spec(x.dtype, indices.shape + x.shape[1:])


def _rows_of_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, indices = op.inputs
    count = create_op("Shape", (x,))[0]
    return [create_op("UnsortedSegmentSum", (grad, indices, count)), None]


register(OpDef("UnsortedSegmentSum", sum_rows, _segment_rule, _segment_gradient))
register(OpDef("RowsOf", _rows_of, _rows_of_rule, _rows_of_gradient))


def unsorted_segment_sum(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the sum of the rows of each segment; negative ids are dropped.

    TF1: ``tf.unsorted_segment_sum``.
    """
    return create_op("UnsortedSegmentSum", (data, segment_ids, num_segments), None, name)


def _unique_rows(values: Array, indices: Array) -> tuple[Array, Array]:
    flat = np.reshape(indices, -1)
    distinct, position = np.unique(flat, return_inverse=True)
    if len(distinct) == len(flat):
        return np.reshape(values, (len(flat), *values.shape[np.ndim(indices) :])), flat
    return sum_rows(values, position.reshape(np.shape(indices)), len(distinct)), distinct


def _unique_rule(values: Spec, indices: Spec) -> tuple[Spec, Spec]:
    if values.shape is None or indices.shape is None:
        return Spec(values.dtype, None), Spec(indices.dtype, (None,))
    rules.merge(values.shape[: len(indices.shape)], indices.shape)
    return Spec(values.dtype, (None, *values.shape[len(indices.shape) :])), Spec(indices.dtype, (None,))


register(OpDef("UniqueRows", _unique_rows, _unique_rule, aliases=True))


def unique_rows(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient with those of equal indices added up, and their indices."""
    rows, kept = create_ops("UniqueRows", (values, indices))
    return rows, kept
