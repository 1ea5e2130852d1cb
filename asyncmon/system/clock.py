"""Time and random identifiers, read in one place.

The clock is that of the running event loop: a loop with virtual time (:mod:`asyncmon.testing`) makes
every timer, deadline and time stamp of asyncmon virtual. Durations of computations are the exception:
they are measured with :func:`time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import time
from typing import Protocol

from asyncmon.system.process_local import ProcessLocal


class Clock(Protocol):
    """A source of time: an event loop, or the source that threads use.

    It may define ``wall_time()`` and ``random_bytes(count)`` too.
    """

    def time(self) -> float:
        """Return monotonic seconds."""


class _SystemClock:
    """The clock of asyncio's loops."""

    time = staticmethod(time.monotonic)


thread_clock: ProcessLocal[Clock] = ProcessLocal(_SystemClock)
"""The clock of threads without a running loop."""


def monotonic() -> float:
    """Return the monotonic time of the running loop, in seconds; in a thread, of its clock."""
    return _clock().time()


def of_threads() -> float:
    """Return the monotonic time of threads, in seconds; the same clock in a loop's thread, too."""
    return thread_clock.get().time()


def wall() -> float:
    """Return seconds since the epoch, for time stamps."""
    return float(getattr(_clock(), "wall_time", time.time)())


def local_text(wall_time: float) -> str:
    """Return a wall time as the local time with its offset, for people."""
    return datetime.datetime.fromtimestamp(wall_time).astimezone().isoformat(" ", "seconds")


def seconds(name: str, value: float) -> float:
    """Return an argument in seconds. Raises ValueError for NaN, of which no comparison is true."""
    if value != value:
        raise ValueError(f"invalid {name}={value!r}: pass a number of seconds.")
    return value


def random_bytes(count: int) -> bytes:
    """Return unpredictable bytes, for identifiers and seeds."""
    found: bytes = getattr(_clock(), "random_bytes", os.urandom)(count)
    return found


def random_seed() -> int:
    """Return an unpredictable integer of 63 bits."""
    return int.from_bytes(random_bytes(8)) >> 1


def _clock() -> Clock:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a thread
        return thread_clock.get()
