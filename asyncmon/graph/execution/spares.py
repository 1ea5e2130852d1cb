"""Memory for the copies that a snapshot costs, made ready before it is needed.

Memory that is new to a process is slow: the system clears it, page by page, and on a virtual machine
may have to get it from the host first. The step that follows a snapshot writes all of the state to
other arrays; so where a snapshot is expected these are made ready in a thread, or are those that the
last one let go.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.execution.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Spares"]

_SOON = 5.0  # seconds: memory for a snapshot that is not expected within them is better used elsewhere
_LARGE = 1 << 18  # bytes: smaller arrays come from memory that the process has anyway
_IN_TIME = 0.7  # of the time there is, for making arrays ready
_STRETCH = 1 << 22  # bytes made ready at once
_PAGE = 1 << 12  # bytes, or a part of a larger one
_ONLY_HERE = 2  # references to an array that nobody else has: a name, and the argument that is counted


class Spares:
    """Arrays of no use at present. They are freed when the snapshot they are for does not come."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._arrays: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
        self._expected = False
        self._too_late = threading.Event()  # to make arrays ready
        self._timer: asyncio.TimerHandle | None = None
        self._worker = Worker("asyncmon-session-memory")

    def expect(self, secs: float, needed: Sequence[Any]) -> None:
        """Say, in the event loop, in how many seconds there will be a snapshot.

        Arrays are kept for twice as long, unless it is said again by then.

        Args:
            secs: when.
            needed: make arrays like these ready if there are none: what steps write, where no snapshot
                is alive that will let go of as much. Of views, those that they are parts of count.
        """
        if secs > _SOON:
            self.give_back()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(2 * secs, self.give_back)
        with self._mutex:
            self._expected = True
            large = [] if self._arrays else [_key(array) for array in _large(needed)]
        if large:
            self._too_late.set()  # for those that are being made ready: they are made ready again
            self._too_late = threading.Event()
            self._worker.start(partial(self._make_ready, large, _IN_TIME * secs, self._too_late))

    def keep(self, arrays: Iterable[Any]) -> None:
        """Take arrays that are no part of the state any more; from any thread."""
        with self._mutex:
            for array in _large(arrays) if self._expected else ():
                self._arrays[_key(array)].append(array)

    def like(self, array: Any) -> Any:
        """Return an array of the same shape and dtype, whatever it contains; from any thread."""
        key = _key(array)
        with self._mutex:
            spares = self._arrays.get(key, [])
            while spares:
                spare = spares.pop()
                if not spares:
                    del self._arrays[key]
                if sys.getrefcount(spare) <= _ONLY_HERE:  # somebody may look at a version for longer
                    return spare
        self._too_late.set()
        return np.empty(array.shape, array.dtype)

    def give_back(self) -> None:
        """Free what is kept, and keep nothing until a snapshot is expected again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._too_late.set()
        with self._mutex:
            self._expected = False
            self._arrays.clear()

    def close(self) -> None:
        """Give back, and let the thread end. A second call does nothing."""
        self.give_back()
        self._worker.close()

    def _make_ready(
        self, keys: Sequence[tuple[Any, ...]], secs: float, too_late: threading.Event
    ) -> None:
        """Do so bit by bit, all the time there is: the steps want the processor, too."""
        arrays = [np.empty(shape, dtype) for shape, dtype in keys]
        total, done, start = sum(array.nbytes for array in arrays), 0, perf_counter()
        for array in arrays:
            pages = array.reshape(-1).view(np.uint8)
            for at in range(0, array.nbytes, _STRETCH):
                bit = pages[at : at + _STRETCH]
                bit[::_PAGE] = 0
                done += bit.nbytes
                if too_late.wait(max(0.0, start + secs * done / total - perf_counter())):
                    return
            del pages, bit
            self.keep([array])


def _large(arrays: Iterable[Any]) -> list[Any]:
    """Return the arrays, each once, that have large memory of their own; for views, whose they are."""
    owners = [x if x.base is None else x.base for x in arrays if isinstance(x, np.ndarray)]
    return [x for x in {id(x): x for x in owners}.values() if x.nbytes >= _LARGE]


def _key(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype
