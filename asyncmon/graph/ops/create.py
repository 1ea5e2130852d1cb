"""New tensors: zeros, ones, fill, range, linspace, one_hot, eye."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_pair, convert_to_tensor, create_op, shape_tensor
from asyncmon.graph.core.convert import is_tensor_like, to_array
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, constant_of, register
from asyncmon.graph.core.rules import shape_from
from asyncmon.graph.core.shape import as_shape, num_elements
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import cast

_SMALL = 1000  # elements: fewer are a constant, as in TF1


# --- one value, many times ------------------------------------------------------------------------
def _fill_rule(dims: Spec, value: Spec) -> Spec:
    rules.check_dtype(dims.dtype, (dtypes.int32, dtypes.int64), "dims")
    rules.with_rank(value.shape, 0)
    known = shape_from(dims)
    if known is not None and any(d is not None and d < 0 for d in known):
        raise ValueError(f"Fill dimensions must be >= 0, got {rules.text(known)}")
    return Spec(value.dtype, known)


register(OpDef("Fill", lambda dims, value: np.full(dims.tolist(), value), _fill_rule, lambda op, grad:
    [None, create_op("Sum", (grad,), {"axis": None, "keepdims": False})]))  # fmt: skip


def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """Return a tensor of shape ``dims`` filled with a scalar. TF1: ``tf.fill``."""
    return create_op("Fill", (shape_tensor(dims), value), None, name)


def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Return a tensor of zeros (of "" for strings, of False for bool). TF1: ``tf.zeros``.

    As in TF1, the result is a constant if it has fewer than 1,000 elements and a static shape.
    """
    return _full(shape, b"" if dtypes.as_dtype(dtype) is dtypes.string else 0, dtype, name or "zeros")


def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """Return a tensor of ones. TF1: ``tf.ones``."""
    return _full(shape, 1, dtype, name or "ones")


def _full(shape: Any, value: Any, dtype: Any, name: str) -> Tensor:
    kind = dtypes.as_dtype(dtype)
    known = None
    with suppress(TypeError, ValueError):  # it has tensors, or the op raises an error
        known = None if is_tensor_like(shape) else as_shape(shape)
    size = num_elements(known)
    if size is not None and size < _SMALL:
        return convert_to_tensor(np.full(known, value, kind.numpy), kind, name)
    dims = shape_tensor(shape)
    if dims.spec.shape == ():  # zeros and ones accept a scalar shape; fill does not
        dims = create_op("Pack", (dims,), {"axis": 0})
    return create_op("Fill", (dims, _scalar(value, kind)), None, name)


def _scalar(value: Any, dtype: dtypes.DType) -> Tensor:
    return convert_to_tensor(np.array(value, dtype.numpy), dtype)


register(OpDef("ZerosLike", lambda x: np.full(x.shape, b"" if x.dtype == object else 0, x.dtype),
    rules.like_first, ZERO))  # fmt: skip
register(OpDef("OnesLike", lambda x: np.ones(np.shape(x), x.dtype), rules.like_first, ZERO))


def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Return zeros of the shape, and by default the dtype, of a tensor. TF1: ``tf.zeros_like``.

    ``optimize`` has no effect: the result is a constant of the plan if the shape is known.
    """
    return _all_like("ZerosLike", zeros, tensor, dtype, name or "zeros_like")


def ones_like(tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True) -> Tensor:
    """Return ones of the shape of a tensor; arguments as :func:`zeros_like`. TF1: ``tf.ones_like``."""
    return _all_like("OnesLike", ones, tensor, dtype, name or "ones_like")


def _all_like(op_type: str, full: Any, tensor: Any, dtype: Any, name: str) -> Tensor:
    x = convert_to_tensor(tensor)
    if dtype is None or dtypes.as_dtype(dtype) is x.dtype:
        return create_op(op_type, (x,), None, name)
    result: Tensor = full(create_op("Shape", (x,)), dtype, name)
    return result


# --- sequences ------------------------------------------------------------------------------------
def _range(start: Array, limit: Array, delta: Array) -> Any:
    _check_range(start, limit, delta)
    return np.arange(start, limit, delta, dtype=np.asarray(start).dtype)


def _check_range(start: Any, limit: Any, delta: Any) -> None:
    if not delta:
        raise ValueError(f"Requires delta != 0: {delta}")
    if delta > 0 and start > limit:
        raise ValueError(f"Requires start <= limit when delta > 0: {start}/{limit}")
    if delta < 0 and start < limit:
        raise ValueError(f"Requires start >= limit when delta < 0: {start}/{limit}")


_LONGEST_SHAPE = 64  # elements: a longer range is neither a shape nor a list of axes


def _range_rule(start: Spec, limit: Spec, delta: Spec) -> Spec:
    rules.check_same_dtype("Range", start, limit, ("start", "limit"))
    rules.check_same_dtype("Range", start, delta, ("start", "delta"))
    for spec in (start, limit, delta):
        rules.with_rank(spec.shape, 0)
    parts: list[Any] = [constant_of(spec) for spec in (start, limit, delta)]
    if any(part is None for part in parts):
        return Spec(start.dtype, (None,))
    _check_range(*parts)
    numbers: Array = np.arange(*parts)
    holds_dims = start.dtype.is_integer and numbers.size <= _LONGEST_SHAPE
    return Spec(start.dtype, numbers.shape, dims=tuple(numbers.tolist()) if holds_dims else None)


register(OpDef("Range", _range, _range_rule, ZERO))


def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str = "range"
) -> Tensor:
    """Return the numbers from ``start`` (0 in ``range(limit)``) below ``limit``. TF1: ``tf.range``.

    By default, the dtype is the widest of those of the arguments.
    """
    if limit is None:
        start, limit = 0, start
    values = (start, limit, delta)
    if dtype is None:
        order = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)
        kinds = [v.dtype if is_tensor_like(v) else dtypes.as_dtype(to_array(v).dtype) for v in values]
        dtype = max(kinds, key=lambda d: order.index(d) if d in order else 0)
    parts = [cast(v, dtype) if is_tensor_like(v) else convert_to_tensor(v, dtype) for v in values]
    return create_op("Range", parts, None, name)


def _linspace(start: Array, stop: Array, num: Array) -> Any:
    if num <= 0:
        raise InvalidArgumentError(f"Requires num > 0: {num}")
    return np.linspace(start, stop, int(num), dtype=np.asarray(start).dtype)


def _linspace_rule(start: Spec, stop: Spec, num: Spec) -> Spec:
    rules.check_same_dtype("LinSpace", start, stop, ("start", "stop"))
    rules.check_dtype(start.dtype, rules.FLOATS, "start")
    rules.check_dtype(num.dtype, (dtypes.int32, dtypes.int64), "num")
    for spec in (start, stop, num):
        rules.with_rank(spec.shape, 0)
    return Spec(start.dtype, num.known_dims() or (None,))


register(OpDef("LinSpace", _linspace, _linspace_rule, ZERO))


def linspace(start: Any, stop: Any, num: Any, name: str | None = None) -> Tensor:
    """Return ``num`` scalars from ``start`` to ``stop``, both included. TF1: ``tf.linspace``."""
    if hasattr(start, "dtype") or not is_tensor_like(stop):
        start = convert_to_tensor(start)  # it determines the dtype
    return create_op("LinSpace", (*convert_pair(start, stop, name or "LinSpace"), num), None, name)


# --- matrices and indicators ----------------------------------------------------------------------
def _one_hot(indices: Array, depth: Array, on_value: Array, off_value: Array, *, axis: int) -> Any:
    where = np.asarray(indices)
    result = np.full((*where.shape, int(depth)), off_value, np.asarray(on_value).dtype)
    flat, rows = result.reshape(where.size, int(depth)), where.reshape(-1)
    inside = np.flatnonzero((rows >= 0) & (rows < int(depth)))
    flat[inside, rows[inside]] = on_value
    return result if axis == -1 else np.moveaxis(result, -1, axis)


def _one_hot_rule(indices: Spec, depth: Spec, on_value: Spec, off_value: Spec, *, axis: int) -> Spec:
    rules.check_dtype(indices.dtype, (dtypes.uint8, dtypes.int8, dtypes.int32, dtypes.int64), "indices")
    rules.check_same_dtype("OneHot", on_value, off_value, ("on_value", "off_value"))
    rules.check_dtype(depth.dtype, (dtypes.int32, dtypes.int64), "depth")
    for spec in (depth, on_value, off_value):
        rules.with_rank(spec.shape, 0)
    (size,) = depth.known_dims() or (None,)
    if size is not None and size < 0:
        raise ValueError(f"depth must be non-negative, got {size}")
    if axis < -1:
        raise ValueError(f"axis must be -1 or a dimension of the result, got {axis}")
    if indices.shape is None:
        return Spec(on_value.dtype, None)
    at = rules.normalize_axis(axis, len(indices.shape) + 1)
    return Spec(on_value.dtype, (*indices.shape[:at], size, *indices.shape[at:]))


register(OpDef("OneHot", _one_hot, _one_hot_rule, ZERO))


def one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Tensor:
    """Return ``on_value`` (1) at each index and ``off_value`` (0) elsewhere. TF1: ``tf.one_hot``.

    Args:
        indices: the positions; one outside of [0, depth) gives a row of ``off_value``.
        depth: the size of the new dimension.
        axis: the position of the new dimension; by default last.
        dtype: by default that of the values, or float32.
    """
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    for value in (v for v in (on_value, off_value) if v is not None):
        given = None if dtype is None or is_tensor_like(value) else wanted
        found = convert_to_tensor(value, given).dtype
        if wanted is not None and found is not wanted:
            other = "that of on_value," if dtype is None else "dtype parameter"
            raise TypeError(f"dtype {found.name} does not match {other} {wanted.name}")
        wanted = found
    wanted = wanted or dtypes.float32
    on = _scalar(1, wanted) if on_value is None else convert_to_tensor(on_value, wanted)
    off = _scalar(0, wanted) if off_value is None else convert_to_tensor(off_value, wanted)
    attrs = {"axis": -1 if axis is None else axis}
    return create_op("OneHot", (indices, depth, on, off), attrs, name or "one_hot")


def eye(
    num_rows: Any,
    num_columns: Any = None,
    batch_shape: Any = None,
    dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:
    """Return an identity matrix, or a batch of them. TF1: ``tf.eye``.

    The sizes are integers, or scalar tensors; ``num_columns`` is by default ``num_rows``.
    """
    if any(map(is_tensor_like, (num_rows, num_columns, batch_shape))):
        return _eye(num_rows, num_columns, batch_shape, dtypes.as_dtype(dtype), name or "eye")
    matrix = np.eye(num_rows, num_columns, dtype=dtypes.as_dtype(dtype).numpy)
    if batch_shape is None:
        return convert_to_tensor(matrix, name=name or "eye")
    shape = shape_tensor([*batch_shape, *matrix.shape])
    return create_op("BroadcastTo", (matrix, shape), None, name or "eye")


def _eye(rows: Any, columns: Any, batch_shape: Any, dtype: dtypes.DType, name: str) -> Tensor:
    count = convert_to_tensor(rows)
    size = count if columns is None else convert_to_tensor(columns)
    at = range(count)
    if batch_shape is None:
        return one_hot(at, size, dtype=dtype, name=name)
    matrix = one_hot(at, size, dtype=dtype)
    sizes = [shape_tensor(batch_shape), create_op("Shape", (matrix,))]
    shape = create_op("ConcatV2", [cast(part, dtypes.int32) for part in sizes], {"axis": 0})
    return create_op("BroadcastTo", (matrix, shape), None, name)
