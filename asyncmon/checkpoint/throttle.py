"""Write several files side by side, at a pace that leaves the processor to the steps."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from asyncmon.errors import CancelledError

_WRITERS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Threads that one save uses: the steps that go on meanwhile keep the other half of the machine."""

_STRETCH = 1 << 20
_CONTENDED = 1.5
_RESTS = 4.0
_RESTS_ALONE = max(0.0, min(_RESTS, 10 / (os.cpu_count() or 1) - 1))


class Control:
    """Stops or unthrottles the worker threads of one save, from the event loop.

    Args:
        due: the time of :func:`time.perf_counter` at which the save should be done, if any.

    Attributes:
        left: bytes that are not written yet.
    """

    __slots__ = ("_changed", "_urgent", "due", "left", "stopped")

    def __init__(self, due: float | None = None) -> None:
        self.due = due
        self.left = 0
        self.stopped = False
        self._urgent = threading.Event()
        self._changed: Callable[[], object] | None = None

    def stop(self) -> None:
        """Make the threads stop at the next piece."""
        self.stopped = True
        self.unthrottle()

    def unthrottle(self) -> None:
        """End all pauses: the caller waits for the end of the save."""
        self._urgent.set()
        if self._changed is not None:
            self._changed()

    @property
    def is_urgent(self) -> bool:
        """Whether it was unthrottled or stopped."""
        return self._urgent.is_set()

    def on_change(self, fn: Callable[[], object] | None) -> None:
        """Have a function called, in any thread, by each :meth:`stop` and :meth:`unthrottle`."""
        self._changed = fn

    def check(self) -> None:
        """Raise :class:`~asyncmon.errors.CancelledError` after :meth:`stop`."""
        if self.stopped:
            raise CancelledError("The save was stopped")

    def pause(self, seconds: float) -> None:
        """Block the calling thread for some seconds, or until :meth:`stop` or :meth:`unthrottle`."""
        self._urgent.wait(seconds)


class Pace:
    """Pauses a background thread so that it does not slow down the steps.

    Every megabyte it compares the time that passed with the processor time of the thread. Where that
    is much less, the processor is contended, and the pause is four times the time used. Elsewhere it
    pauses on a small machine only, where one writer takes a good part of the memory's speed: four times
    the time used on 2 processors, 1.5 times on 4, never on 10. Pauses are shorter where the save would
    be late.
    """

    __slots__ = ("_bytes", "_control", "_processor", "_wall")

    def __init__(self, control: Control) -> None:
        self._control = control
        self._begin()

    def did(self, nbytes: int) -> None:
        """Count bytes, and pause after each megabyte."""
        self._bytes += nbytes
        if self._bytes < _STRETCH:
            return
        self._control.left -= self._bytes
        used = time.thread_time() - self._processor
        contended = time.perf_counter() - self._wall > _CONTENDED * used
        rest = used * (_RESTS if contended else _RESTS_ALONE)
        self._control.pause(min(rest, self._spare(used)))
        self._begin()

    def _spare(self, used: float) -> float:
        """Return the longest pause if every stretch to come takes as long as this one."""
        due = self._control.due
        if due is None:
            return math.inf
        stretches = max(self._control.left, 0) / (self._bytes * _WRITERS)
        return max(0.0, due - time.perf_counter() - stretches * used) / (stretches + 1)

    def _begin(self) -> None:
        self._bytes = 0
        self._processor = time.thread_time()
        self._wall = time.perf_counter()


def each(calls: Sequence[Callable[[], None]], control: Control, elsewhere: int = 0) -> None:
    """Make blocking calls, a few at a time. The first that fails stops the others; its error is raised.

    Args:
        calls: the calls.
        control: is stopped by an error.
        elsewhere: how many of them may wait for other processes, besides the few.

    Raises:
        CancelledError: ``control`` was stopped.
    """
    errors: list[BaseException] = []

    def make(call: Callable[[], None]) -> None:
        try:
            control.check()
            call()
        except BaseException as error:
            errors.append(error)
            control.stop()

    workers = min(_WRITERS + elsewhere, len(calls))
    if workers <= 1:
        list(map(make, calls))
    else:
        with ThreadPoolExecutor(workers, "checkpoint writer") as pool:
            list(pool.map(make, calls))
    try:
        if errors:
            raise errors[0]
        control.check()
    finally:
        errors.clear()  # else an error would refer to itself by its traceback
