"""Sequences of several lengths, and other ways to lay out elements."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.build import create_ops, shape_tensor
from asyncmon.graph.core.convert import renamed_argument, static_int
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.core.shape import merge, merge_dim
from asyncmon.graph.numerics.arrays import Array, nd_index
from asyncmon.graph.ops.join import check_one_dtype

__all__ = [
    "meshgrid", "reverse_sequence", "searchsorted", "sequence_mask", "sparse_to_dense", "unique",
    "unique_with_counts",
]  # fmt: skip


# --- sequences ------------------------------------------------------------------------------------
def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = g.bool, name: str | None = None
) -> g.Tensor:
    """Return for each length a row that is true up to it. TF1: ``tf.sequence_mask``.

    ``maxlen`` is the length of a row, by default the greatest length; ValueError if it is no scalar.
    """
    with g.name_scope(name, "SequenceMask"):
        counts = g.convert_to_tensor(lengths)
        if maxlen is None and counts.spec.value is not None:
            size = g.convert_to_tensor(counts.spec.value.max(initial=0))
        elif maxlen is None:
            size = g.maximum(g.constant(0, counts.dtype), g.reduce_max(counts))
        else:
            size = g.convert_to_tensor(maxlen)
        if size.spec.shape not in ((), None):
            raise ValueError(f"maxlen must be scalar for sequence_mask, got {maxlen!r}.")
        row = g.range(g.constant(0, size.dtype), size, g.constant(1, size.dtype))
        return g.cast(row < g.cast(g.expand_dims(counts, -1), size.dtype), dtype)


def _reversed_sequence(x: Array, lengths: Array, *, seq: int, batch: int) -> Array:
    if lengths.shape != (x.shape[batch],):
        raise InvalidArgumentError(
            f"seq_lengths has shape {list(lengths.shape)}, there are {x.shape[batch]} sequences"
        )
    if lengths.size and (lengths.min() < 0 or lengths.max() > x.shape[seq]):
        raise InvalidArgumentError(
            f"seq_lengths must be in [0, {x.shape[seq]}], got {lengths.tolist()}"
        )
    position = np.arange(x.shape[seq])
    rows = lengths.astype(np.int64)[:, None]
    index = np.where(position < rows, rows - 1 - position, position)  # batch, seq
    moved = np.moveaxis(x, (batch, seq), (0, 1))
    result = moved[np.arange(len(lengths))[:, None], index]
    return np.moveaxis(result, (0, 1), (batch, seq))


def _reversed_rule(x: g.Spec, lengths: g.Spec, *, seq: int, batch: int) -> g.Spec:
    rules.check_dtype(lengths.dtype, rules.INTS, "seq_lengths")
    (count,) = rules.with_rank(lengths.shape, 1)
    if x.shape is None:
        return g.Spec(x.dtype, None)
    for axis, what in ((seq, "seq_dim"), (batch, "batch_dim")):
        if not 0 <= axis < len(x.shape):
            raise ValueError(f"{what} must be < input rank ({axis} vs. {len(x.shape)})")
    if seq == batch:
        raise ValueError(f"batch_dim == seq_dim == {seq}")
    size = merge_dim(x.shape[batch], count)
    return g.Spec(x.dtype, (*x.shape[:batch], size, *x.shape[batch + 1 :]))


g.register(g.OpDef("ReverseSequence", _reversed_sequence, _reversed_rule, lambda op, grad:
    [g.create_op("ReverseSequence", (grad, op.inputs[1]), op.attrs), None]))  # fmt: skip


def reverse_sequence(
    input: Any,
    seq_lengths: Any,
    seq_axis: int | None = None,
    batch_axis: int | None = None,
    name: str | None = None,
    seq_dim: int | None = None,
    batch_dim: int | None = None,
) -> g.Tensor:
    """Return sequences with their first ``seq_lengths[i]`` elements reversed. TF1: same name.

    ``seq_axis`` is the axis of the sequences; they lie along ``batch_axis``, 0 by default.
    """
    seq = renamed_argument("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch = renamed_argument("batch_axis", batch_axis, "batch_dim", batch_dim)
    if seq is None:
        raise ValueError("reverse_sequence() needs seq_axis.")
    attrs = {"seq": static_int(seq, "seq_axis"), "batch": static_int(batch or 0, "batch_axis")}
    return g.create_op("ReverseSequence", (g.convert_to_tensor(input), seq_lengths), attrs, name)


def meshgrid(*args: Any, indexing: str = "xy", name: str = "meshgrid") -> list[g.Tensor]:
    """Return vectors repeated over a grid, a tensor for each of them. TF1: ``tf.meshgrid``.

    With ``indexing="xy"`` the first two dimensions of the result are exchanged; the other one is "ij".
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Argument `indexing` must be 'xy' or 'ij', got {indexing!r}.")
    with g.name_scope(name, "meshgrid"):
        vectors = [g.reshape(g.convert_to_tensor(arg), [-1]) for arg in args]
        check_one_dtype("meshgrid", [vector.spec for vector in vectors])
        order = list(range(len(vectors)))
        if indexing == "xy" and len(order) > 1:
            order[:2] = [1, 0]
        sizes = [g.shape(vectors[i])[0] for i in order]
        result = []
        for i, vector in enumerate(vectors):
            ones = [-1 if order[at] == i else 1 for at in range(len(order))]
            result.append(g.broadcast_to(g.reshape(vector, ones), sizes))
        return result


# --- positions in sorted sequences ----------------------------------------------------------------
def _searchsorted(rows: Array, values: Array, *, side: Any, out_type: g.DType) -> Array:
    if rows.shape[:-1] != values.shape[:-1]:
        raise InvalidArgumentError(
            f"Leading dimensions must be equal, got {list(rows.shape)} and {list(values.shape)}"
        )
    result = np.empty(values.shape, out_type.numpy)
    for at in np.ndindex(rows.shape[:-1]):
        result[at] = np.searchsorted(rows[at], values[at], side)
    return result


def _searchsorted_rule(rows: g.Spec, values: g.Spec, *, side: str, out_type: g.DType) -> g.Spec:
    rules.check_same_dtype("SearchSorted", rows, values, ("sorted_inputs", "values"))
    rules.with_rank_at_least(rows.shape, 1)
    rules.with_rank_at_least(values.shape, 1)
    if rows.shape is not None and values.shape is not None:
        merge(rows.shape[:-1], values.shape[:-1])
    return g.Spec(out_type, values.shape)


g.register(g.OpDef("SearchSorted", _searchsorted, _searchsorted_rule, ZERO))


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = g.int32,
    name: str | None = None,
) -> g.Tensor:
    """Return where each value would go in a sorted row, the last dimension. TF1: same name.

    Values are looked up in the row of the same leading indices. They go to the left or right of equal
    elements: ``side``, ValueError for others.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be either 'right' or 'left', got {side!r}.")
    rows = g.convert_to_tensor(sorted_sequence)
    found = g.convert_to_tensor(values, None if hasattr(values, "dtype") else rows.dtype)
    output = g.as_dtype(out_type)
    rules.check_dtype(output, rules.INTS, "out_type")
    return g.create_op("SearchSorted", (rows, found), {"side": side, "out_type": output}, name)


# --- different elements ---------------------------------------------------------------------------
class Unique(NamedTuple):
    """The different elements in the order of their first occurrence, and the position of each."""

    y: g.Tensor
    idx: g.Tensor


class UniqueWithCounts(NamedTuple):
    """As :class:`Unique`, with the number of each."""

    y: g.Tensor
    idx: g.Tensor
    count: g.Tensor  # type: ignore[assignment]  # TF1's name; hides that of tuple


def _unique(x: Array, *, out_idx: g.DType) -> tuple[Array, Array, Array]:
    _, first, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    order = np.argsort(first, kind="stable")
    rank = np.argsort(order, kind="stable")
    kind = out_idx.numpy
    return x[first[order]], rank[inverse].astype(kind), counts[order].astype(kind)


def _unique_rule(x: g.Spec, *, out_idx: g.DType) -> tuple[g.Spec, g.Spec, g.Spec]:
    rules.with_rank(x.shape, 1)
    return g.Spec(x.dtype, (None,)), g.Spec(out_idx, x.shape), g.Spec(out_idx, (None,))


g.register(g.OpDef("UniqueWithCounts", _unique, _unique_rule, ZERO))


def unique(x: Any, out_idx: Any = g.int32, name: str | None = None) -> Unique:
    """Return the different elements of a vector, and the position of each element among them.

    TF1: same name. The dtype of the positions is ``out_idx``.
    """
    return Unique(*unique_with_counts(x, out_idx, name or "Unique")[:2])


def unique_with_counts(x: Any, out_idx: Any = g.int32, name: str | None = None) -> UniqueWithCounts:
    """As :func:`unique`, with the number of each. TF1: same name."""
    attrs = {"out_idx": g.as_dtype(out_idx)}
    rules.check_dtype(attrs["out_idx"], rules.INTS, "out_idx")
    return UniqueWithCounts(*create_ops("UniqueWithCounts", (g.convert_to_tensor(x),), attrs, name))


# --- sparse_to_dense ------------------------------------------------------------------------------
def _to_dense(
    indices: Array, sizes: Array, values: Array, default: Array, *, validate_indices: bool
) -> Array:
    result = np.full(sizes.tolist(), default, np.asarray(values).dtype)
    at: Any = _coordinates(indices, len(sizes))
    inside = nd_index(at, result.shape, 0)
    if validate_indices and len(at) > 1:
        flat: Any = np.ravel_multi_index(inside, result.shape)
        wrong = np.flatnonzero(flat[1:] <= flat[:-1])
        if wrong.size:
            i = int(wrong[0]) + 1
            how = "repeated" if flat[i] == flat[i - 1] else "out of order"
            raise InvalidArgumentError(f"indices[{i}] = {at[i].tolist()} is {how}")
    if np.ndim(values) and len(values) != len(at):
        raise InvalidArgumentError(
            f"sparse_values has {len(values)} elements, sparse_indices has {len(at)} rows"
        )
    result[inside] = values
    return result


def _coordinates(indices: Array, rank: int) -> Array:
    """Return indices, a matrix of a row each, a vector or a scalar, as a matrix."""
    if np.ndim(indices) == 2:
        return indices
    return np.reshape(indices, (-1, 1)) if rank == 1 else np.reshape(indices, (1, -1))


def _to_dense_rule(
    indices: g.Spec, sizes: g.Spec, values: g.Spec, default: g.Spec, **_attrs: Any
) -> g.Spec:
    rules.check_dtype(indices.dtype, rules.INTS, "sparse_indices")
    rules.check_same_dtype("SparseToDense", indices, sizes, ("sparse_indices", "output_shape"))
    rules.check_same_dtype("SparseToDense", values, default, ("sparse_values", "default_value"))
    rules.with_rank(default.shape, 0)
    return g.Spec(values.dtype, rules.shape_from(sizes))


def _to_dense_gradient(op: g.Operation, grad: g.Tensor) -> list[g.Tensor | None]:
    indices, _, values, default = op.inputs
    filled = (*op.inputs[:2], g.zeros_like(values), g.ones_like(default))
    mask = g.create_op(op.type, filled, op.attrs)
    of_values = g.gather_nd(grad, g.reshape(indices, [-1, grad.shape.ndims or 1]))
    if values.shape.ndims == 0:
        of_values = g.reduce_sum(of_values)
    return [None, None, of_values, g.reduce_sum(grad * mask)]


g.register(g.OpDef("SparseToDense", _to_dense, _to_dense_rule, _to_dense_gradient))


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> g.Tensor:
    """Return a tensor with values at some places and another one elsewhere. TF1: same name.

    Args:
        sparse_indices: coordinates, a row each; a vector where the result is one; or a scalar.
        output_shape: of the result.
        sparse_values: a value for each row, or one for all.
        default_value: elsewhere.
        validate_indices: fail in the run unless the rows are in order, each once.

    InvalidArgumentError in the run for coordinates out of range.
    """
    at, values = g.convert_to_tensor(sparse_indices), g.convert_to_tensor(sparse_values)
    rules.check_dtype(at.dtype, rules.INTS, "sparse_indices")
    sizes = shape_tensor(output_shape)
    if not g.is_tensor_like(output_shape):
        sizes = g.cast(sizes, at.dtype)
    default: Any = default_value
    if type(default) is int and default == 0:
        default = b"" if values.dtype is g.string else values.dtype.numpy.type(0)
    default = g.convert_to_tensor(default, values.dtype)
    attrs = {"validate_indices": validate_indices}
    return g.create_op("SparseToDense", (at, sizes, values, default), attrs, name)
