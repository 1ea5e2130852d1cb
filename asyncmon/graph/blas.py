"""Keeping BLAS to one thread where the engine itself spreads a run over the cores.

Threads of BLAS wait for each other by spinning: beside them nothing else gets a core, and where
something does get one, all of them wait. So a heavy plan cuts its products up and shares the pieces
out (:mod:`asyncmon.graph.sharing`), and BLAS is kept to one thread meanwhile. That is a setting of the
whole process: what somebody else multiplies at the same moment is done by one thread, too.

The wheels of numpy come with OpenBLAS. Where there is something else, BLAS is left alone.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["can_be_kept", "kept_to_one_thread"]


def _functions() -> tuple[Any, Any] | None:
    """Return the functions that get and set the number of threads."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            module = importlib.import_module(name)
            library = ctypes.CDLL(module.__file__)  # names in what it is linked with are found, too
        except (ImportError, OSError, TypeError):
            continue
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    put.argtypes, put.restype = [ctypes.c_int], None
                    return get, put
    return None


class _Keeper:
    """Counts those who want BLAS kept; the last one lets it have its threads back."""

    def __init__(self) -> None:
        self._functions = _functions()
        self._mutex = threading.Lock()
        self._count = 0
        self._before = 1
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def can(self) -> bool:
        return self._functions is not None

    def begin(self) -> None:
        if self._functions is None:
            return
        get, put = self._functions
        with self._mutex:
            if not self._count:
                self._before = int(get())
                put(1)
            self._count += 1

    def end(self) -> None:
        if self._functions is None:
            return
        with self._mutex:
            self._count -= 1
            if not self._count:
                self._functions[1](self._before)

    def _forget(self) -> None:
        """Begin anew in a child process, where none of the threads is that wanted BLAS kept."""
        self._mutex = threading.Lock()
        if self._count and self._functions is not None:
            self._functions[1](self._before)
        self._count = 0


_keeper = _Keeper()


def can_be_kept() -> bool:
    """Return whether :func:`kept_to_one_thread` does anything."""
    return _keeper.can


@contextmanager
def kept_to_one_thread() -> Iterator[None]:
    """Have BLAS use one thread inside ``with``."""
    _keeper.begin()
    try:
        yield
    finally:
        _keeper.end()
