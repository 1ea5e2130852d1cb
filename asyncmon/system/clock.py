"""Time and random identifiers, read in one place.

The clock is that of the running event loop: a loop with virtual time (:mod:`asyncmon.testing`) makes
every timer, deadline and time stamp of asyncmon virtual. Durations of computations are the exception:
they are measured with :func:`time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import os
import time

from asyncmon.system.process import simulated


def monotonic() -> float:
    """Return the monotonic time of the running loop, in seconds.

    In a thread without a running loop this is :func:`time.monotonic`, the clock of asyncio's loops.
    """
    loop = _loop()
    return time.monotonic() if loop is None else loop.time()


def wall() -> float:
    """Return seconds since the epoch, for time stamps. A loop may define its own ``wall_time()``."""
    return float(getattr(_loop(), "wall_time", time.time)())


def random_bytes(count: int) -> bytes:
    """Return unpredictable bytes, for identifiers and seeds. A loop may define ``random_bytes()``."""
    found: bytes = getattr(_loop(), "random_bytes", os.urandom)(count)
    return found


def random_seed() -> int:
    """Return an unpredictable integer of 63 bits."""
    return int.from_bytes(random_bytes(8)) >> 1


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # a thread
        process = simulated.get()
        return None if process is None else process.loop
