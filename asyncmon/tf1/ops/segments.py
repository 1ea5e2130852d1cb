"""Rows by segments and partitions. TF1: ``tf.segment_sum`` and kin, ``tf.dynamic_partition``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.ops.gather import rows_shape
from asyncmon.tf1.signatures import REQUIRED, function_of

__all__ = [
    "dynamic_partition", "dynamic_stitch", "segment_max", "segment_mean", "segment_sum",
    "unsorted_segment_mean",
]  # fmt: skip


# --- segments -------------------------------------------------------------------------------------
def _count(ids: Any) -> Any:
    if np.ndim(ids) != 1 or (ids[1:] < ids[:-1]).any() or (ids < 0).any():
        raise InvalidArgumentError(f"segment ids are not a vector of increasing numbers: {ids}")
    return np.int32(ids[-1] + 1 if len(ids) else 0)


def _greatest(data: Any, ids: Any, count: Any, *, empty: Any) -> Any:
    """Return the maxima; ``empty`` is that of no rows, None for the lowest number."""
    shape, kind = (int(count), *data.shape[np.ndim(ids) :]), data.dtype
    lowest = (np.finfo if kind.kind == "f" else np.iinfo)(kind).min
    found = np.full(shape, -np.inf if kind.kind == "f" else lowest, kind)
    rows, flat = data.reshape(np.size(ids), *shape[1:]), np.ravel(ids)
    np.maximum.at(found, flat[flat >= 0], rows[flat >= 0])
    found[np.setdiff1d(np.arange(len(found)), flat)] = lowest if empty is None else empty
    return found


def _greatest_rule(data: g.Spec, ids: g.Spec, count: g.Spec, *, empty: Any) -> g.Spec:
    rules.check_dtype(data.dtype, rules.REALS, "data")
    rules.check_dtype(ids.dtype, rules.INTS, "segment_ids")
    return g.Spec(data.dtype, rows_shape(data, ids, *(count.known_dims() or (None,))))


def _greatest_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    """Divide the gradient of a segment evenly among its greatest elements."""
    data, ids, count = op.inputs
    chosen = g.cast(g.equal(data, g.create_op("RowsOf", (op.outputs[0], ids))), data.dtype)
    each = g.div_no_nan(grad, g.unsorted_segment_sum(chosen, ids, count))
    return [chosen * g.create_op("RowsOf", (each, ids)), None, None]


def _count_rule(ids: g.Spec) -> g.Spec:
    rules.with_rank(ids.shape, 1)
    return g.Spec(g.int32, ())


g.register(g.OpDef("SegmentCount", _count, _count_rule, ZERO))
g.register(g.OpDef("SegmentMax", _greatest, _greatest_rule, _greatest_gradient))


def _maxima(data: Any, ids: Any, count: Any, name: Any = None, empty: Any = None) -> g.Tensor:
    return g.create_op("SegmentMax", (data, ids, count), {"empty": empty}, name)


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> g.Tensor:
    """Return the mean of the rows of each segment; 0 for an empty one. TF1: same name."""
    with g.name_scope(name, "SegmentMean") as scope:
        x, ids = g.convert_to_tensor(data), g.convert_to_tensor(segment_ids)
        total = g.unsorted_segment_sum(x, ids, num_segments)
        rows = g.unsorted_segment_sum(g.ones_like(ids, x.dtype), ids, num_segments)
        return g.divide(total, aligned(g.maximum(rows, g.ones_like(rows)), total), name=scope)


def aligned(x: g.Tensor, like: g.Tensor) -> g.Tensor:
    """Return a vector with further dimensions of size 1, so that it has the rank of ``like``."""
    if like.shape.ndims is not None:
        return g.reshape(x, [-1, *[1] * (like.shape.ndims - 1)])
    return g.reshape(x, g.concat([g.shape(x), g.ones([g.rank(like) - 1], g.int32)], 0))


def _sorted(own: str, compute: Callable[..., g.Tensor], what: str) -> Callable[..., g.Tensor]:
    def segment(data: Any, segment_ids: Any, name: str | None) -> g.Tensor:
        ids = g.convert_to_tensor(segment_ids)
        return compute(data, ids, g.create_op("SegmentCount", (ids,)), name)

    doc = (
        f"Return the {what} of the rows of each segment; 0 for an empty one. TF1: same name.\n\n"
        "    The run raises InvalidArgumentError unless ``segment_ids`` is a vector in ascending order."
    )
    return function_of(own, doc, {"data": REQUIRED, "segment_ids": REQUIRED, "name": None}, segment)


segment_sum = _sorted("segment_sum", g.unsorted_segment_sum, "sum")
segment_mean = _sorted("segment_mean", unsorted_segment_mean, "mean")
segment_max = _sorted("segment_max", partial(_maxima, empty=0), "maximum")


# --- partitions -----------------------------------------------------------------------------------
def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[g.Tensor]:
    """Return the rows of each partition, whose number is in ``partitions``. TF1: same name.

    InvalidArgumentError in the run for a number out of range.
    """
    with g.name_scope(name, "DynamicPartition"):
        x, at = g.convert_to_tensor(data), g.convert_to_tensor(partitions)
        inside = g.reduce_all(g.logical_and(at >= 0, at < num_partitions))
        message = [f"partitions must be in [0, {num_partitions}), got ", at]
        with g.control_dependencies([g.Assert(inside, message)]):
            at = g.identity(at)
        return [g.boolean_mask(x, g.equal(at, i)) for i in range(num_partitions)]


def dynamic_stitch(indices: Sequence[Any], data: Sequence[Any], name: str | None = None) -> g.Tensor:
    """Return the rows of several tensors, each at its index. TF1: same name.

    Of rows with the same index the last one holds, also for gradients; a missing row is zero.
    ValueError for lists of different lengths, or empty ones.
    """
    if len(indices) != len(data) or not indices:
        raise ValueError(f"Give data for each of the indices, got {indices!r} and {data!r}.")
    with g.name_scope(name, "DynamicStitch"):
        places = [g.convert_to_tensor(at) for at in indices]
        rest = g.shape(data[0])[places[0].shape.ndims :]
        rows = g.concat([g.reshape(x, g.concat([[-1], rest], 0)) for x in data], 0)
        at = g.concat([g.reshape(place, [-1]) for place in places], 0)
        last = _maxima(g.range(g.size(at)), at, g.reduce_max(g.concat([[-1], at], 0)) + 1)
        found = g.create_op("RowsOf", (rows, last))
        known = [p.spec.value.max(initial=-1) for p in places if p.spec.value is not None]
        if len(known) == len(places) and found.shape.ndims is not None:
            found.set_shape([int(max(known)) + 1, *found.shape.as_list()[1:]])
        return found
