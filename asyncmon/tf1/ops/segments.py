"""Rows by segments and partitions. TF1: ``tf.segment_sum`` and kin, ``tf.dynamic_partition``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asyncmon import graph as g
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import rules
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.ops.gather import rows_shape


# --- segments -------------------------------------------------------------------------------------
def _count(ids: Any) -> Any:
    if np.ndim(ids) != 1 or (ids[1:] < ids[:-1]).any() or (ids < 0).any():
        raise InvalidArgumentError(f"segment ids are not a vector of increasing numbers: {ids}")
    return np.int32(ids[-1] + 1 if len(ids) else 0)


g.register(g.OpDef("SegmentCount", _count, lambda ids: g.Spec(g.int32, ()), ZERO))


def _greatest(data: Any, ids: Any, count: Any, *, empty: Any) -> Any:
    shape = (int(count), *data.shape[np.ndim(ids) :])
    kind = data.dtype
    least = -np.inf if kind.kind == "f" else np.iinfo(kind).min
    found, flat = np.full(shape, least, kind), np.ravel(ids)
    rows = data.reshape(flat.size, *shape[1:])
    np.maximum.at(found, flat[flat >= 0], rows[flat >= 0])
    lacks = np.ones(len(found), np.bool_)
    lacks[flat[flat >= 0]] = False
    found[lacks] = (
        (np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)).min if empty is None else empty
    )
    return found


def _greatest_rule(data: g.Spec, ids: g.Spec, count: g.Spec, *, empty: Any) -> g.Spec:
    rules.check_dtype(data.dtype, rules.REALS, "data")
    return g.Spec(data.dtype, rows_shape(data, ids, *(count.known_dims() or (None,))))


def _greatest_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    """Divide the gradient of a segment evenly among its greatest elements."""
    data, ids, count = op.inputs
    rows = g.create_op("RowsOf", (op.outputs[0], ids))
    chosen = g.cast(g.equal(data, rows), data.dtype)
    each = g.div_no_nan(grad, g.unsorted_segment_sum(chosen, ids, count))
    return [chosen * g.create_op("RowsOf", (each, ids)), None, None]


g.register(g.OpDef("SegmentMax", _greatest, _greatest_rule, _greatest_gradient))


def unsorted_segment_max(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> g.Tensor:
    """Return the greatest elements of each segment; the lowest number for an empty one. TF1: same name.

    Negative ids are dropped.
    """
    return g.create_op("SegmentMax", (data, segment_ids, num_segments), {"empty": None}, name)


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> g.Tensor:
    """Return the mean of the rows of each segment; 0 for an empty one. TF1: same name."""
    return _divided(data, segment_ids, num_segments, name or "UnsortedSegmentMean", lambda n: n)


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> g.Tensor:
    """Return the sum of rows of each segment divided by the root of their number. TF1: same name."""
    return _divided(data, segment_ids, num_segments, name or "UnsortedSegmentSqrtN", g.sqrt)


def _divided(data: Any, ids: Any, count: Any, name: str, by: Callable[..., Any]) -> g.Tensor:
    with g.name_scope(name) as scope:
        x, at = g.convert_to_tensor(data), g.convert_to_tensor(ids)
        total = g.unsorted_segment_sum(x, at, count)
        ones = g.unsorted_segment_sum(g.ones_like(at, x.dtype), at, count)
        least = by(g.maximum(ones, g.ones_like(ones)))
        return g.divide(total, aligned(least, total), name=scope)


def aligned(x: g.Tensor, like: g.Tensor) -> g.Tensor:
    """Return a vector with further dimensions of size 1, so that it has the rank of ``like``."""
    known = like.shape.ndims
    if known is not None:
        return g.reshape(x, [-1, *[1] * (known - 1)])
    return g.reshape(x, g.concat([g.shape(x), g.ones([g.rank(like) - 1], g.int32)], 0))


def _sorted(name: str, compute: Callable[..., g.Tensor], doc: str) -> Callable[..., g.Tensor]:
    """Return the function of sorted segments."""

    def segment(data: Any, segment_ids: Any, name: str | None = None) -> g.Tensor:
        at = g.convert_to_tensor(segment_ids)
        return compute(data, at, g.create_op("SegmentCount", (at,)), name)

    segment.__name__ = segment.__qualname__ = name
    segment.__doc__ = (
        f"Return the {doc} of the rows of each segment; 0 for an empty one. TF1: same name.\n\n"
        "    ``segment_ids`` is a vector in ascending order: else the run raises InvalidArgumentError."
    )
    return segment


segment_sum = _sorted("segment_sum", g.unsorted_segment_sum, "sum")
segment_mean = _sorted("segment_mean", unsorted_segment_mean, "mean")
segment_max = _sorted("segment_max", lambda data, ids, count, name:
    g.create_op("SegmentMax", (data, ids, count), {"empty": 0}, name), "maximum")  # fmt: skip


# --- partitions -----------------------------------------------------------------------------------
def dynamic_partition(
    data: Any, partitions: Any, num_partitions: int, name: str | None = None
) -> list[g.Tensor]:
    """Return the rows of each partition. TF1: same name.

    ``partitions`` has the number of each row of ``data``, and may have more dimensions. The run raises
    InvalidArgumentError for a number out of range.
    """
    with g.name_scope(name, "DynamicPartition"):
        x, at = g.convert_to_tensor(data), g.convert_to_tensor(partitions)
        inside = g.reduce_all(g.logical_and(at >= 0, at < num_partitions))
        message = [f"partitions must be in [0, {num_partitions}), got ", at]
        with g.control_dependencies([g.Assert(inside, message)]):
            at = g.identity(at)
        return [g.boolean_mask(x, g.equal(at, i)) for i in range(num_partitions)]


def _stitch(*inputs: Any) -> Any:
    indices, data = inputs[: len(inputs) // 2], inputs[len(inputs) // 2 :]
    count = max((int(np.max(at)) + 1 for at in indices if np.size(at)), default=0)
    rest = data[0].shape[np.ndim(indices[0]) :]
    merged = np.zeros((count, *rest), data[0].dtype)
    for at, rows in zip(indices, data, strict=True):
        merged[at] = rows
    return merged


def _stitch_rule(*specs: g.Spec) -> g.Spec:
    half = len(specs) // 2
    shapes = [rows_shape(x, at, None) for at, x in zip(specs[:half], specs[half:], strict=True)]
    return g.Spec(specs[half].dtype, next((x for x in shapes if x is not None), None))


def _stitch_gradient(op: g.Operation, grad: g.Tensor) -> list[Any]:
    half = len(op.inputs) // 2
    return [*[None] * half, *(g.gather(grad, at) for at in op.inputs[:half])]


g.register(g.OpDef("DynamicStitch", _stitch, _stitch_rule, _stitch_gradient))


def dynamic_stitch(indices: Sequence[Any], data: Sequence[Any], name: str | None = None) -> g.Tensor:
    """Return the rows of several tensors, each at its index. TF1: same name.

    Of rows with the same index the last one holds; a missing row is zero. ValueError for lists of
    different lengths, or empty ones.
    """
    if len(indices) != len(data) or not indices:
        raise ValueError(f"Give data for each of the indices, got {indices!r} and {data!r}.")
    return g.create_op("DynamicStitch", (*indices, *data), None, name)
