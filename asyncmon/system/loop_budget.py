"""Share the event loop's thread fairly among loops of short computations."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import ClassVar
from weakref import WeakKeyDictionary, ref


class LoopBudget:
    """The time for which tasks may hold the event loop between two of its iterations.

    An ``await`` that never suspends lets no other task run, so a ``while`` loop of steps that are each
    computed inline would starve a service. Such code checks :meth:`spent` after each computation and
    awaits :meth:`pause` when it is true. All sessions of a loop share one budget. They resume in the
    order of their pauses, one in each iteration of the loop, and then have the same time each.
    """

    __slots__ = (
        "__weakref__", "_armed", "_clock", "_iteration", "_loop", "_since", "_slice", "_waiting",
        "seconds",
    )  # fmt: skip

    _budgets: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, LoopBudget]] = WeakKeyDictionary()
    _latest: ClassVar[LoopBudget | None] = None

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = 0.0006) -> None:
        # A loop with a clock of its own makes runs that can be repeated exactly.
        self._clock = getattr(loop, "cpu_time", time.perf_counter)
        self._loop = ref(loop)  # a strong one would keep the loop alive through _budgets
        self._slice = seconds  # for a single task
        self.seconds = seconds  # for each task, while several wait
        self._iteration = 0
        self._since = 0.0
        self._armed = False  # whether _next_iteration is scheduled
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

    def spent(self) -> bool:
        """Return whether the loop has been held for longer than it should be."""
        if self._armed:
            return self._clock() - self._since > self.seconds
        self._begin()
        return False

    def iteration(self) -> int:
        """Return a number that differs in a later iteration of the loop."""
        if not self._armed:
            self._begin()
        return self._iteration

    async def pause(self) -> None:
        """Return in a later iteration of the loop, after all earlier pauses."""
        waiter: asyncio.Future[None] = self._running_loop().create_future()
        self._waiting.append(waiter)
        self._divide()
        if not self._armed:
            self._begin()
        await waiter
        self._begin()

    def _begin(self) -> None:
        self._since = self._clock()
        if not self._armed:
            self._armed = True
            self._running_loop().call_soon(self._next_iteration)

    def _next_iteration(self) -> None:
        """End the longest pause. Called once in each iteration in which a task works or pauses."""
        self._armed = False
        self._iteration += 1
        waiting = self._waiting
        while waiting:
            waiter = waiting.popleft()
            if not waiter.done():  # else cancelled
                waiter.set_result(None)
                break
        self._divide()
        if waiting:
            self._begin()

    def _divide(self) -> None:
        """Shorten the time of each task while several wait."""
        # A task switch takes some microseconds: less than a fifth would be mostly switches.
        self.seconds = self._slice / min(1 + len(self._waiting), 5)

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop()
        assert loop is not None, "used by a task of this loop"
        return loop
