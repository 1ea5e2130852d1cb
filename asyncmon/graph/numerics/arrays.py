"""The arrays of kernels, and checks of their indices."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from asyncmon.errors import InvalidArgumentError

Array: TypeAlias = Any
"""A numpy array, or a numpy scalar in place of a 0-d one. numpy has no type for both."""


def as_out(value: Array) -> Array:
    """Return the new result of a ufunc as the ``out=`` of the next one; None for a numpy scalar."""
    return value if isinstance(value, np.ndarray) else None


@lru_cache(maxsize=64)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Return a vector of ones: its product with a matrix sums rows faster than numpy's sum."""
    return np.ones(count, dtype)


def check_inside(indices: Any, size: int) -> Array:
    """Return indices as an array; InvalidArgumentError unless all are in [0, size)."""
    indices = np.asarray(indices)
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        at = np.argwhere((indices < 0) | (indices >= size))[0]
        where = f"[{','.join(map(str, at))}]" if at.size else ""
        raise InvalidArgumentError(f"indices{where} = {indices[tuple(at)]} is not in [0, {size})")
    return indices


def nd_index(indices: Array, shape: tuple[int, ...], batch_dims: int) -> tuple[Array, ...]:
    """Return the numpy index of vectors of coordinates; () where they have no elements."""
    depth = indices.shape[-1]
    wrong = (indices < 0) | (indices >= np.array(shape[batch_dims : batch_dims + depth], np.int64))
    if wrong.any():
        at = tuple(np.argwhere(wrong.any(axis=-1))[0])
        found = f"indices[{','.join(map(str, at))}] = {indices[at].tolist()}"
        raise InvalidArgumentError(f"{found} does not index into shape {list(shape)}")
    outer = indices.shape[:-1]
    batch = np.ogrid[tuple(slice(n) for n in outer)][:batch_dims] if batch_dims else ()
    return (*batch, *np.moveaxis(indices, -1, 0))
