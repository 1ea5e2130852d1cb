"""Single-threaded BLAS while the engine itself spreads a run over the cores.

BLAS threads wait for each other by spinning, which takes the cores from all other threads. A run of
large products therefore splits them itself (:mod:`asyncmon.graph.numerics.parallel`), as a convolution
does, and sets BLAS to one thread. The setting is global to the process, so other products are
single-threaded during that time, too.

Only OpenBLAS, which numpy's wheels contain, has this setting; any other BLAS is left alone.
(threadpoolctl sets it for one thread of a process only, and steps run in several.)
"""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def _library() -> ctypes.CDLL | None:
    """Load an extension module of numpy: symbols of the BLAS that it is linked with are found, too."""
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            return ctypes.CDLL(importlib.import_module(name).__file__)
        except ImportError:  # numpy 1 has the second one, and numpy 2 warns of it
            continue
        except (OSError, TypeError):
            return None
    return None


def _functions() -> tuple[Any, Any] | None:
    """Return the functions that get and set the number of threads of OpenBLAS; None without it."""
    library = _library()
    for prefix in ("scipy_", ""):  # numpy's wheels rename what they bring along
        for suffix in ("64_", ""):
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            get, put = (getattr(library, name, None) for name in names)
            if get is not None and put is not None:
                return get, put
    return None


class _Threads:
    """Counts the runs that want BLAS single-threaded; the last one restores the setting.

    Attributes:
        count: how many there are at present, in all threads.
    """

    def __init__(self) -> None:
        self._functions = _functions()
        self._mutex = threading.Lock()
        self.count = 0
        self._before = 1
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    @property
    def is_controllable(self) -> bool:
        """Whether counting does anything."""
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
        """Restore the setting in a child process, which has none of the counted threads."""
        self._mutex = threading.Lock()
        if self.count and self._functions is not None:
            self._functions[1](self._before)
        self.count = 0


blas_threads = _Threads()
"""Of this process."""


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Have BLAS use one thread inside ``with``."""
    blas_threads.begin()
    try:
        yield
    finally:
        blas_threads.end()
