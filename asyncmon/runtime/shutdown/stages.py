"""The grace period after a signal, and the parts of the shutdown that share it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from enum import Enum

_SHARE, _MOST_SECS = 0.04, 1.0
_LEAST_SAVE_SECS = 1.0  # a disk may be busy


class Part(Enum):
    """A part of a session's shutdown, which ends before the next one: see :class:`GraceBudget`."""

    RUNS = "current runs, until they are interrupted"
    ENDS = "the hooks' end"
    SAVES = "the end of hooks that save"
    TASKS = "background tasks, until they are cancelled"
    JOIN = "their cancellation, and the close of the raw session"
    CLEANUP = "the hooks' cleanup"


class GraceBudget:
    """One deadline for the whole shutdown of a session after a signal.

    Each part ends early enough for the later ones. The last save has the time it is expected to take,
    at least one second and at most half of the grace period. Each other part has 4 % of the grace
    period, at most one second. Without a signal there is no deadline."""

    def __init__(self) -> None:
        self.deadline = math.inf
        """On the loop's clock."""
        self._left = dict.fromkeys(Part, 0.0)
        self._open: dict[asyncio.Timeout, Part] = {}

    @property
    def is_running(self) -> bool:
        """Whether there is a deadline, after a signal."""
        return self.deadline < math.inf

    def is_over(self, part: Part) -> bool:
        """Return whether the time of a part is over."""
        return self.is_running and asyncio.get_running_loop().time() >= self.until(part)

    def start(self, deadline: float, secs: float, save_secs: float) -> None:
        """Set the deadline, or move it to an earlier time.

        Args:
            deadline: on the loop's clock.
            secs: the grace period.
            save_secs: the expected time of the last save.
        """
        if deadline >= self.deadline:
            return
        one, save = min(_SHARE * secs, _MOST_SECS), min(max(save_secs, _LEAST_SAVE_SECS), secs / 2)
        kept = (4 * one + save, 3 * one + save, 3 * one, 2 * one, one, 0.0)
        self.deadline, self._left = deadline, dict(zip(Part, kept, strict=True))
        for timeout, of in self._open.items():
            if not timeout.expired():
                timeout.reschedule(self.until(of))

    def until(self, part: Part) -> float:
        """Return the deadline of a part on the loop's clock; ``math.inf`` without a signal."""
        return self.deadline - self._left[part]

    @contextlib.asynccontextmanager
    async def limit(self, part: Part) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the block at the deadline of its part, also if the signal comes during the block.

        Raises:
            TimeoutError: the deadline was exceeded.
        """
        when = self.until(part)
        async with asyncio.timeout_at(when if when < math.inf else None) as timeout:
            self._open[timeout] = part
            try:
                yield timeout
            finally:
                del self._open[timeout]
