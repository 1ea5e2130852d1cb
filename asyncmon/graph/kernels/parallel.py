"""Work that a kernel shares with other threads of its session."""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from asyncmon.graph.kernels.blas import kept_to_one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from asyncmon.graph.kernels.team import Crew

__all__ = ["CORES", "cut_up", "helped", "is_cut_up", "lent", "share"]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
"""How many cores this process may use."""

_local = threading.local()


@contextmanager
def lent(crew: Crew | None) -> Iterator[None]:
    """Let kernels that this thread runs inside ``with`` share their work with a crew."""
    before = getattr(_local, "crew", None)
    _local.crew, _local.helped = crew, 0.0
    try:
        yield
    finally:
        _local.crew, _local.helped = before, 0.0


def helped() -> float:
    """Return the seconds that the crew has worked for this thread inside the present ``lent``."""
    return getattr(_local, "helped", 0.0)


@contextmanager
def cut_up() -> Iterator[None]:
    """Let kernels that this thread runs inside ``with`` cut up products, with BLAS kept to one thread.

    Whether a run does so depends on its plan and the shapes it is fed, not on where it runs and who is
    free to help: products that are cut up may differ from others in the last bit.
    """
    before = is_cut_up()
    _local.cut_up = True
    try:
        with kept_to_one_thread():
            yield
    finally:
        _local.cut_up = before


def is_cut_up() -> bool:
    """Return whether a kernel is to cut up large products."""
    return getattr(_local, "cut_up", False)


def share(calls: Iterable[Callable[[], object]]) -> None:
    """Call functions, each once, here and in helpers: whoever is free takes the next one.

    Returns when all have returned. They must not care about order, and release the interpreter's lock
    for most of their time. A helper that is busy elsewhere is not waited for.
    """
    crew: Crew | None = getattr(_local, "crew", None)
    if crew is None:
        for call in calls:
            call()
    else:
        _local.helped += crew.share(deque(calls))
