"""The time that is left after a signal, and the parts of the end that share it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from enum import Enum

_SHARE, _MOST_SECS = 0.04, 1.0
_LEAST_SAVE_SECS = 1.0  # a disk may be busy


class Part(Enum):
    """A part of the end of a session, and until when it may take: see :class:`GraceBudget`."""

    RUNS = "the runs under way, until they are abandoned"
    ENDS = "the hooks' end"
    SAVES = "the end of hooks that save"
    TASKS = "background tasks, until they are cancelled"
    JOIN = "their cancellation, and the close of the raw session"
    CLEANUP = "the hooks' cleanup"


class GraceBudget:
    """One deadline for everything that a session still does after a signal.

    Each part has to end before the next ones need their time. For the last save that is the time it is
    expected to take, one second at least and half of the grace period at most; for each other part 4 %
    of the grace period, one second at most. Without a signal there is no deadline.
    """

    def __init__(self) -> None:
        self.deadline = math.inf
        """On the loop's clock."""
        self._left = dict.fromkeys(Part, 0.0)
        self._open: dict[asyncio.Timeout, Part] = {}

    @property
    def is_running(self) -> bool:
        """Whether a signal came."""
        return self.deadline < math.inf

    def is_over(self, part: Part) -> bool:
        """Return whether a part can not begin any more."""
        return self.is_running and asyncio.get_running_loop().time() >= self.until(part)

    def start(self, deadline: float, secs: float, save_secs: float) -> None:
        """Begin, or move the deadline to an earlier time.

        Args:
            deadline: on the loop's clock.
            secs: the grace period.
            save_secs: expected of the last save.
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
        """Return when a part has to be over, on the loop's clock; ``math.inf`` without a signal."""
        return self.deadline - self._left[part]

    @contextlib.asynccontextmanager
    async def limit(self, part: Part) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the block when its part has to be over, also where the signal comes meanwhile.

        Raises:
            TimeoutError: it was.
        """
        when = self.until(part)
        async with asyncio.timeout_at(when if when < math.inf else None) as timeout:
            self._open[timeout] = part
            try:
                yield timeout
            finally:
                del self._open[timeout]
