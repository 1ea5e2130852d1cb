"""Arguments that are part of a node rather than inputs of it: axes, counts; and renamed ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph.core.convert import is_tensor_like

__all__ = ["renamed_argument", "static_axes", "static_int", "static_ints"]


def static_ints(value: Any, what: str) -> tuple[int, ...]:
    """Return integers that must be known when the graph is built.

    Args:
        value: an int, a sequence of ints, an array, or a constant tensor of these.
        what: the argument's name, for the error.

    Raises:
        TypeError: not integers.
        ValueError: a tensor whose value is known only in a run.
    """
    if is_tensor_like(value):
        tensor = value if not hasattr(value, "_as_tensor") else value._as_tensor()
        dims = tensor.spec.known_dims()
        if dims is None or None in dims:
            raise ValueError(f"{what} must be known when the graph is built, got {value!r}.")
        return tuple(d for d in dims if d is not None)
    if isinstance(value, list | tuple) and any(is_tensor_like(v) for v in value):
        return tuple(static_int(v, what) for v in value)
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{what} must be an integer or integers, got {value!r}.")
    return tuple(int(i) for i in array.reshape(-1))


def static_int(value: Any, what: str) -> int:
    """Return one integer that must be known when the graph is built. Errors as :func:`static_ints`."""
    if type(value) is int:
        return value
    numbers = static_ints(value, what)
    if len(numbers) != 1:
        raise ValueError(f"{what} must be one integer, got {value!r}.")
    return numbers[0]


def static_axes(value: Any, what: str = "axis") -> tuple[int, ...] | None:
    """Return the axes of a reduction; None stays None. Errors as :func:`static_ints`."""
    return None if value is None else static_ints(value, what)


def renamed_argument(new_name: str, new: Any, old_name: str, old: Any) -> Any:
    """Return the value of an argument that goes by two names.

    Raises:
        ValueError: both were given.
    """
    if old is None:
        return new
    if new is not None:
        raise ValueError(f"Cannot specify both {old_name!r} and {new_name!r}")
    return old
