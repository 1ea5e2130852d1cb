"""Wrappers of kernels: half precision computed in single, and replacement by another library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any, TypeAlias

import numpy as np

from asyncmon.graph.numerics.arrays import Array

Kernels: TypeAlias = Mapping[str, Callable[..., Any]]


def half_in_single(kernel: Callable[..., Array]) -> Callable[..., Array]:
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
