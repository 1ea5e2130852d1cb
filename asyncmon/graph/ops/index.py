"""Picking by an index expression: slice, strided_slice, reverse, boolean_mask."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.arguments import static_axes, static_int
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.indexing import Arg, Range, encode_index
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.shape_ops import shape_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

    Gradients = list[Tensor | None]
    Item = Any

newaxis = None
"""A new dimension of size 1 in an index: ``x[:, newaxis]``. TF1: ``tf.newaxis``."""


def _to_shape(grad: Spec, *others: Spec, **_attrs: object) -> Spec:
    return Spec(grad.dtype, others[-1].known_dims())


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


register(OpDef("Slice", _slice, _slice_spec, _slice_gradient, aliases=True))
register(OpDef("SliceGrad", _slice_grad, _to_shape, _slice_grad_gradient))


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


# --- strided slices ---


def _decode(index: Sequence[Item], args: Sequence[Any]) -> tuple[Any, ...]:
    def value(entry: int | Arg | None) -> int | None:
        return int(args[entry.position]) if isinstance(entry, Arg) else entry

    return tuple(
        builtins.slice(*map(value, entry))
        if isinstance(entry, Range)
        else (entry if entry is Ellipsis else value(entry))
        for entry in index
    )


def _strided(x: Array, *args: Any, index: Sequence[Item]) -> Any:
    return np.asarray(x)[_decode(index, args)]


def _strided_grad(shape: Array, grad: Array, *args: Any, index: Sequence[Item]) -> Array:
    result = np.zeros(tuple(shape), np.asarray(grad).dtype)
    result[_decode(index, args)] = grad
    return result


def _constants_in(index: Sequence[Item], args: Sequence[Spec]) -> tuple[Item, ...]:
    """Return an index with its constants in their places, as far as its tensors are constants."""

    def known(entry: Item) -> Item:
        if not isinstance(entry, Arg):
            return entry
        (number,) = args[entry.position].known_dims() or (None,)
        return entry if number is None else number

    return tuple(
        Range(*map(known, entry)) if isinstance(entry, Range) else known(entry) for entry in index
    )


def _strided_spec(x: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
    if args:
        index = _constants_in(index, args)
    if x.shape is None:
        return Spec(x.dtype, None)
    dims: list[int | None] = []
    left = list(x.shape)
    taken = sum(entry is not None and entry is not Ellipsis for entry in index)
    if taken > len(left):
        raise ValueError(f"Index {tuple(index)} takes {taken} dimensions; the tensor has {len(left)}.")
    for entry in (*index, *([] if Ellipsis in index else [Ellipsis])):
        if entry is None:
            dims.append(1)
        elif entry is Ellipsis:
            rest = len(left) - taken
            dims.extend(left[:rest])
            del left[:rest]
        elif isinstance(entry, Range):
            dims.append(_range_length(left.pop(0), entry))
            taken -= 1
        else:
            _check_inside(left.pop(0), entry)
            taken -= 1
    return Spec(x.dtype, tuple(dims), dims=_known_slice(x, index))


def _range_length(size: int | None, entry: Range) -> int | None:
    if all(part is None for part in entry):
        return size
    if size is None or any(isinstance(part, Arg) for part in entry):
        return None
    return len(range(*builtins.slice(*entry).indices(size)))


def _check_inside(size: int | None, entry: Item) -> None:
    if isinstance(entry, int) and size is not None and not -size <= entry < size:
        raise ValueError(f"Index {entry} is out of bounds for a dimension of size {size}.")


def _known_slice(x: Spec, index: Sequence[Item]) -> tuple[int | None, ...] | None:
    """Say which elements of a partly known shape vector are left: ``shape(x)[0]``."""
    known = x.known_dims()
    if known is None or x.shape is None or len(x.shape) != 1 or len(index) != 1:
        return None
    entry = index[0]
    if isinstance(entry, Range) and not any(isinstance(part, Arg) for part in entry):
        return known[builtins.slice(*_decode(entry, ()))]
    return (known[entry],) if isinstance(entry, int) else None


def _strided_gradient(op: Any, grad: Any) -> list[Any]:
    x, *args = op.inputs
    graph = x.graph
    back = graph.unary(
        "StridedSliceGrad", graph.unary("Shape", x), [grad, *args], {"index": op.attrs["index"]}
    )
    back.set_shape(x.spec.shape)
    return [back, *[None] * len(args)]


def _strided_grad_spec(shape: Spec, grad: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
    known = shape.known_dims()
    if known is None and shape.shape is not None and shape.shape[0] is not None:
        known = (None,) * shape.shape[0]
    return Spec(grad.dtype, known)


def _strided_grad_gradient(op: Any, grad: Any) -> list[Any]:
    _shape, inner, *args = op.inputs
    graph = inner.graph
    return [None, graph.unary("StridedSlice", grad, args, op.attrs), *[None] * len(args)]


register(OpDef("StridedSlice", _strided, _strided_spec, _strided_gradient, aliases=True))
register(OpDef("StridedSliceGrad", _strided_grad, _strided_grad_spec, _strided_grad_gradient))


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


# --- boolean_mask -----------------------------------------------------------------------------------


def _masked(x: Array, mask: Array, *, axis: int) -> Array:
    if x.shape[axis : axis + mask.ndim] != mask.shape:
        raise InvalidArgumentError(
            f"Shapes {x.shape[axis : axis + mask.ndim]} and {mask.shape} of tensor and mask "
            "are incompatible"
        )
    return x[(*[builtins.slice(None)] * axis, mask)]


def _unmasked(grad: Array, mask: Array, shape: Array, *, axis: int) -> Array:
    result = np.zeros(shape.tolist(), grad.dtype)
    result[(*[builtins.slice(None)] * axis, mask)] = grad
    return result


def _masked_spec(x: Spec, mask: Spec, *, axis: int) -> Spec:
    rules.check_dtype(mask.dtype, (dtypes.bool,), "mask")
    if mask.shape is None:
        raise ValueError(
            "Number of mask dimensions must be specified, even if some dimensions are None."
        )
    if mask.shape == ():
        raise ValueError("mask cannot be scalar.")
    if x.shape is None:
        return Spec(x.dtype, None)
    rules.merge(x.shape[axis : axis + len(mask.shape)], mask.shape)
    return Spec(x.dtype, (*x.shape[:axis], None, *x.shape[axis + len(mask.shape) :]))


def _masked_gradient(op: Operation, grad: Tensor) -> list[Any]:
    x, mask = op.inputs
    result = create_op("BooleanMaskGrad", (grad, mask, create_op("Shape", (x,))), op.attrs)
    result.set_shape(x.spec.shape)
    return [result, None]


def _unmasked_gradient(op: Operation, grad: Tensor) -> list[Any]:
    return [create_op("BooleanMask", (grad, op.inputs[1]), op.attrs), None, None]


register(OpDef("BooleanMask", _masked, _masked_spec, _masked_gradient))
register(OpDef("BooleanMaskGrad", _unmasked, _to_shape, _unmasked_gradient))


def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """Return the slices of a tensor where a mask is true, in order. TF1: ``tf.boolean_mask``.

    Args:
        tensor: the tensor.
        mask: bool, of the shape of the dimensions of ``tensor`` from ``axis`` on; its rank is known.
        name: the node's name.
        axis: where the masked dimensions begin; by default 0.

    Raises:
        ValueError: shapes do not fit, or the mask is a scalar or of unknown rank.
    """
    at = 0 if axis is None else static_int(axis, "axis")
    x = convert_to_tensor(tensor)
    if at < 0:
        at = rules.normalize_axis(at, len(x.shape))
    return create_op("BooleanMask", (x, mask), {"axis": at}, name)
