"""Items of arrays in dicts and tuples: their structure, and their arrays in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def flatten(value: Any, where: str, leaves: list[tuple[str, NDArray[Any]]]) -> Any:
    """Return the structure of an item, with None for each array, and add its arrays to a list."""
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"The keys of {where} must be strings: {list(value)!r:.80}.")
        # sorted, so that items with keys in another order fill the same columns
        return {key: flatten(value[key], f"{where}[{key!r}]", leaves) for key in sorted(value)}
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(flatten(one, f"{where}[{n}]", leaves) for n, one in enumerate(value))
    is_plain = isinstance(value, bool | int | float | complex | np.generic | np.ndarray)
    array = np.asarray(value) if is_plain or hasattr(value, "__array__") else np.zeros(0, object)
    if array.dtype.kind not in "biufc":
        raise TypeError(
            f"{where} is {value!r:.80} of type {type(value).__name__}. An item of a replay buffer is a "
            "number, an array of numbers, or a dict or plain tuple of items; nothing is pickled."
        )
    leaves.append((where, array))
    return None


def built(structure: Any, columns: Any) -> Any:
    """Return an item of a structure, with the next arrays of an iterator."""
    if isinstance(structure, Mapping):
        return {key: built(one, columns) for key, one in structure.items()}
    if isinstance(structure, tuple):
        return tuple(built(one, columns) for one in structure)
    return next(columns)
