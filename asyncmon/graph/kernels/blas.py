"""Keeping BLAS to one thread where the engine itself spreads a run over the cores.

Threads of BLAS wait for each other by spinning: beside them nothing else gets a core, and where
something does get one, all of them wait. So a heavy plan cuts its products up and shares the pieces
out (:mod:`asyncmon.graph.kernels.parallel`),
and BLAS is kept to one thread meanwhile. That is a setting of the
whole process: what somebody else multiplies at the same moment is done by one thread, too.

The wheels of numpy come with OpenBLAS. Where there is something else, BLAS is left alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from asyncmon.graph.kernels.blas_library import find

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["can_be_kept", "keeper", "kept_to_one_thread"]


def _functions() -> tuple[Any, Any] | None:
    """Return the functions that get and set the number of threads."""
    get, put = find("openblas_get_num_threads"), find("openblas_set_num_threads")
    if get is None or put is None:
        return None
    put[0].argtypes, put[0].restype = [ctypes.c_int], None
    return get[0], put[0]


class _Keeper:
    """Counts those who want BLAS kept; the last one lets it have its threads back.

    Attributes:
        count: of those who want it at present, in whichever threads.
    """

    def __init__(self) -> None:
        self._functions = _functions()
        self._mutex = threading.Lock()
        self.count = 0
        self._before = 1
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def can(self) -> bool:
        return self._functions is not None

    def begin(self) -> None:
        with self._mutex:
            if not self.count and self._functions is not None:
                get, put = self._functions
                self._before = int(get())
                put(1)
            self.count += 1

    def end(self) -> None:
        with self._mutex:
            self.count -= 1
            if not self.count and self._functions is not None:
                self._functions[1](self._before)

    def _forget(self) -> None:
        """Begin anew in a child process, where none of the threads is that wanted BLAS kept."""
        self._mutex = threading.Lock()
        if self.count and self._functions is not None:
            self._functions[1](self._before)
        self.count = 0


keeper = _Keeper()
"""Of this process."""


def can_be_kept() -> bool:
    """Return whether :func:`kept_to_one_thread` does anything."""
    return keeper.can


@contextmanager
def kept_to_one_thread() -> Iterator[None]:
    """Have BLAS use one thread inside ``with``."""
    keeper.begin()
    try:
        yield
    finally:
        keeper.end()
