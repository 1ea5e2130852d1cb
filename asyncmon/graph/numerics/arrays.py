"""The arrays of kernels, and wrappers of kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, wraps
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from asyncmon.errors import InvalidArgumentError

Array: TypeAlias = Any
"""A numpy array, or a numpy scalar in place of a 0-d one. numpy has no type for both."""

Kernels: TypeAlias = Mapping[str, Callable[..., Any]]


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


def in_single(kernel: Callable[..., Array]) -> Callable[..., Array]:
    """Wrap a kernel, whose ``out`` follows its inputs, to compute float16 in float32."""
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


# --- kernels of another library ---------------------------------------------------------------------
class _Local(threading.local):
    kernels: Kernels | None = None


_local = _Local()


def replaceable(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel to call its replacement first, which may decline with ``NotImplemented``."""
    name = kernel.__name__

    @wraps(kernel)
    def compute(*inputs: Any, **attrs: Any) -> Any:
        others = _local.kernels
        if others is not None and (result := others[name](*inputs, **attrs)) is not NotImplemented:
            return result
        return kernel(*inputs, **attrs)

    return compute


@contextmanager
def replacing(kernels: Kernels) -> Iterator[None]:
    """Replace all replaceable kernels of this thread inside ``with``, by their names."""
    before, _local.kernels = _local.kernels, kernels
    try:
        yield
    finally:
        _local.kernels = before
