"""Reductions of the rows of each segment: ``segment_sum`` and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.construction.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape as rules
from asyncmon.graph.core.op import ZERO, OpDef, register
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.ops.arithmetic import maximum
from asyncmon.graph.ops.create import ones_like
from asyncmon.graph.ops.functions import sqrt
from asyncmon.graph.ops.gather import rows_shape, unsorted_segment_sum
from asyncmon.graph.ops.shape_ops import cast, reshape, shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array


# --- the greatest, the smallest, products ---------------------------------------------------------
def _reduction(ufunc: np.ufunc, empty: Callable[[np.dtype[Any]], Any]) -> Callable[..., Array]:
    def kernel(values: Array, ids: Array, count: Array, *, zero: bool) -> Array:
        flat, size = np.reshape(ids, -1), int(count)
        rows = np.reshape(values, (flat.size, *values.shape[np.ndim(ids) :]))
        _check_below(flat, size)
        kept = flat >= 0
        rows, flat = rows[kept], flat[kept]
        result = np.full((size, *rows.shape[1:]), empty(values.dtype), values.dtype)
        ufunc.at(result, flat, rows)
        if zero:
            result[np.bincount(flat, minlength=size) == 0] = 0
        return result

    return kernel


def _check_below(ids: Array, count: int) -> None:
    if ids.size and ids.max() >= count:
        at = int(ids.argmax())
        raise InvalidArgumentError(f"segment_ids[{at}] = {ids[at]} is out of range [0, {count})")


def _limit(which: str) -> Callable[[np.dtype[Any]], Any]:
    def limit(dtype: np.dtype[Any]) -> Any:
        return getattr(np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype), which)

    return limit


def _rule(values: Spec, ids: Spec, count: Spec, *, zero: bool) -> Spec:
    rules.check_dtype(values.dtype, rules.NUMBERS, "data")
    rules.check_dtype(ids.dtype, (dtypes.int32, dtypes.int64), "segment_ids")
    return Spec(values.dtype, rows_shape(values, ids, *(count.known_dims() or (None,))))


def _rows(of: Tensor, ids: Tensor) -> Tensor:
    return create_op("RowsOf", (of, ids))


def _extreme_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    values, ids, count = op.inputs
    chosen = cast(create_op("Equal", (values, _rows(op.outputs[0], ids))), grad.dtype)
    share = grad / maximum(unsorted_segment_sum(chosen, ids, count), 1)
    return [chosen * _rows(share, ids), None, None]


def _product_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    """The product of the others: over the element itself, or of those that are not 0 for a 0."""
    values, ids, count = op.inputs
    zero = create_op("Equal", (values, create_op("ZerosLike", (values,))))
    zeros = cast(zero, dtypes.int32)
    filled = create_op("SelectV2", (zero, ones_like(values), values))
    rest = _rows(create_op(op.type, (filled, ids, count), op.attrs), ids)
    left = _rows(unsorted_segment_sum(zeros, ids, count), ids) - zeros
    others = rest / filled
    used = create_op("Equal", (left, create_op("ZerosLike", (left,))))
    flows = create_op("SelectV2", (used, others, create_op("ZerosLike", (others,))))
    return [flows * _rows(grad, ids), None, None]


register(OpDef("UnsortedSegmentMax", _reduction(np.maximum, _limit("min")), _rule, _extreme_gradient))
register(OpDef("UnsortedSegmentMin", _reduction(np.minimum, _limit("max")), _rule, _extreme_gradient))
register(OpDef("UnsortedSegmentProd", _reduction(np.multiply, lambda dtype: 1), _rule,
    _product_gradient))  # fmt: skip


def _unsorted(op_type: str, what: str) -> Callable[..., Tensor]:
    def function(data: Any, segment_ids: Any, num_segments: Any, name: str | None = None) -> Tensor:
        inputs = (convert_to_tensor(data), segment_ids, num_segments)
        return create_op(op_type, inputs, {"zero": False}, name)

    how = {"Max": "max", "Min": "min", "Prod": "prod"}[op_type.removeprefix("UnsortedSegment")]
    function.__name__ = function.__qualname__ = f"unsorted_segment_{how}"
    function.__doc__ = (
        f"Return {what} of the rows of each segment. TF1: same name.\n\n"
        "Rows of a negative id are dropped. InvalidArgumentError in the run for an id of\n"
        "``num_segments`` or more."
    )
    return function


unsorted_segment_max = _unsorted(
    "UnsortedSegmentMax", "the greatest (the least number, if there are none)"
)
unsorted_segment_min = _unsorted(
    "UnsortedSegmentMin", "the smallest (the greatest number, if there are none)"
)
unsorted_segment_prod = _unsorted("UnsortedSegmentProd", "the product (1, if there are none)")


def _scaled(sums: Tensor, ids: Tensor, count: Any, divisor: Callable[[Tensor], Tensor]) -> Tensor:
    numbers = unsorted_segment_sum(ones_like(ids, sums.dtype), ids, count)
    by = divisor(maximum(numbers, 1))
    ones = create_op("OnesLike", (shape(sums)[1:],))
    return sums / reshape(by, create_op("ConcatV2", (shape(by), ones), {"axis": 0}))


def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the mean of the rows of each segment, 0 if there are none. TF1: same name."""
    with name_scope(name, "UnsortedSegmentMean"):
        ids = convert_to_tensor(segment_ids)
        sums = unsorted_segment_sum(data, ids, num_segments)
        return _scaled(sums, ids, num_segments, lambda numbers: numbers)


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """Return the sum of the rows of each segment over the root of their number. TF1: same name."""
    with name_scope(name, "UnsortedSegmentSqrtN"):
        ids = convert_to_tensor(segment_ids)
        return _scaled(unsorted_segment_sum(data, ids, num_segments), ids, num_segments, sqrt)


# --- ids in order ---------------------------------------------------------------------------------
def _count(ids: Array) -> Any:
    if ids.size and (ids[0] < 0 or np.any(ids[1:] < ids[:-1])):
        raise InvalidArgumentError(f"segment ids must be >= 0 and in order, got {ids.tolist()[:16]}")
    return ids.dtype.type(ids[-1] + 1 if ids.size else 0)


def _count_rule(ids: Spec) -> Spec:
    rules.check_dtype(ids.dtype, (dtypes.int32, dtypes.int64), "segment_ids")
    rules.with_rank(ids.shape, 1)
    return Spec(ids.dtype, ())


register(OpDef("SegmentCount", _count, _count_rule, ZERO))


def _sorted(name: str, what: str, reduce: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Any:
    own = name

    def function(data: Any, segment_ids: Any, name: str | None = None) -> Tensor:
        with name_scope(name, own):
            values, ids = convert_to_tensor(data), convert_to_tensor(segment_ids)
            return reduce(values, ids, create_op("SegmentCount", (ids,)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Return {what} of the rows of each segment, 0 to the greatest id. TF1: same name.\n\n"
        "InvalidArgumentError in the run unless the ids, a vector, are >= 0 and in order."
    )
    return function


def _mean(values: Tensor, ids: Tensor, count: Tensor) -> Tensor:
    return cast(unsorted_segment_mean(values, ids, count), values.dtype)


def _with_zero(op_type: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda *inputs: create_op(op_type, inputs, {"zero": True})


segment_sum = _sorted("segment_sum", "the sum", unsorted_segment_sum)
segment_mean = _sorted(
    "segment_mean", "the mean (0, if there are none; of integers rounded towards zero)", _mean
)
segment_prod = _sorted("segment_prod", "the product (1, if there are none)", unsorted_segment_prod)
segment_max = _sorted(
    "segment_max", "the greatest (0, if there are none)", _with_zero("UnsortedSegmentMax")
)
segment_min = _sorted(
    "segment_min", "the smallest (0, if there are none)", _with_zero("UnsortedSegmentMin")
)
