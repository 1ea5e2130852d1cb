"""Time, read in one place.

The clock is the running event loop's: a loop with virtual time (:mod:`asyncmon.testing`) makes every
timer, deadline and time stamp of asyncmon virtual, with nothing to inject anywhere. Durations of
computations (how long did this plan take?) are the one exception: they are about the machine and use
:func:`time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar
from weakref import WeakKeyDictionary, ref

__all__ = ["LoopBudget", "monotonic", "wall"]


def monotonic() -> float:
    """Return seconds on the running loop's clock, which never goes back.

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


class LoopBudget:
    """How long the event loop has been held since it last went round.

    An ``await`` that never suspends gives no other task a turn, so a ``while`` loop of steps that are
    each computed inline would starve a service. Whoever does such work asks :meth:`spent` after it
    and yields once (``await asyncio.sleep(0)``) when the answer is true. One budget is shared by all
    sessions of a loop; a thousand of them still let it turn.

    Example::

        budget = LoopBudget.of_running_loop()
        ...  # some microseconds of work
        if budget.spent():
            await asyncio.sleep(0)
    """

    __slots__ = ("_armed", "_loop", "_seconds", "_turned")

    _budgets: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBudget]] = WeakKeyDictionary()

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = 0.0005) -> None:
        self._loop = ref(loop)  # a strong one would keep the loop alive through _budgets
        self._seconds = seconds
        self._turned = 0.0
        self._armed = False

    @classmethod
    def of_running_loop(cls) -> LoopBudget:
        """Return the budget of the running loop, the same object at every call."""
        loop = asyncio.get_running_loop()
        budget = cls._budgets.get(loop)
        if budget is None:
            budget = cls._budgets[loop] = cls(loop)
        return budget

    def spent(self) -> bool:
        """Return true when the loop has been held for longer than it should be."""
        now = time.perf_counter()
        if self._armed:
            return now - self._turned > self._seconds
        loop = self._loop()
        assert loop is not None, "asked from a loop that is gone"
        self._armed = True
        self._turned = now
        loop.call_soon(self._turn)
        return False

    def _turn(self) -> None:
        self._armed = False
