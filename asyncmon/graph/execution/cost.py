"""The cost of computations, learnt from their runs: which of them would hold the event loop."""

from __future__ import annotations

from math import inf
from time import perf_counter, thread_time

from asyncmon.graph.numerics.parallel import team_seconds

_LARGE = 1 << 18  # elements: a first run that computes so many goes to a worker
_SMALL = 1 << 12  # fed elements: of fewer, the time of a run does not depend on how many there are
_MOST = 64  # limits that a single run counts for: after 13 more an outlier is forgotten


class CostModel:
    """The average seconds of runs, and how many elements were fed to them.

    Attributes:
        average: seconds, 0 before the first run.
        weight: elements computed, as far as they are known. Infinite where something is repeated as
            often as its inputs say: no run tells how long the next one takes.
    """

    __slots__ = ("_fed", "average", "weight")

    def __init__(self, weight: float = 0) -> None:
        self.average = 0.0
        self.weight = weight
        self._fed = 0.0

    def is_short(self, limit: float, fed: int = 0) -> bool:
        """Return whether the next run may hold the loop.

        Args:
            limit: seconds that it may take.
            fed: elements fed to it, where they can be more or fewer. One that gets many more than those
                before is taken to last longer in proportion.
        """
        average = self.average
        if not average:
            return self.weight + fed < _LARGE and limit > 0
        if fed > _SMALL and fed > 4 * self._fed:
            average *= fed / max(self._fed, 1.0)
        return average < limit

    def observe(self, seconds: float, limit: float, fed: int = 0) -> None:
        """Take the time of a run into account."""
        if self.weight == inf:
            return
        if seconds > _MOST * limit:
            seconds = _MOST * limit
        average = self.average
        if average:
            self.average = average + (seconds - average) * 0.2
            if fed != self._fed:
                self._fed += (fed - self._fed) * 0.2
        else:
            self.average, self._fed = seconds, fed


def wall_clock() -> float:
    """Return the seconds that pass, and those of the team."""
    return perf_counter() + team_seconds()


def thread_clock() -> float:
    """Return the seconds of this thread, without those in which others hold the interpreter."""
    return thread_time() + team_seconds()
