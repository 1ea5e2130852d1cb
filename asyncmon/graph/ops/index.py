"""Indexing: ``x[...]``, slice, strided_slice, boolean_mask; and reverse.

An indexing op is a function from the shape of its operand to a numpy index (:func:`indexing_op`).
``Put`` is the adjoint of all of them: zeros of that shape with values added at the index.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import axes_of, convert_to_tensor, create_op, shape_tensor
from asyncmon.graph.core.convert import is_tensor_like, static_int
from asyncmon.graph.core.node import Arg, Item, Operation, Range, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, VariableOpDef, constant_of, register
from asyncmon.graph.core.rules import rank_of, shape_from
from asyncmon.graph.core.shape import as_shape, is_compatible, merge, merge_dim
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.shape_ops import like, sum_to_shape

Index = tuple[Any, ...]

newaxis = None
"""A new dimension of size 1 in an index: ``x[:, newaxis]``. TF1: ``tf.newaxis``."""


# --- indexing ops and their adjoint -------------------------------------------------------------------
_INDEX: dict[str, Callable[..., Index]] = {}  # the function that returns the index, by op type


def indexing_op(
    op_type: str,
    index: Callable[..., Index],
    rule: Callable[..., Spec],
    kernel: Callable[..., Any] | None = None,
    gradient: Callable[..., list[Any]] | None = None,
    *,
    aliases: bool = False,
) -> None:
    """Register an indexing op: it returns ``x[index(x.shape, *inputs, **attrs)]``.

    ``index`` returns a numpy index, or raises InvalidArgumentError out of bounds. ``kernel`` is a
    faster equivalent. By default, the gradient is ``Put`` at that index. With ``aliases`` the result is
    a view.
    """

    def elements(x: Array, *inputs: Array, **attrs: Any) -> Any:
        return x[index(x.shape, *inputs, **attrs)]

    def rule_and_dims(x: Spec, *inputs: Spec, **attrs: Any) -> Spec:
        # also index a partially known vector
        spec, known = rule(x, *inputs, **attrs), x.known_dims()
        if known is None or x.shape == () or spec.shape is None or len(spec.shape) > 1:
            return spec
        values = [constant_of(other) for other in inputs]
        with suppress(InvalidArgumentError):  # outside of the vector: the run raises it
            if all(value is not None for value in values):
                found = np.array(known, object)[index((len(known),), *values, **attrs)]
                return Spec(spec.dtype, spec.shape, dims=tuple(np.ravel(found).tolist()))
        return spec

    _INDEX[op_type] = index
    back = gradient or indexing_gradient
    register(OpDef(op_type, kernel or elements, rule_and_dims, back, aliases=aliases))


def indexing_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    x, *inputs = op.inputs
    return [like("Put", (grad, *inputs), x, {**op.attrs, "of": op.type}), *[None] * len(inputs)]


def put(shape: tuple[int, ...], index: Index, values: Array) -> Array:
    """Return zeros with values added at an index, which may have repetitions."""
    if not index:  # repeated, as gather_nd does by coordinates without elements
        return np.array(sum_to_shape(values, shape))
    result = np.full(shape, b"" if values.dtype == object else 0, values.dtype)
    if any(isinstance(entry, np.ndarray) and entry.dtype != np.bool_ for entry in index):
        np.add.at(result, index, values)
    else:
        result[index] = values
    return result


def _put(values: Array, *inputs: Array, of: str, **attrs: Any) -> Array:
    *others, shape = inputs
    sizes = tuple(shape.tolist())
    return put(sizes, _INDEX[of](sizes, *others, **attrs), values)


def _put_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    attrs = dict(op.attrs)
    elements = create_op(attrs.pop("of"), (grad, *op.inputs[1:-1]), attrs)
    return [elements, *[None] * len(op.inputs[1:])]


register(OpDef("Put", _put, lambda values, *others, **attrs: Spec(values.dtype, shape_from(others[-1])),
    _put_gradient))  # fmt: skip


# --- slice ------------------------------------------------------------------------------------------
def _slice_index(shape: tuple[int, ...], begin: Array, size: Array) -> Index:
    index = []
    for n, start, count in zip(shape, begin.tolist(), size.tolist(), strict=True):
        _slice_length(n, start, count)
        index.append(builtins.slice(start, n if count == -1 else start + count))
    return tuple(index)


def _slice_rule(x: Spec, begin: Spec, size: Spec) -> Spec:
    rank = merge_dim(*rules.with_rank(begin.shape, 1), *rules.with_rank(size.shape, 1))
    rank = rank_of(x.shape) if rank is None else rank
    if rank is None:
        return Spec(x.dtype, None)
    unknown = (None,) * rank
    starts, counts = begin.known_dims() or unknown, size.known_dims() or unknown
    return Spec(x.dtype, tuple(map(_slice_length, rules.with_rank(x.shape, rank), starts, counts)))


def _slice_length(n: int | None, start: int | None, count: int | None) -> int | None:
    """Return the length of a slice of a dimension of size n; ValueError out of bounds."""
    if count is not None and count < -1:
        raise ValueError(f"A slice must have a size of -1 (all that is left) or more, got {count}")
    if n is not None and start is not None and not 0 <= start <= n - max(count or 0, 0):
        raise ValueError(f"Slice of {count} from {start} is out of bounds for a dimension of size {n}")
    if count == -1:
        return None if n is None or start is None else n - start
    return count


indexing_op("Slice", _slice_index, _slice_rule, aliases=True)


def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """Return ``size`` elements from ``begin`` on in each dimension. TF1: ``tf.slice``.

    ``begin`` and ``size`` have a number per dimension; a size of -1 means the rest.
    """
    first = shape_tensor(begin)
    count = shape_tensor(size) if is_tensor_like(size) else convert_to_tensor(size, first.dtype)
    rules.check_same_dtype("Slice", first.spec, count.spec, ("begin", "size"))
    return create_op("Slice", (input_, first, count), None, name)


# --- strided slices ---------------------------------------------------------------------------------
def _strided_index(_shape: tuple[int, ...], *args: Array, index: Sequence[Item]) -> Index:
    if args:
        values = [int(arg) for arg in args]
        index = [_resolved(entry, values) for entry in index]
    return tuple(builtins.slice(*e) if isinstance(e, Range) else e for e in index)


def _resolved(entry: Item, values: Sequence[int | None]) -> Item:
    """Return an entry of an index with tensors replaced by their known values."""
    if isinstance(entry, Range):
        return Range(*(_resolved(part, values) for part in entry))
    value = values[entry.position] if isinstance(entry, Arg) else None
    return entry if value is None else value


def _strided_rule(x: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
    if x.shape is None:
        return Spec(x.dtype, None)
    known = [(arg.known_dims() or (None,))[0] for arg in args]
    index = tuple(_resolved(entry, known) for entry in index)
    taken = sum(entry is not None and entry is not Ellipsis for entry in index)
    if taken > len(x.shape):
        raise ValueError(f"Index {index} takes {taken} dimensions; the tensor has {len(x.shape)}.")
    left, dims = iter(x.shape), list[int | None]()
    for entry in index if Ellipsis in index else (*index, Ellipsis):
        if entry is None:
            dims.append(1)
        elif entry is Ellipsis:
            dims.extend(islice(left, len(x.shape) - taken))
        elif isinstance(entry, Range):
            dims.append(_range_length(next(left), entry))
        else:
            size = next(left)
            if isinstance(entry, int) and size is not None and not -size <= entry < size:
                raise ValueError(f"Index {entry} is out of bounds for a dimension of size {size}.")
    return Spec(x.dtype, tuple(dims))


def _range_length(size: int | None, entry: Range) -> int | None:
    if size is None or any(isinstance(part, Arg) for part in entry):
        return size if entry == (None, None, None) else None
    return len(range(*builtins.slice(*entry).indices(size)))


def _assign_part(ref: Array, value: Array, *args: Array, index: Sequence[Item]) -> Array:
    result = np.array(ref)
    result[_strided_index(ref.shape, *args, index=index)] = value
    return result


def _assign_part_rule(ref: Spec, value: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
    part = _strided_rule(ref, *args, index=index)
    if not is_compatible(part.shape, value.shape):
        raise ValueError(f"Cannot assign a value of shape {value.shape} to a part of {part.shape}")
    return Spec(ref.dtype, ref.shape)


indexing_op("StridedSlice", _strided_index, _strided_rule, aliases=True)
register(VariableOpDef("StridedSliceAssign", _assign_part, _assign_part_rule, ZERO))


# --- reverse ----------------------------------------------------------------------------------------
def _reverse(x: Array, *axes: Array, axis: tuple[int, ...]) -> Any:
    if not axes:
        return np.flip(x, axis)
    axis = tuple(axes[0].tolist())
    _check_reversed(axis, x.ndim, InvalidArgumentError)
    return np.flip(x, axis)


def _check_reversed(axis: Sequence[int], rank: int, error: type[Exception]) -> None:
    for a in axis:
        if not -rank <= a < rank:
            raise error(f"Invalid axis {a}: expected a value in [{-rank}, {rank})")
    if len({a % rank for a in axis}) < len(axis):
        raise error(f"Axes to reverse must be distinct, got {[*axis]}")


def _reverse_rule(x: Spec, *axes: Spec, axis: tuple[int, ...]) -> Spec:
    if axes:
        rules.check_dtype(axes[0].dtype, (dtypes.int32, dtypes.int64), "axis")
        rules.with_rank(axes[0].shape, 1)
    elif x.shape is not None:
        _check_reversed(axis, len(x.shape), ValueError)
    return Spec(x.dtype, x.shape)


register(OpDef("ReverseV2", _reverse, _reverse_rule, lambda op, grad:
    [create_op("ReverseV2", (grad, *op.inputs[1:]), op.attrs), *[None] * len(op.inputs[1:])],
    aliases=True))  # fmt: skip


def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """Reverse a tensor along axes: a list of distinct ints, or a vector tensor. TF1: ``tf.reverse``."""
    given = axis.shape if hasattr(axis, "shape") else () if isinstance(axis, int) else (None,)
    rules.with_rank(as_shape(given), 1)
    axes = axes_of(axis)
    if axes is None or isinstance(axes, builtins.tuple):
        return create_op("ReverseV2", (tensor,), {"axis": axes or ()}, name)
    return create_op("ReverseV2", (tensor, axes), {"axis": ()}, name)


# --- boolean_mask -----------------------------------------------------------------------------------
def _mask_rule(x: Spec, mask: Spec, *, axis: int) -> Spec:
    rules.check_dtype(mask.dtype, (dtypes.bool,), "mask")
    if mask.shape is None:
        raise ValueError(
            "Number of mask dimensions must be specified, even if some dimensions are None."
        )
    if mask.shape == ():
        raise ValueError("mask cannot be scalar.")
    if x.shape is None:
        return Spec(x.dtype, None)
    after = axis + len(mask.shape)
    merge(x.shape[axis:after], mask.shape)
    return Spec(x.dtype, (*x.shape[:axis], None, *x.shape[after:]))


indexing_op(
    "BooleanMask", lambda shape, mask, *, axis: (*[builtins.slice(None)] * axis, mask), _mask_rule
)


def boolean_mask(tensor: Any, mask: Any, name: str = "boolean_mask", axis: Any = None) -> Tensor:
    """Return the slices of a tensor where a mask is true. TF1: ``tf.boolean_mask``.

    The mask has the shape of the dimensions of ``tensor`` from ``axis`` (0) on, of static rank.
    """
    at = 0 if axis is None else static_int(axis, "axis")
    x = convert_to_tensor(tensor)
    if at < 0:
        at = rules.normalize_axis(at, len(x.shape))
    return create_op("BooleanMask", (x, mask), {"axis": at}, name)


# --- pad ----------------------------------------------------------------------------------------------
_Rows = tuple[tuple[int | None, int | None], ...]  # paddings, None for tensors


def _pad(x: Array, paddings: Array, constant: Array, *, known: _Rows = ()) -> Array:
    widths = _widths(paddings)
    result = np.full([a + n + b for (a, b), n in zip(widths, x.shape, strict=True)], constant, x.dtype)
    result[tuple(builtins.slice(a, a + n) for (a, _), n in zip(widths, x.shape, strict=True))] = x
    return result


def _mirror_index(
    shape: tuple[int, ...], paddings: Array, *, mode: str, known: _Rows = ()
) -> tuple[Array, ...]:
    widths = _widths(paddings)
    edge: Any = mode  # one of numpy's
    for (a, b), n in zip(widths, shape, strict=True):
        if max(a, b) > n - (mode == "reflect"):
            how = "less" if mode == "reflect" else "no greater"
            raise InvalidArgumentError(f"paddings must be {how} than the dimension size {n}: {a}, {b}")
    return np.ix_(*(np.pad(np.arange(n), w, edge) for w, n in zip(widths, shape, strict=True)))


def _widths(paddings: Array) -> list[tuple[int, int]]:
    if paddings.size and paddings.min() < 0:
        raise ValueError(f"Paddings must be non-negative: {paddings.tolist()}")
    return [(int(a), int(b)) for a, b in paddings]


def _pad_rule(x: Spec, paddings: Spec, *_constant: Spec, known: _Rows = (), **_attrs: object) -> Spec:
    rules.check_dtype(paddings.dtype, (dtypes.int32, dtypes.int64), "paddings")
    rows, columns = rules.with_rank(paddings.shape, 2)
    merge_dim(columns, 2)
    rank = merge_dim(rows, rank_of(x.shape))
    if x.shape is None or (paddings.value is None and not known):
        return Spec(x.dtype, None if rank is None else (None,) * rank)
    widths = known if paddings.value is None else _widths(paddings.value)
    pairs = zip(x.shape, widths, strict=True)
    dims = [None if n is None or a is None or b is None else a + n + b for n, (a, b) in pairs]
    return Spec(x.dtype, tuple(dims))


def _known_rows(paddings: Any) -> _Rows:
    """Return the known paddings of a list with tensors inside, else ()."""
    if not isinstance(paddings, list | tuple) or is_tensor_like(paddings):
        return ()
    if not all(isinstance(row, list | tuple) and len(row) == 2 for row in paddings):
        return ()
    if not any(is_tensor_like(side) for row in paddings for side in row):
        return ()
    return tuple([(_known(before), _known(after)) for before, after in paddings])


def _known(side: Any) -> int | None:
    if not is_tensor_like(side):
        return int(side)
    return (convert_to_tensor(side).spec.known_dims() or (None,))[0]


def _pad_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    begin = create_op("Reshape", (op.inputs[1][:, :1], [-1]))
    return [like("Slice", (grad, begin), op.inputs[0]), None, None]


register(OpDef("PadV2", _pad, _pad_rule, _pad_gradient))
indexing_op("MirrorPad", _mirror_index, _pad_rule)


def pad(
    tensor: Any,
    paddings: Any,
    mode: str = "CONSTANT",
    name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:
    """Pad a tensor. TF1: ``tf.pad``.

    Args:
        tensor: the tensor.
        paddings: the numbers of elements to add before and after, a row for each dimension.
        mode: "CONSTANT", "REFLECT" (without the edge) or "SYMMETRIC" (with it), in any case.
        constant_values: the added value of the mode "CONSTANT".
    """
    x = convert_to_tensor(tensor)
    widths = convert_to_tensor(paddings, dtypes.int32 if not is_tensor_like(paddings) else None)
    known, mode = _known_rows(paddings), mode.upper()
    if mode == "CONSTANT":
        if type(constant_values) is int and constant_values == 0:  # nothing, in any dtype
            constant_values = b"" if x.dtype is dtypes.string else x.dtype.numpy.type(0)
        around = convert_to_tensor(constant_values, x.dtype)
        return create_op("PadV2", (x, widths, around), {"known": known}, name or "Pad")
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise ValueError(
            f"Value of argument `mode` expected to be one of CONSTANT, REFLECT, SYMMETRIC, got {mode!r}"
        )
    return create_op("MirrorPad", (x, widths), {"mode": mode.lower(), "known": known}, name)
