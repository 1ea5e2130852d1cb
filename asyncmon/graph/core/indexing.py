"""``tensor[...]``: an index expression as the attribute of one op, ``StridedSlice``.

The attribute ``index`` is a tuple of ints, None (a new axis), ``...`` and ``Range(start, stop, step)``.
``Arg(i)`` in place of an int is the i-th input after the tensor, a scalar of the run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from asyncmon.graph.core.dtypes import as_dtype


class Arg(NamedTuple):
    """A tensor in an index."""

    position: int


class Range(NamedTuple):
    """A slice, hashable."""

    start: int | Arg | None
    stop: int | Arg | None
    step: int | Arg | None


Item = Any
"""int | Arg | Range | None | ..."""


def is_mask(index: Any) -> bool:
    """Return true for a bool, or an array or tensor of bools, which selects its true elements."""
    dtype = getattr(index, "dtype", None)
    return isinstance(index, bool) or (dtype is not None and as_dtype(dtype).is_bool)


_SCALARS = frozenset(["int16", "int32", "int64"])


def encode_index(index: Any) -> tuple[list[Any], tuple[Item, ...]]:
    """Return the tensors in an index expression and its encoding as an attribute.

    Raises:
        TypeError: an entry is not an int, a slice, None, ``...`` or a scalar integer tensor.
    """
    inputs: list[Any] = []

    def scalar(value: Any) -> int | Arg | None:
        if value is None or type(value) is int:
            return value
        if hasattr(value, "_as_tensor"):
            value = value._as_tensor()
        if hasattr(value, "spec"):
            if value.spec.dtype.name not in _SCALARS or value.spec.shape not in ((), None):
                raise TypeError(
                    f"{value!r} cannot be an index; expected a scalar int32, int64 or int16. "
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

    entries = tuple(index) if isinstance(index, tuple | list) else (index,)
    encoded = tuple(item(entry) for entry in entries)
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise ValueError(f"An index can have one ellipsis, got {index!r}.")
    return inputs, encoded
