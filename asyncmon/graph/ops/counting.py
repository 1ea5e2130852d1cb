"""Distinct values, counts, and positions in what is sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.construction.build import convert_to_tensor, create_op, create_ops, name_scope
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import ZERO, OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.create import ones_like
from asyncmon.graph.ops.functions import floor
from asyncmon.graph.ops.gather import unsorted_segment_sum
from asyncmon.graph.ops.shape_ops import cast, reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array


_INTS = (dtypes.int32, dtypes.int64)


# --- distinct values ------------------------------------------------------------------------------
class Unique(NamedTuple):
    """What :func:`unique` returns."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """What :func:`unique_with_counts` returns."""

    y: Any
    idx: Any
    count: Any


class ListDiff(NamedTuple):
    """What :func:`setdiff1d` returns."""

    out: Any
    idx: Any


def _unique(x: Array, *, out_idx: DType) -> tuple[Array, ...]:
    found, first, position, count = np.unique(x, True, True, True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    index = out_idx.numpy
    return found[order], place[position].astype(index), count[order].astype(index)


def _unique_rule(x: Spec, *, out_idx: DType) -> tuple[Spec, ...]:
    shape = rules.with_rank(x.shape, 1)
    rules.check_dtype(out_idx, _INTS, "out_idx")
    return Spec(x.dtype, (None,)), Spec(out_idx, shape), Spec(out_idx, (None,))


register(OpDef("UniqueWithCounts", _unique, _unique_rule, ZERO))


def unique(x: Any, out_idx: Any = dtypes.int32, name: str | None = None) -> Unique:
    """Return the distinct elements of a vector in order of appearance, and where each one went.

    TF1: same name. ``y[idx[i]] == x[i]``.
    """
    return Unique(*unique_with_counts(x, out_idx, name or "Unique")[:2])


def unique_with_counts(
    x: Any, out_idx: Any = dtypes.int32, name: str | None = None
) -> UniqueWithCounts:
    """Return what :func:`unique` does, and how often each element appears. TF1: same name."""
    attrs = {"out_idx": dtypes.as_dtype(out_idx)}
    return UniqueWithCounts(*create_ops("UniqueWithCounts", (x,), attrs, name))


def _difference(x: Array, y: Array, *, out_idx: DType) -> tuple[Array, Array]:
    at = np.flatnonzero(~np.isin(x, y))
    return x[at], at.astype(out_idx.numpy)


def _difference_rule(x: Spec, y: Spec, *, out_idx: DType) -> tuple[Spec, Spec]:
    rules.check_same_dtype("ListDiff", x, y)
    rules.with_rank(x.shape, 1)
    rules.with_rank(y.shape, 1)
    return Spec(x.dtype, (None,)), Spec(out_idx, (None,))


register(OpDef("ListDiff", _difference, _difference_rule, ZERO))


def setdiff1d(x: Any, y: Any, index_dtype: Any = dtypes.int32, name: str | None = None) -> ListDiff:
    """Return the elements of a vector that another one lacks, and their positions. TF1: same name."""
    attrs, first = {"out_idx": dtypes.as_dtype(index_dtype)}, convert_to_tensor(x)
    pair = (first, convert_to_tensor(y, None if hasattr(y, "dtype") else first.dtype))
    return ListDiff(*create_ops("ListDiff", pair, attrs, name))


# --- counts ---------------------------------------------------------------------------------------
def _bincount(x: Array, *weights: Array, minlength: int, maxlength: int | None, dtype: DType) -> Array:
    flat = np.reshape(x, -1)
    if flat.size and flat.min() < 0:
        raise InvalidArgumentError(f"Input arr must be non-negative, got {flat.min()}")
    size = max(int(flat.max(initial=-1)) + 1, minlength)
    size = size if maxlength is None else min(size, maxlength)
    kept = flat < size
    if weights:
        values = weights[0].reshape(-1)[kept]
        return np.bincount(flat[kept], values, size)[:size].astype(weights[0].dtype)
    return np.bincount(flat[kept], minlength=size)[:size].astype(dtype.numpy)


def _bincount_rule(x: Spec, *weights: Spec, dtype: DType, **_lengths: Any) -> Spec:
    rules.check_dtype(x.dtype, _INTS, "arr")
    for weight in weights:
        rules.merge(x.shape, weight.shape)
        dtype = weight.dtype
    return Spec(dtype, (None,))


register(OpDef("Bincount", _bincount, _bincount_rule, ZERO))


def bincount(
    arr: Any,
    weights: Any = None,
    minlength: int | None = None,
    maxlength: int | None = None,
    dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return how often each integer appears. TF1: ``tf.bincount``.

    Args:
        arr: integers, not negative: InvalidArgumentError in the run.
        weights: what each counts, a tensor of the shape of ``arr``; the result has its dtype.
        minlength: the least length of the result.
        maxlength: the greatest; integers beyond it are dropped.
        dtype: of the result where there are no weights.
        name: the node's name.
    """
    x = convert_to_tensor(arr)
    inputs = (cast(x, dtypes.int32) if x.dtype.is_integer and x.dtype not in _INTS else x,)
    attrs = {"minlength": minlength or 0, "maxlength": maxlength, "dtype": dtypes.as_dtype(dtype)}
    given = () if weights is None else (convert_to_tensor(weights),)
    return create_op("Bincount", (*inputs, *given), attrs, name or "bincount")


def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Return the bin of each value, of ``nbins`` equal ones between two values. TF1: same name.

    Values outside of the range count for the first and the last bin.
    """
    with name_scope(name, "histogram_fixed_width_bins"):
        x = convert_to_tensor(values)
        ends, count = convert_to_tensor(value_range, x.dtype), cast(nbins, dtypes.int32)
        wide = cast(x - ends[0], dtypes.float64) / cast(ends[1] - ends[0], dtypes.float64)
        at = cast(floor(wide * cast(count, dtypes.float64)), dtypes.int32)
        inside = create_op("Maximum", (create_op("Minimum", (at, count - 1)), np.int32(0)))
        return cast(inside, dtype)


def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32, name: str | None = None
) -> Tensor:
    """Return the number of values in each of ``nbins`` equal bins between two values.

    TF1: same name. Values outside of the range count for the first and the last bin.
    """
    with name_scope(name, "histogram_fixed_width"):
        bins = reshape(histogram_fixed_width_bins(values, value_range, nbins), [-1])
        return unsorted_segment_sum(ones_like(bins, dtype), bins, nbins)


# --- what is sorted -------------------------------------------------------------------------------
def _searchsorted(rows: Array, values: Array, *, side: Any, out_type: DType) -> Array:
    if rows.shape[:-1] != values.shape[:-1]:
        raise InvalidArgumentError(
            f"Leading dimensions must be equal, got {list(rows.shape)} and {list(values.shape)}"
        )
    result = np.empty(values.shape, out_type.numpy)
    for at in np.ndindex(rows.shape[:-1]):
        result[at] = np.searchsorted(rows[at], values[at], side)
    return result


def _searchsorted_rule(rows: Spec, values: Spec, *, side: str, out_type: DType) -> Spec:
    rules.check_same_dtype("SearchSorted", rows, values, ("sorted_inputs", "values"))
    rules.with_rank_at_least(rows.shape, 1)
    if rows.shape is not None and values.shape is not None:
        rules.merge(rows.shape[:-1], values.shape[:-1])
    return Spec(out_type, values.shape)


register(OpDef("SearchSorted", _searchsorted, _searchsorted_rule, ZERO))


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return where each value would go in a sorted row, the last dimension. TF1: same name.

    Args:
        sorted_sequence: rows in ascending order.
        values: to look up in the row of the same leading indices; of the same dtype.
        side: "left" of equal elements, or "right".
        out_type: int32 or int64.
        name: the node's name.

    Raises:
        ValueError: another side.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be either 'right' or 'left', got {side!r}.")
    rows = convert_to_tensor(sorted_sequence)
    found = convert_to_tensor(values, None if hasattr(values, "dtype") else rows.dtype)
    output = dtypes.as_dtype(out_type)
    rules.check_dtype(output, _INTS, "out_type")
    return create_op("SearchSorted", (rows, found), {"side": side, "out_type": output}, name)


def _unraveled(indices: Array, dims: Array) -> Array:
    try:
        found: Sequence[Array] = np.unravel_index(indices, dims.tolist())
    except ValueError as error:
        raise InvalidArgumentError(f"unravel_index: {error}") from None
    return np.stack(found).astype(indices.dtype)


register(OpDef("UnravelIndex", _unraveled,
    lambda indices, dims: Spec(indices.dtype, None), ZERO))  # fmt: skip


def unravel_index(indices: Any, dims: Any, name: str | None = None) -> Tensor:
    """Return the coordinates, a column each, of positions in a flat array. TF1: same name."""
    return create_op("UnravelIndex", (indices, dims), None, name)
