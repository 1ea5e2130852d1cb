"""Kernels that another library computes where a session asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any

Kernels = Mapping[str, Callable[..., Any]]


class _Local(threading.local):
    kernels: Kernels | None = None


_local = _Local()


def replaceable(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Let a kernel of the same name be called instead, unless it returns ``NotImplemented``."""
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
    """Call other kernels in this thread inside ``with``.

    Args:
        kernels: by the names of those that they replace; all of these.
    """
    before, _local.kernels = _local.kernels, kernels
    try:
        yield
    finally:
        _local.kernels = before
