"""Write files with pauses that leave the processor to the steps."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

from asyncmon.errors import CancelledError

_INTERVAL = 1 << 20  # bytes between two pauses
_AFTER_STOP_SECS = 0.5  # to remove the files of a stopped save
_CONTENDED = 1.5  # ratio of elapsed time to processor time above which the processor is contended
# The ratio of a pause to the processor time of the writer before it. Without contention only small
# machines need pauses, as one writer uses much of the memory bandwidth: 4 with 2 processors, 1.5 with
# 4, none with 10.
_PAUSE_CONTENDED = 4.0
_PAUSE_ALONE = max(0.0, min(_PAUSE_CONTENDED, 10 / (os.cpu_count() or 1) - 1))


class Control:
    """Stops or unthrottles the worker threads of one save, from the event loop.

    Args:
        due: the time of :func:`time.perf_counter` at which the save should be complete, if any.

    Attributes:
        left: the number of bytes to write.
        ends: the time of :func:`time.perf_counter` after which requests to a store are abandoned, once
            :meth:`stop` was called.
    """

    __slots__ = ("_changed", "_urgent", "due", "ends", "left", "stopped")

    def __init__(self, due: float | None = None) -> None:
        self.due = due
        self.left = 0
        self.stopped = False
        self.ends = math.inf
        self._urgent = threading.Event()
        self._changed: Callable[[], object] | None = None

    def stop(self) -> None:
        """Stop the threads at the next chunk."""
        self.stopped = True
        self.ends = min(self.ends, time.perf_counter() + _AFTER_STOP_SECS)
        self.unthrottle()

    def unthrottle(self) -> None:
        """End all pauses, as the caller waits for the save."""
        self._urgent.set()
        if self._changed is not None:
            self._changed()

    @property
    def is_urgent(self) -> bool:
        """Whether the save is unthrottled or stopped."""
        return self._urgent.is_set()

    def on_change(self, fn: Callable[[], object] | None) -> None:
        """Set a function that :meth:`stop` and :meth:`unthrottle` call, in any thread."""
        self._changed = fn

    def check(self) -> None:
        """Raise :class:`~asyncmon.errors.CancelledError` after :meth:`stop`."""
        if self.stopped:
            raise CancelledError("The save was stopped")

    def pause(self, seconds: float) -> None:
        """Block the thread for a time in seconds, or until :meth:`stop` or :meth:`unthrottle`."""
        self._urgent.wait(seconds)


current: ContextVar[Control | None] = ContextVar("current", default=None)
"""The control of the save that this thread writes, which also ends requests to a store."""


class Pace:
    """Pauses a writer thread so that it does not slow down the steps.

    Pauses are shortened if the save would miss its due time.
    """

    __slots__ = ("_bytes", "_control", "_processor", "_wall")

    def __init__(self, control: Control) -> None:
        self._control = control
        self._begin()

    def did(self, nbytes: int) -> None:
        """Count written bytes, and pause after each megabyte."""
        self._bytes += nbytes
        if self._bytes < _INTERVAL:
            return
        self._control.left -= self._bytes
        used = time.thread_time() - self._processor
        contended = time.perf_counter() - self._wall > _CONTENDED * used
        pause = used * (_PAUSE_CONTENDED if contended else _PAUSE_ALONE)
        self._control.pause(min(pause, self._longest_pause(used)))
        self._begin()

    def _longest_pause(self, used: float) -> float:
        """Return the longest pause if each remaining megabyte takes as long as this one."""
        due = self._control.due
        if due is None:
            return math.inf
        intervals = max(self._control.left, 0) / self._bytes
        return max(0.0, due - time.perf_counter() - intervals * used) / (intervals + 1)

    def _begin(self) -> None:
        self._bytes = 0
        self._processor = time.thread_time()
        self._wall = time.perf_counter()


def each(calls: Sequence[Callable[[], None]], control: Control) -> None:
    """Make blocking calls in parallel, as most of them wait for other processes.

    The first error stops ``control``, and is raised.

    Raises:
        CancelledError: ``control`` was stopped.
    """
    errors: list[BaseException] = []

    def make(call: Callable[[], None]) -> None:
        current.set(control)
        try:
            control.check()
            call()
        except BaseException as error:
            errors.append(error)
            control.stop()

    if len(calls) <= 1:
        list(map(make, calls))
    else:
        with ThreadPoolExecutor(len(calls), "checkpoint writer") as pool:
            list(pool.map(make, calls))
    try:
        if errors:
            raise errors[0]
        control.check()
    finally:
        errors.clear()  # avoids a reference cycle through the traceback
