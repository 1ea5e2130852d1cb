"""``tensor[...]``: an index expression as the attribute of one op, ``StridedSlice``.

The attribute ``index`` is a tuple of ints, None (a new axis), ``...``, ``Range(start, stop, step)``
and, in the place of any int, ``Arg(i)``: the i-th input after the tensor, a scalar known only in the
run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.core.dtypes import as_dtype
from asyncmon.graph.core.op import OpDef, Spec, register

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["Arg", "Range", "encode_index", "is_mask"]


class Arg(NamedTuple):
    """Stands for a tensor in an index."""

    position: int


class Range(NamedTuple):
    """A slice, hashable."""

    start: int | Arg | None
    stop: int | Arg | None
    step: int | Arg | None


Item = Any
"""int | Arg | Range | None | ..."""


def is_mask(index: Any) -> bool:
    """Return true for a bool, or an array or tensor of bools, which picks what is true."""
    dtype = getattr(index, "dtype", None)
    return isinstance(index, bool) or (dtype is not None and as_dtype(dtype).is_bool)


def encode_index(index: Any) -> tuple[list[Any], tuple[Item, ...]]:
    """Return the tensors in an index expression and the attribute that describes it.

    Raises:
        TypeError: an entry is not an int, a slice, None, ``...`` or a scalar integer tensor.
    """
    inputs: list[Any] = []

    def scalar(value: Any) -> int | Arg | None:
        if value is None or type(value) is int:
            return value
        if hasattr(value, "spec"):
            if not value.spec.dtype.is_integer or value.spec.shape not in ((), None):
                raise TypeError(
                    f"{value!r} cannot be an index; expected a scalar integer. "
                    "Use gather() or boolean_mask() to pick by a vector or a mask."
                )
            inputs.append(value)
            return Arg(len(inputs) - 1)
        if hasattr(value, "__index__") and not isinstance(value, bool | np.bool_):
            return int(value.__index__())
        raise TypeError(
            f"Only integers, slices (`:`), ellipsis (`...`), None and scalar integer tensors are valid "
            f"indices, got {value!r}."
        )

    def item(entry: Any) -> Item:
        if entry is Ellipsis or entry is None:
            return entry
        if isinstance(entry, slice):
            return Range(scalar(entry.start), scalar(entry.stop), scalar(entry.step))
        return scalar(entry)

    entries = index if isinstance(index, tuple) else (index,)
    encoded = tuple(item(entry) for entry in entries)
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise ValueError(f"An index can have one ellipsis, got {index!r}.")
    return inputs, encoded


def _decode(index: Sequence[Item], args: Sequence[Any]) -> tuple[Any, ...]:
    def value(entry: int | Arg | None) -> int | None:
        return int(args[entry.position]) if isinstance(entry, Arg) else entry

    return tuple(
        slice(*map(value, entry))
        if isinstance(entry, Range)
        else (entry if entry is Ellipsis else value(entry))
        for entry in index
    )


def _slice(x: NDArray[Any], *args: Any, index: Sequence[Item]) -> Any:
    return np.asarray(x)[_decode(index, args)]


def _slice_grad(
    shape: NDArray[Any], grad: NDArray[Any], *args: Any, index: Sequence[Item]
) -> NDArray[Any]:
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


def _slice_spec(x: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
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
    return len(range(*slice(*entry).indices(size)))


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
        return known[slice(*_decode(entry, ()))]
    return (known[entry],) if isinstance(entry, int) else None


def _slice_gradient(op: Any, grad: Any) -> list[Any]:
    x, *args = op.inputs
    graph = x.graph
    back = graph.unary(
        "StridedSliceGrad", graph.unary("Shape", x), [grad, *args], {"index": op.attrs["index"]}
    )
    back.set_shape(x.spec.shape)
    return [back, *[None] * len(args)]


def _slice_grad_spec(shape: Spec, grad: Spec, *args: Spec, index: Sequence[Item]) -> Spec:
    known = shape.known_dims()
    if known is None and shape.shape is not None and shape.shape[0] is not None:
        known = (None,) * shape.shape[0]
    return Spec(grad.dtype, known)


def _slice_grad_gradient(op: Any, grad: Any) -> list[Any]:
    _shape, inner, *args = op.inputs
    graph = inner.graph
    return [None, graph.unary("StridedSlice", grad, args, op.attrs), *[None] * len(args)]


register(OpDef("StridedSlice", _slice, _slice_spec, _slice_gradient, aliases=True))
register(OpDef("StridedSliceGrad", _slice_grad, _slice_grad_spec, _slice_grad_gradient))
