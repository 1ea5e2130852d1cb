"""TF1: ``tf.strided_slice``, by lists or tensors of bounds, with masks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np

from asyncmon import graph as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.node import encode_index
from asyncmon.graph.core.op import Spec
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.index import Index, indexing_op

__all__ = ["strided_slice"]


def strided_slice(
    input_: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    name: str | None = None,
) -> tf.Tensor:
    """Return ``input_[begin[0]:end[0]:strides[0], ...]``. TF1: ``tf.strided_slice``.

    Args:
        input_: the tensor.
        begin: the first index in each dimension.
        end: the index to stop before.
        strides: by default 1.
        begin_mask: bit i: ignore ``begin[i]`` and start at the edge.
        end_mask: bit i: ignore ``end[i]`` and stop at the edge.
        ellipsis_mask: bit i: entry i is an ellipsis.
        new_axis_mask: bit i: entry i is a new dimension of size 1.
        shrink_axis_mask: bit i: take one element and remove the dimension.
    """
    masks = _Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    given = (begin, end, strides)
    lists = [None if part is None else _scalars(part) for part in given]
    if any(part is not None and listed is None for part, listed in zip(given, lists, strict=True)):
        vectors = [begin, end, tf.create_op("OnesLike", (begin,)) if strides is None else strides]
        return tf.create_op("StridedSliceBy", (input_, *vectors), {"masks": masks}, name)
    starts, stops, steps = lists
    assert starts is not None
    assert stops is not None
    steps = [None] * len(starts) if steps is None else steps
    if not len(starts) == len(stops) == len(steps):
        raise ValueError(f"begin, end, strides must have one length: {begin!r}, {end!r}, {strides!r}.")
    inputs, encoded = encode_index(_masked(starts, stops, steps, masks))
    return tf.create_op("StridedSlice", (input_, *inputs), {"index": encoded}, name)


class _Masks(NamedTuple):
    """The masks of :func:`strided_slice`."""

    begin: int
    end: int
    ellipsis: int
    new_axis: int
    shrink: int


def _masked(starts: Sequence[Any], stops: Sequence[Any], steps: Sequence[Any], masks: _Masks) -> Index:
    """Return the index expression of three lists and masks."""
    index: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        bit = 1 << i
        if masks.ellipsis & bit:
            index.append(Ellipsis)
        elif masks.new_axis & bit:
            index.append(None)
        elif masks.shrink & bit:
            if isinstance(step, int) and step < 1:
                raise ValueError(f"Only stride 1 is allowed where one element is taken, got {step}.")
            index.append(start)
        else:
            first, last = None if masks.begin & bit else start, None if masks.end & bit else stop
            index.append(slice(first, last, step))
    return tuple(index)


def _masked_index(
    _shape: tuple[int, ...], begin: Array, end: Array, strides: Array, *, masks: _Masks
) -> Index:
    if not begin.shape == end.shape == strides.shape:
        raise InvalidArgumentError("begin, end, strides of a strided slice must have one length")
    return _masked(begin.tolist(), end.tolist(), strides.tolist(), masks)


def _masked_rule(x: Spec, *vectors: Spec, masks: _Masks) -> Spec:
    for vector in vectors:
        rules.check_dtype(vector.dtype, (dtypes.int16, dtypes.int32, dtypes.int64), "begin")
        rules.with_rank(vector.shape, 1)
    return Spec(x.dtype, None)


indexing_op("StridedSliceBy", _masked_index, _masked_rule, aliases=True)


def _scalars(values: Any) -> list[Any] | None:
    """Return the elements of a vector: ints or scalar tensors; None if their number is unknown."""
    if not is_tensor_like(values):
        if isinstance(values, list | tuple) or np.ndim(values) == 1:
            return [v if is_tensor_like(v) else as_int(v) for v in values]
        raise ValueError(f"Expected a vector of integers, got {values!r}.")
    tensor = tf.convert_to_tensor(values)
    rules.check_dtype(tensor.dtype, (dtypes.int16, dtypes.int32, dtypes.int64), "begin")
    known = tensor.spec.known_dims()
    (count,) = rules.with_rank(tensor.spec.shape, 1)
    if count is None:
        return None
    return [tensor[i] if known is None or known[i] is None else known[i] for i in range(count)]
