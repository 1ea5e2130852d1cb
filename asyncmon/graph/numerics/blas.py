"""Single-threaded BLAS while the engine itself spreads a run over the cores.

BLAS threads wait for each other by spinning, which takes the cores from all other threads. A run of
large products therefore splits them itself (:mod:`asyncmon.graph.numerics.parallel`), as a convolution
does, and sets BLAS to one thread.

Only OpenBLAS, which numpy's wheels contain, has this setting; any other BLAS is left alone.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asyncmon.system.portable import after_fork_in_child


def _library() -> ctypes.CDLL | None:
    # an extension module of numpy also gives access to the symbols of the BLAS it is linked with
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):
        try:
            return ctypes.CDLL(importlib.import_module(name).__file__)
        except ImportError:  # numpy 1 has the second one, and numpy 2 warns of it
            continue
        except (OSError, TypeError):
            return None
    return None


def _functions() -> tuple[Any, Any] | None:
    """Return OpenBLAS's getter and setter of its number of threads, or None without OpenBLAS."""
    # threadpoolctl would set it for one thread of a process only, and steps run in several.
    library = _library()
    for prefix in ("scipy_", ""):  # numpy's wheels rename the symbols of their copy
        for suffix in ("64_", ""):
            names = [f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set")]
            get, put = (getattr(library, name, None) for name in names)
            if get is not None and put is not None:
                return get, put
    return None


class BlasThreads:
    """The number of threads of BLAS, and the runs that need it to be one."""

    def __init__(self) -> None:
        self._functions = _functions()
        self._mutex = threading.Lock()
        self._runs = 0
        self._before = 1
        after_fork_in_child(self._reset)

    @property
    def is_controllable(self) -> bool:
        """True with OpenBLAS."""
        return self._functions is not None

    @property
    def limit(self) -> int | None:
        """The current number of threads, None where it is not controllable."""
        return None if self._functions is None else int(self._functions[0]())

    @limit.setter
    def limit(self, count: int) -> None:
        if self._functions is not None:
            self._functions[1](count)

    @contextmanager
    def single(self) -> Iterator[None]:
        """Set BLAS to one thread inside ``with``; the last of several users restores the setting."""
        with self._mutex:
            # It is global to the process: other products, too, are single-threaded during that time.
            if not self._runs:
                self._before = self.limit or 1
                self.limit = 1
            self._runs += 1
        try:
            yield
        finally:
            with self._mutex:
                self._runs -= 1
                if not self._runs:
                    self.limit = self._before

    def _reset(self) -> None:
        # a forked process has none of the parent's runs, and the mutex may be locked for ever
        self._mutex = threading.Lock()
        if self._runs:
            self.limit = self._before
        self._runs = 0


blas_threads = BlasThreads()
"""Those of this process."""

single_threaded_blas = blas_threads.single
