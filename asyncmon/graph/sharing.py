"""Work that a kernel shares with other threads of its session."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor

__all__ = ["lent", "share"]

_HELPERS = max(0, len(os.sched_getaffinity(0)) - 1) if hasattr(os, "sched_getaffinity") else 1

_local = threading.local()


@contextmanager
def lent(helpers: Executor | None) -> Iterator[None]:
    """Let kernels that this thread runs inside ``with`` share their work with these threads."""
    before = getattr(_local, "helpers", None)
    _local.helpers = helpers
    try:
        yield
    finally:
        _local.helpers = before


def share(calls: Iterable[Callable[[], None]]) -> None:
    """Call functions, each once, here and in helpers: whoever is free takes the next one.

    Returns when all have returned. They must not care about order, and release the interpreter's lock
    for most of their time. A helper that is busy elsewhere is not waited for.
    """
    left = deque(calls)
    helpers: Executor | None = getattr(_local, "helpers", None)
    count = 0 if helpers is None else min(_HELPERS, len(left) - 1)
    shares = [helpers.submit(_drain, left) for _ in range(count)] if helpers is not None else []
    try:
        _drain(left)
    finally:
        left.clear()
        for one in shares:
            if not one.cancel():  # one that has not begun is not needed
                one.result()


@np.errstate(all="ignore")
def _drain(left: deque[Callable[[], None]]) -> None:
    while True:
        try:
            call = left.popleft()
        except IndexError:
            return
        call()
