"""Gather and scatter by tensors of indices: gather, gather_nd, scatter_nd, segment sums, top_k."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import (
    axis_of,
    colocate_with,
    convert_to_tensor,
    create_op,
    create_ops,
    shape_tensor,
)
from asyncmon.graph.core.indexed_slices import IndexedSlices
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.core.rules import shape_from
from asyncmon.graph.core.shape import Shape, merge, num_elements
from asyncmon.graph.numerics.arrays import Array, check_inside, nd_index
from asyncmon.graph.ops.axes import folded, with_size
from asyncmon.graph.ops.index import indexing_gradient, indexing_op
from asyncmon.graph.ops.shape_ops import like, shape

_INDEX_TYPES = (dtypes.int32, dtypes.int64)


# --- gather -----------------------------------------------------------------------------------------
def _gather(params: Array, indices: Array, *, axis: int, batch_dims: int) -> Array:
    if batch_dims:
        return params[_gather_index(params.shape, indices, axis=axis, batch_dims=batch_dims)]
    return np.take(params, check_inside(indices, params.shape[axis]), axis)


def _gather_index(
    shape: tuple[int, ...], indices: Array, *, axis: int, batch_dims: int
) -> tuple[Any, ...]:
    batch, at = batch_dims, axis % len(shape)
    batch += np.ndim(indices) if batch < 0 else 0
    indices = check_inside(indices, shape[at])
    if not batch:
        return (*[slice(None)] * at, indices)
    rest = indices.shape[batch:]
    outer = np.ogrid[tuple(slice(n) for n in shape[:at] + rest)][:at]
    return (*outer, indices.reshape(shape[:batch] + (1,) * (at - batch) + rest))


def _gather_rule(params: Spec, indices: Spec, *, axis: int, batch_dims: int) -> Spec:
    rules.check_dtype(indices.dtype, _INDEX_TYPES, "indices")
    if params.shape is None or indices.shape is None:
        return Spec(params.dtype, None)
    rules.with_rank_at_least(params.shape, 1)
    at = rules.normalize_axis(axis, len(params.shape))
    rank = len(indices.shape)
    if not -rank <= batch_dims <= rank:
        raise ValueError(f"Invalid batch_dims {batch_dims}: expected a value in [{-rank}, {rank}]")
    batch = batch_dims + (rank if batch_dims < 0 else 0)
    if batch > at:
        raise ValueError(f"batch_dims ({batch}) must be less than or equal to axis ({at})")
    shared = merge(params.shape[:batch], indices.shape[:batch]) or ()
    shape = (*shared, *params.shape[batch:at], *indices.shape[batch:], *params.shape[at + 1 :])
    return Spec(params.dtype, shape)


def _gather_gradient(op: Operation, grad: Tensor) -> list[Any]:
    if op.attrs["axis"] or op.attrs["batch_dims"]:
        return indexing_gradient(op, grad)
    params, indices = op.inputs
    with colocate_with(params):  # which may be large
        shape = create_op("Shape", (params,))
    rows = create_op("Reshape", (indices, [-1]))
    flat_shape = create_op("ConcatV2", (_row_count(params, indices), shape[1:]), {"axis": 0})
    return [IndexedSlices(create_op("Reshape", (grad, flat_shape)), rows, shape), None]


def _row_count(params: Tensor, indices: Tensor) -> Tensor:
    """Return the number of indices for a reshape: -1, which needs no op, if possible."""
    if num_elements((params.spec.shape or (None, None))[1:]):
        return convert_to_tensor([-1])
    return create_op("Reshape", (create_op("Size", (indices,)), [1]))


indexing_op("GatherV2", _gather_index, _gather_rule, _gather, _gather_gradient)


def gather(
    params: Any,
    indices: Any,
    validate_indices: bool | None = None,
    name: str | None = None,
    axis: Any = None,
    batch_dims: int = 0,
) -> Tensor:
    """Return the slices of a tensor at indices along an axis. TF1: ``tf.gather``.

    The gradient of a gather along the first axis is an :class:`IndexedSlices`.

    Args:
        params: the tensor.
        indices: integers of any shape, which replaces the axis. InvalidArgumentError in the run unless
            all are in [0, size of the axis).
        validate_indices: without effect: indices are always checked.
        axis: by default ``batch_dims``; it may be a tensor if that is 0.
        batch_dims: the number of leading dimensions that ``params`` and ``indices`` share; a negative
            number counts from the rank of ``indices``.
    """
    at = axis_of(batch_dims if axis is None else axis)
    if not isinstance(at, int):
        if batch_dims:
            raise ValueError(f"gather() with batch_dims={batch_dims} needs an axis that is no tensor.")
        x, rows = convert_to_tensor(params), convert_to_tensor(indices)
        found = create_op("GatherV2", (folded(x, at), rows), {"axis": 1, "batch_dims": 0}, name)
        return with_size(found, x, at, shape(rows))
    return create_op("GatherV2", (params, indices), {"axis": at, "batch_dims": batch_dims}, name)


# --- gather_nd and scatter_nd -----------------------------------------------------------------------


def _gather_nd(params: Array, indices: Array, *, batch_dims: int) -> Array:
    index = nd_index(indices, params.shape, batch_dims)
    return params[index] if index else np.broadcast_to(params, indices.shape[:-1] + params.shape)


def _nd_index(shape: tuple[int, ...], indices: Array, *, batch_dims: int) -> tuple[Array, ...]:
    return nd_index(indices, shape, batch_dims)


def _gather_nd_rule(params: Spec, indices: Spec, *, batch_dims: int) -> Spec:
    rules.check_dtype(indices.dtype, _INDEX_TYPES, "indices")
    if params.shape is None or indices.shape is None:
        return Spec(params.dtype, None)
    rules.with_rank_at_least(indices.shape, 1 + batch_dims)
    shared = merge(params.shape[:batch_dims], indices.shape[:batch_dims]) or ()
    depth = indices.shape[-1]
    if depth is None:
        return Spec(params.dtype, None)
    if depth > len(params.shape) - batch_dims:
        raise ValueError(
            "indices.shape[-1] must be <= params.rank, but saw indices shape: "
            f"{rules.text(indices.shape)} and params shape: {rules.text(params.shape)}"
        )
    shape = (*shared, *indices.shape[batch_dims:-1], *params.shape[batch_dims + depth :])
    return Spec(params.dtype, shape)


def _gather_nd_gradient(op: Operation, grad: Tensor) -> list[Any]:
    params, indices = op.inputs
    rows = indices.spec.shape
    if rows is not None and len(rows) == 2 and rows[1] == 1 and not op.attrs["batch_dims"]:
        at = create_op("Squeeze", (indices,), {"axis": (1,)})
        with colocate_with(params):
            shape = create_op("Shape", (params,))
        return [IndexedSlices(grad, at, shape), None]
    return indexing_gradient(op, grad)


indexing_op("GatherNd", _nd_index, _gather_nd_rule, _gather_nd, _gather_nd_gradient, aliases=True)


def gather_nd(params: Any, indices: Any, name: str | None = None, batch_dims: int = 0) -> Tensor:
    """Return the elements or slices of a tensor at vectors of coordinates. TF1: ``tf.gather_nd``.

    The last dimension of ``indices`` has coordinates of the first dimensions of ``params``;
    InvalidArgumentError in the run if some are out of range.
    """
    return create_op("GatherNd", (params, indices), {"batch_dims": batch_dims}, name)


def scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Tensor:
    """Return zeros with updates added at vectors of coordinates. TF1: ``tf.scatter_nd``."""
    values, at, sizes = convert_to_tensor(updates), convert_to_tensor(indices), shape_tensor(shape)
    part = _gather_nd_rule(Spec(values.dtype, shape_from(sizes.spec)), at.spec, batch_dims=0)
    merge(part.shape, values.spec.shape)
    attrs = {"of": "GatherNd", "batch_dims": 0}
    return create_op("Put", (values, at, sizes), attrs, name or "ScatterNd")


# --- rows of equal indices -------------------------------------------------------------------------
def sum_rows(values: Array, indices: Array, count: Any) -> Any:
    """Return the sum of the rows of each index; rows of a negative index are dropped."""
    result = np.zeros((int(count), *values.shape[np.ndim(indices) :]), values.dtype)
    flat = np.reshape(indices, -1)
    rows = np.reshape(values, (flat.size, *result.shape[1:]))
    if flat.size and flat.min() < 0:
        rows, flat = rows[flat >= 0], flat[flat >= 0]
    add_rows(result, flat, rows)
    return result


def add_rows(target: Array, indices: Array, rows: Array) -> None:
    """Add rows at indices in place; rows of equal indices add up."""
    if not indices.size:
        return
    if target.ndim == 1 and target.dtype.kind == "f":
        target += np.bincount(indices, rows, target.size).astype(target.dtype, copy=False)
        return
    order = np.argsort(indices, kind="stable")
    ids = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))
    target[ids[starts]] += np.add.reduceat(rows[order], starts, axis=0, dtype=target.dtype)


def _sum_rows_rule(values: Spec, indices: Spec, count: Spec) -> Spec:
    rules.check_dtype(values.dtype, rules.NUMBERS, "data")
    rules.check_dtype(indices.dtype, rules.INTS, "segment_ids")
    return Spec(values.dtype, rows_shape(values, indices, *(count.known_dims() or (None,))))


def rows_shape(values: Spec, indices: Spec, count: int | None) -> Shape:
    """Return the shape of ``count`` rows of ``values``, which has a row for each index."""
    if count is not None and count < 0:
        raise ValueError(f"Dimension size must be non-negative but is {count}")
    if values.shape is None or indices.shape is None:
        return None
    merge(values.shape[: len(indices.shape)], indices.shape)
    return (count, *values.shape[len(indices.shape) :])


def _rows_of(x: Array, indices: Array) -> Array:
    """Return the rows at indices, zeros for negative ones."""
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


register(OpDef("UnsortedSegmentSum", sum_rows, _sum_rows_rule,
    lambda op, grad: [create_op("RowsOf", (grad, op.inputs[1])), None, None]))  # fmt: skip
register(OpDef("RowsOf", _rows_of, _rows_of_rule, lambda op, grad: [create_op("UnsortedSegmentSum",
    (grad, op.inputs[1], create_op("Shape", (op.inputs[0],))[0])), None]))  # fmt: skip


def unsorted_segment_sum(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the sum of the rows of each segment; negative ids are dropped. TF1: same name."""
    return create_op("UnsortedSegmentSum", (data, segment_ids, num_segments), None, name)


def _unique_rows(values: Array, indices: Array) -> tuple[Array, Array]:
    flat = np.reshape(indices, -1)
    distinct, position = np.unique(flat, return_inverse=True)
    if len(distinct) == len(flat):
        return np.reshape(values, (len(flat), *values.shape[np.ndim(indices) :])), flat
    return sum_rows(values, position.reshape(np.shape(indices)), len(distinct)), distinct


register(OpDef("UniqueRows", _unique_rows, lambda values, indices:
    (Spec(values.dtype, rows_shape(values, indices, None)), Spec(indices.dtype, (None,))),
    aliases=True))  # fmt: skip


def unique_rows(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Add up the rows of a sparse gradient with equal indices; return the rows and their indices."""
    rows, kept = create_ops("UniqueRows", (values, indices))
    return rows, kept


# --- the greatest of a row -------------------------------------------------------------------------
class TopK(NamedTuple):
    """The result of :func:`top_k`. TF1: ``TopKV2``."""

    values: Any
    indices: Any


def _top_k(x: Array, k: Array) -> tuple[Array, Array]:
    count, size = int(k), x.shape[-1]
    if not 0 <= count <= size:
        raise InvalidArgumentError(f"input must have at least k columns. Had {size}, needed {count}")
    # a stable sort of the reversed row, read backwards: equal elements stay in order
    order = np.argsort(x[..., ::-1], axis=-1, kind="stable")[..., ::-1][..., :count]
    indices = size - 1 - order
    return np.take_along_axis(x, indices, -1), indices.astype(np.int32)


def _top_k_rule(x: Spec, k: Spec) -> tuple[Spec, Spec]:
    rules.check_dtype(x.dtype, rules.REALS, "input")
    rules.check_dtype(k.dtype, (dtypes.int16, *_INDEX_TYPES), "k")
    rules.with_rank(k.shape, 0)
    (count,) = k.known_dims() or (None,)
    if count is not None and count < 0:
        raise ValueError(f"k must be non-negative, got {count}")
    if x.shape is None:
        return Spec(x.dtype, None), Spec(dtypes.int32, None)
    rules.with_rank_at_least(x.shape, 1)
    size = x.shape[-1]
    if count is not None and size is not None and count > size:
        raise ValueError(f"input must have last dimension >= k = {count} but is {size}")
    shape = (*x.shape[:-1], count)
    return Spec(x.dtype, shape), Spec(dtypes.int32, shape)


def _top_k_gradient(op: Operation, grad: Tensor, _: None) -> list[Tensor | None]:
    attrs = {"of": "GatherV2", "axis": -1, "batch_dims": -1}  # each row has its own indices
    return [like("Put", (grad, op.outputs[1]), op.inputs[0], attrs), None]


register(OpDef("TopKV2", _top_k, _top_k_rule, _top_k_gradient))


def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> TopK:
    """Return the ``k`` greatest elements of each row and their positions. TF1: ``tf.nn.top_k``.

    A row is the last dimension. The elements are in descending order, even if ``sorted`` is false;
    equal ones are in the order of their positions.
    """
    return TopK(*create_ops("TopKV2", (input, k), None, name))
