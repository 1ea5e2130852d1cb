"""Time, read in one place.

The clock is that of the running event loop: a loop with virtual time (:mod:`asyncmon.testing`) makes
every timer, deadline and time stamp of asyncmon virtual. Durations of computations are the exception:
they are measured with :func:`time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import time


def monotonic() -> float:
    """Return the monotonic time of the running loop, in seconds.

    In a thread without a running loop this is :func:`time.monotonic`, the clock of asyncio's loops.
    """
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def wall() -> float:
    """Return seconds since the epoch, for time stamps. A loop may define its own ``wall_time()``."""
    try:
        source = getattr(asyncio.get_running_loop(), "wall_time", time.time)
    except RuntimeError:
        return time.time()
    return float(source())
