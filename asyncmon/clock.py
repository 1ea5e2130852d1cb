"""Time, read in one place.

The clock is the running event loop's: a loop with virtual time (:mod:`asyncmon.testing`) makes every
timer, deadline and time stamp of asyncmon virtual, with nothing to inject anywhere. Durations of
computations (how long did this plan take?) are the one exception: they are about the machine and use
:func:`time.perf_counter`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
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
    """How long the event loop has been held since it last went round, and whose turn it is then.

    An ``await`` that never suspends gives no other task a turn, so a ``while`` loop of steps that are
    each computed inline would starve a service. Whoever does such work asks :meth:`spent` after it
    and awaits :meth:`turn` when the answer is true. One budget is shared by all sessions of a loop,
    which come in the order in which they asked, one in each round of the loop, and then have the same
    time each: a thousand of them share it evenly, and still let it go round.

    Example::

        budget = LoopBudget.of_running_loop()
        ...  # some microseconds of work
        if budget.spent():
            await budget.turn()
    """

    __slots__ = ("__weakref__", "_armed", "_loop", "_seconds", "_since", "_slice", "_waiting")

    _budgets: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBudget]] = WeakKeyDictionary()
    _latest: ClassVar[LoopBudget | None] = None

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = 0.0006) -> None:
        self._loop = ref(loop)  # a strong one would keep the loop alive through _budgets
        self._slice = seconds  # for one that is alone
        self._seconds = seconds  # for each of those there are
        self._since = 0.0
        self._armed = False  # whether _go_round is called in the next round
        self._waiting: deque[asyncio.Future[None]] = deque()

    @classmethod
    def of_running_loop(cls) -> LoopBudget:
        """Return the budget of the running loop, the same object at every call."""
        loop = asyncio.get_running_loop()
        budget = cls._latest
        if budget is not None and budget._loop() is loop:
            return budget
        budget = cls._budgets.get(loop)
        if budget is None:
            budget = cls._budgets[loop] = cls(loop)
        cls._latest = budget
        return budget

    def is_of_running_loop(self) -> bool:
        """Whether the loop that this is of runs, in whichever thread."""
        loop = self._loop()
        return loop is not None and loop.is_running()

    def spent(self) -> bool:
        """Return true when the loop has been held for longer than it should be."""
        if self._armed:
            return time.perf_counter() - self._since > self._seconds
        self._begin()
        return False

    async def turn(self) -> None:
        """Let the loop go round, and everybody before who waits here, then return."""
        waiter: asyncio.Future[None] = self._running_loop().create_future()
        self._waiting.append(waiter)
        self._share()
        if not self._armed:
            self._begin()
        await waiter
        self._begin()

    def _begin(self) -> None:
        self._since = time.perf_counter()
        if not self._armed:
            self._armed = True
            self._running_loop().call_soon(self._go_round)

    def _go_round(self) -> None:
        """Wake the first who waits; called once in each round in which anybody works or waits."""
        self._armed = False
        waiting = self._waiting
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():  # else cancelled
                waiter.set_result(None)
                break
        self._share()
        if waiting:
            self._begin()

    def _share(self) -> None:
        """Shorten the time of each where many wait, so that a round of all of them does not take long.

        A change of hands takes some microseconds, so no less than a fifth.
        """
        self._seconds = self._slice / min(1 + len(self._waiting), 5)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "asked from a loop that is gone"
        return loop
