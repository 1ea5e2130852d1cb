"""The arrays that kernels compute with."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from asyncmon.errors import InvalidArgumentError

Array: TypeAlias = Any
"""A numpy array, or a numpy scalar instead of a 0-d one. numpy has no type for both."""


def as_out(value: Array) -> Array:
    """Return the new result of a ufunc as the ``out=`` of the next one; None for a numpy scalar."""
    return value if isinstance(value, np.ndarray) else None


@lru_cache(maxsize=64)
def ones(count: int, dtype: np.dtype[Any]) -> Array:
    """Return a vector of ones: its product with a matrix sums rows faster than numpy's sum."""
    return np.ones(count, dtype)


def in_single(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """Let a kernel, whose ``out`` follows its inputs, compute half precision in single precision."""
    count = list(signature(kernel).parameters).index("out")

    @wraps(kernel)
    def compute(*inputs: Array, out: Array | None = None, **attrs: Any) -> Array:
        if len(inputs) > count:
            inputs, out = inputs[:count], inputs[count]
        if all(x.dtype != np.float16 for x in inputs):
            return kernel(*inputs, out, **attrs)
        result = kernel(
            *[x.astype(np.float32) if x.dtype == np.float16 else x for x in inputs], **attrs
        )
        if out is None:
            return result.astype(np.float16)
        out[...] = result
        return out

    return compute


def check_inside(indices: Any, size: int) -> Array:
    """Return indices, which must be in [0, size), as an array."""
    indices = np.asarray(indices)
    if indices.size and (indices.min() < 0 or indices.max() >= size):
        at = np.argwhere((indices < 0) | (indices >= size))[0]
        where = f"[{','.join(map(str, at))}]" if at.size else ""
        raise InvalidArgumentError(f"indices{where} = {indices[tuple(at)]} is not in [0, {size})")
    return indices
