"""Cutting out and adding around: slice, strided_slice, pad, tile, reverse."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import static_axes
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.indexing import encode_index
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.shape_ops import shape_tensor

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Gradients = list[Tensor | None]

__all__ = ["newaxis", "pad", "reverse", "slice", "strided_slice"]

newaxis = None
"""A new dimension of size 1 in an index: ``x[:, newaxis]``. TF1: ``tf.newaxis``."""


# --- slices -----------------------------------------------------------------------------------------


def _slice_index(shape: Any, begin: Array, size: Array) -> tuple[Any, ...]:
    index = []
    for i, (start, count, n) in enumerate(zip(begin.tolist(), size.tolist(), shape, strict=True)):
        if not 0 <= start <= n:
            raise InvalidArgumentError(f"Expected begin[{i}] in [0, {n}], but got {start}")
        count = n - start if count == -1 else count
        if not 0 <= count <= n - start:
            raise InvalidArgumentError(f"Expected size[{i}] in [0, {n - start}], but got {count}")
        index.append(builtins.slice(start, start + count))
    return tuple(index)


def _slice(x: Array, begin: Array, size: Array) -> Array:
    return x[_slice_index(np.shape(x), begin, size)]


def _slice_spec(x: Spec, begin: Spec, size: Spec) -> Spec:
    for spec in (begin, size):
        rules.with_rank(spec.shape, 1)
    merged = rules.merge(begin.shape, size.shape)
    rank = merged[0] if merged else None
    rank = len(x.shape) if rank is None and x.shape is not None else rank
    if rank is None:
        return Spec(x.dtype, None)
    shape = rules.with_rank(x.shape, rank)
    starts = begin.known_dims() or (None,) * rank
    counts = size.known_dims() or (None,) * rank
    known = tuple(map(_slice_length, shape, starts, counts))
    return Spec(x.dtype, known, dims=_slice_dims(x, starts, known))


def _slice_length(n: int | None, start: int | None, count: int | None) -> int | None:
    if count is not None and count < -1:
        raise ValueError(f"A slice must have a size of -1 (all that is left) or more, got {count}")
    if n is not None and start is not None and count is not None and start + max(count, 0) > n:
        raise ValueError(f"Slice of {count} from {start} is out of bounds for a dimension of size {n}")
    if count == -1:
        return None if n is None or start is None else n - start
    return count


def _slice_dims(
    x: Spec, starts: tuple[int | None, ...], shape: tuple[int | None, ...]
) -> tuple[int | None, ...] | None:
    known = x.known_dims()
    if known is None or len(shape) != 1 or starts[0] is None or shape[0] is None:
        return None
    return known[starts[0] : starts[0] + shape[0]]


def _slice_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, begin, _ = op.inputs
    result = create_op("SliceGrad", (grad, begin, create_op("Shape", (x,))))
    result.set_shape(x.spec.shape)
    return [result, None, None]


def _slice_grad(grad: Array, begin: Array, shape: Array) -> Array:
    result = np.zeros(shape.tolist(), grad.dtype)
    result[_slice_index(result.shape, begin, np.array(grad.shape))] = grad
    return result


def _slice_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    inner, begin, _ = op.inputs
    return [create_op("Slice", (grad, begin, create_op("Shape", (inner,)))), None, None]


def _shape_of_last(grad: Spec, *others: Spec) -> Spec:
    return Spec(grad.dtype, others[-1].known_dims())


register(OpDef("Slice", _slice, _slice_spec, _slice_gradient, aliases=True))
register(OpDef("SliceGrad", _slice_grad, _shape_of_last, _slice_grad_gradient))


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """Return ``size`` elements from ``begin`` on, in each dimension. TF1: ``tf.slice``.

    Args:
        input_: the tensor.
        begin: where the slice starts, a number per dimension.
        size: how many elements it has, a number per dimension; -1 is all that are left.
        name: the node's name.

    Raises:
        ValueError: out of bounds (InvalidArgumentError in the run where that is known only then).
    """
    return create_op("Slice", (input_, shape_tensor(begin), shape_tensor(size)), None, name)


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
) -> Tensor:
    """Return ``input_[begin[0]:end[0]:strides[0], ...]``, with masks for the rest.

    TF1: ``tf.strided_slice``.

    Args:
        input_: the tensor.
        begin: the first index in each dimension.
        end: the index to stop before.
        strides: by default 1.
        begin_mask: bit i: ``begin[i]`` does not count, start at the edge.
        end_mask: bit i: ``end[i]`` does not count, stop at the edge.
        ellipsis_mask: bit i: all dimensions that are not mentioned.
        new_axis_mask: bit i: a new dimension of size 1.
        shrink_axis_mask: bit i: one element, the dimension goes.
        name: the node's name.
    """
    starts, stops = _scalars(begin), _scalars(end)
    steps = [None] * len(starts) if strides is None else _scalars(strides)
    if not len(starts) == len(stops) == len(steps):
        raise ValueError(
            f"begin, end and strides must have one length, got {begin!r}, {end!r}, {strides!r}."
        )
    index: list[Any] = []
    for i, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        bit = 1 << i
        if ellipsis_mask & bit:
            index.append(Ellipsis)
        elif new_axis_mask & bit:
            index.append(None)
        elif shrink_axis_mask & bit:
            if isinstance(step, int) and step < 1:
                raise ValueError(f"Only stride 1 is allowed where one element is taken, got {step}.")
            index.append(start)
        else:
            first, last = None if begin_mask & bit else start, None if end_mask & bit else stop
            index.append(builtins.slice(first, last, step))
    inputs, encoded = encode_index(tuple(index))
    return create_op("StridedSlice", (input_, *inputs), {"index": encoded}, name)


def _scalars(values: Any) -> list[Any]:
    """Return the elements of a vector: ints, or scalar tensors where they are not known."""
    if not is_tensor_like(values):
        if np.ndim(values) == 1 or isinstance(values, list | tuple):
            return [v if is_tensor_like(v) else int(v) for v in values]
        raise ValueError(f"Expected a vector of integers, got {values!r}.")
    tensor = convert_to_tensor(values)
    known = tensor.spec.known_dims()
    (count,) = rules.with_rank(tensor.spec.shape, 1)
    if count is None:
        raise ValueError(f"The length of {values!r} must be known to slice by it.")
    return [tensor[i] if known is None or known[i] is None else known[i] for i in range(count)]


# --- pad --------------------------------------------------------------------------------------------


def _pad(x: Array, paddings: Array, constant: Array) -> Array:
    widths = _widths(paddings, np.ndim(x))
    shape = [a + n + b for (a, b), n in zip(widths, np.shape(x), strict=True)]
    result = np.full(shape, constant, x.dtype)
    result[_inside(widths, np.shape(x))] = x
    return result


def _widths(paddings: Array, rank: int) -> list[tuple[int, int]]:
    if paddings.shape != (rank, 2):
        raise InvalidArgumentError(
            f"The first dimension of paddings must be the rank of inputs: {paddings.shape}, {rank}"
        )
    if paddings.size and paddings.min() < 0:
        raise InvalidArgumentError(f"Paddings must be non-negative: {paddings.tolist()}")
    return [(int(a), int(b)) for a, b in paddings]


def _inside(widths: list[tuple[int, int]], shape: tuple[int, ...]) -> tuple[Any, ...]:
    return tuple(builtins.slice(a, a + n) for (a, _), n in zip(widths, shape, strict=True))


def _pad_spec(x: Spec, paddings: Spec, *_constant: Spec, **_attrs: object) -> Spec:
    rules.check_dtype(paddings.dtype, (dtypes.int32, dtypes.int64), "paddings")
    rows, columns = rules.with_rank(paddings.shape, 2)
    rules.merge_dim(columns, 2)
    if x.shape is None:
        return Spec(x.dtype, None if rows is None else (None,) * rows)
    rules.merge_dim(rows, len(x.shape))
    if paddings.value is None:
        return Spec(x.dtype, (None,) * len(x.shape))
    if paddings.value.size and paddings.value.min() < 0:
        raise ValueError(f"Paddings must be non-negative: {paddings.value.tolist()}")
    added = paddings.value.sum(axis=1)
    shape = tuple(None if n is None else n + int(m) for n, m in zip(x.shape, added, strict=True))
    return Spec(x.dtype, shape)


def _pad_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, paddings, _ = op.inputs
    begin = create_op("Reshape", (paddings[:, :1], [-1]))
    return [create_op("Slice", (grad, begin, create_op("Shape", (x,)))), None, None]


def _mirror(x: Array, paddings: Array, *, mode: str) -> Array:
    widths = _widths(paddings, np.ndim(x))
    limit = 0 if mode == "symmetric" else 1
    for (a, b), n in zip(widths, np.shape(x), strict=True):
        if max(a, b) > n - limit:
            raise InvalidArgumentError(
                f"paddings must be {'no greater' if not limit else 'less'} than the dimension size: "
                f"{a}, {b} {'not ' if limit else ''}greater than {n}"
            )
    if not widths:
        return np.array(x)
    return np.pad(x, widths, mode)  # type: ignore[call-overload]  # one of numpy's modes


def _mirror_grad(grad: Array, paddings: Array, *, mode: str) -> Array:
    """Add up what each element was mirrored to, one dimension after the other."""
    for axis, (a, b) in enumerate(_widths(paddings, grad.ndim)):
        if a or b:
            count = grad.shape[axis] - a - b
            source = np.pad(np.arange(count), (a, b), mode)  # type: ignore[call-overload]
            moved = np.zeros((count, *np.delete(grad.shape, axis)), grad.dtype)
            np.add.at(moved, source, np.moveaxis(grad, axis, 0))
            grad = np.moveaxis(moved, 0, axis)
    return grad


def _mirror_gradient(op: Operation, grad: Tensor) -> Gradients:
    x, paddings = op.inputs
    result = create_op("MirrorPadGrad", (grad, paddings), op.attrs)
    result.set_shape(x.spec.shape)
    return [result, None]


def _mirror_grad_spec(grad: Spec, paddings: Spec, *, mode: str) -> Spec:
    return Spec(grad.dtype, None if grad.shape is None else (None,) * len(grad.shape))


def _mirror_grad_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("MirrorPad", (grad, op.inputs[1]), op.attrs), None]


register(OpDef("PadV2", _pad, _pad_spec, _pad_gradient))
register(OpDef("MirrorPad", _mirror, _pad_spec, _mirror_gradient))
register(OpDef("MirrorPadGrad", _mirror_grad, _mirror_grad_spec, _mirror_grad_gradient, aliases=True))


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """Return a tensor with more around it. TF1: ``tf.pad``.

    Args:
        tensor: the tensor.
        paddings: how many elements to add before and after, a row of two for each dimension.
        mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in any case.
        name: the node's name.
        constant_values: what is added in the first mode.

    Raises:
        ValueError: an unknown mode, or paddings that do not fit.
    """
    x = convert_to_tensor(tensor)
    widths = convert_to_tensor(paddings, dtypes.int32 if not is_tensor_like(paddings) else None)
    mode = mode.upper()
    if mode == "CONSTANT":
        if type(constant_values) is int and constant_values == 0:  # nothing, in any dtype
            constant_values = "" if x.dtype is dtypes.string else x.dtype.as_numpy_dtype.type(0)
        around = convert_to_tensor(constant_values, x.dtype)
        return create_op("PadV2", (x, widths, around), None, name or "Pad")
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(
            f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode!r}"
        )
    return create_op("MirrorPad", (x, widths), {"mode": mode.lower()}, name)


# --- reverse ----------------------------------------------------------------------------------------


def _reverse_spec(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    if x.shape is not None:
        for a in axis:
            rules.normalize_axis(a, len(x.shape))
    return Spec(x.dtype, x.shape)


def _reverse_gradient(op: Operation, grad: Tensor) -> Gradients:
    return [create_op("ReverseV2", (grad,), op.attrs)]


register(
    OpDef(
        "ReverseV2", lambda x, *, axis: np.flip(x, axis), _reverse_spec, _reverse_gradient, aliases=True
    )
)


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """Return a tensor with its elements in reverse order along axes. TF1: ``tf.reverse``."""
    return create_op("ReverseV2", (tensor,), {"axis": static_axes(axis) or ()}, name)
