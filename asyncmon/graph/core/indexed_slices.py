"""A gradient of which only some rows are not zero. TF1: ``tf.IndexedSlices``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.graph import Graph
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


__all__ = ["IndexedSlices", "IndexedSlicesValue", "add_up", "to_dense"]


class IndexedSlicesValue(NamedTuple):
    """What a run returns for a fetched :class:`IndexedSlices`. TF1: same name."""

    values: Any
    indices: Any
    dense_shape: Any = None


class IndexedSlices:
    """Rows of a big tensor: ``dense[indices[i]] += values[i]``, and zeros elsewhere. TF1: same name.

    Stands for its dense tensor wherever a tensor is expected.

    Args:
        values: the rows, a tensor of shape ``[n, ...]``.
        indices: which rows they are, an integer tensor of shape ``[n]``; a row may come twice.
        dense_shape: the shape of the whole, an integer vector. Without it, it stands for no tensor, but
            can be applied to a variable.
    """

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.values.dtype

    @property
    def graph(self) -> Graph:
        """The graph of the values."""
        return self.values.graph

    @property
    def name(self) -> str:
        """The name of the values."""
        return self.values.name

    @property
    def op(self) -> Operation:
        """The operation that computes the values."""
        return self.values.op

    def _as_tensor(self) -> Tensor:
        if self.dense_shape is None:
            raise ValueError(f"Tensor conversion requires dense_shape, which {self!r} has not.")
        return create_op("UnsortedSegmentSum", (self.values, self.indices, self.dense_shape[0]))

    def __repr__(self) -> str:
        return (
            f"IndexedSlices(indices={self.indices!r}, values={self.values!r}, "
            f"dense_shape={self.dense_shape!r})"
        )


def to_dense(grad: Any) -> Any:
    """Return slices as a tensor; anything else as it is."""
    return grad._as_tensor() if isinstance(grad, IndexedSlices) else grad


def add_up(grads: Sequence[Any]) -> Any:
    """Return the sum of gradients of one tensor: slices, if all of them are."""
    if len(grads) == 1:
        return grads[0]
    if all(isinstance(grad, IndexedSlices) for grad in grads):
        values = create_op("ConcatV2", [grad.values for grad in grads], {"axis": 0})
        indices = create_op("ConcatV2", [grad.indices for grad in grads], {"axis": 0})
        return IndexedSlices(values, indices, grads[0].dense_shape)
    dense = [to_dense(grad) for grad in grads]
    return create_op("AddV2" if len(dense) == 2 else "AddN", dense, None, "AddN")


def sum_rows(values: Array, indices: Array, count: Any) -> Any:
    """Add up the rows of each index; rows of a negative index are dropped."""
    if values.shape[: np.ndim(indices)] != np.shape(indices):
        raise InvalidArgumentError(
            f"data.shape = {list(values.shape)} does not start with segment_ids.shape = "
            f"{list(np.shape(indices))}"
        )
    result = np.zeros((int(count), *values.shape[np.ndim(indices) :]), values.dtype)
    flat = np.reshape(indices, -1)
    rows = np.reshape(values, (flat.size, *result.shape[1:]))
    if flat.size and flat.min() < 0:
        rows, flat = rows[flat >= 0], flat[flat >= 0]
    scatter_add(result, flat, rows)
    return result


def scatter_add(target: Array, indices: Array, rows: Array) -> None:
    """Add each row at its index, in place; equal indices add up."""
    if not indices.size:
        return
    if target.ndim == 1 and target.dtype.kind == "f":
        target += np.bincount(indices, rows, target.size).astype(target.dtype, copy=False)
        return
    order = np.argsort(indices, kind="stable")
    picked = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], picked[1:] != picked[:-1])))
    target[picked[starts]] += np.add.reduceat(rows[order], starts, axis=0, dtype=target.dtype)


def _segment_spec(values: Spec, indices: Spec, count: Spec) -> Spec:
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


def _rows_of_spec(x: Spec, indices: Spec) -> Spec:
    known = x.shape is not None and indices.shape is not None
    return Spec(x.dtype, (*(indices.shape or ()), *(x.shape or ())[1:]) if known else None)


def _rows_of_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, indices = op.inputs
    count = create_op("Shape", (x,))[0]
    return [create_op("UnsortedSegmentSum", (grad, indices, count)), None]


register(OpDef("UnsortedSegmentSum", sum_rows, _segment_spec, _segment_gradient))
register(OpDef("RowsOf", _rows_of, _rows_of_spec, _rows_of_gradient))


def unsorted_segment_sum(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the sum of the rows of each segment; negative ids are dropped.

    TF1: ``tf.unsorted_segment_sum``.
    """
    return create_op("UnsortedSegmentSum", (data, segment_ids, num_segments), None, name)
