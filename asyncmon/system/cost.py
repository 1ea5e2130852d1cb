"""The measured cost of computations, which decides whether they may hold the event loop."""

from __future__ import annotations

from math import inf

_LARGE = 1 << 18  # elements: a first run that computes more goes to a worker
_SMALL = 1 << 12  # fed elements: below, the time of a run does not depend on their number
_MOST = 64  # multiples of the limit to which a run is clipped: an outlier fades after 13 runs


class CostModel:
    """The average seconds of runs and the number of elements fed to them.

    Attributes:
        average: seconds, 0 before the first run.
        weight: computed elements, as far as known. Infinite if the number of iterations depends on
            inputs: the time of a run then does not predict that of the next one.
    """

    __slots__ = ("_fed", "average", "weight")

    def __init__(self, weight: float = 0) -> None:
        self.average = 0.0
        self.weight = weight
        self._fed = 0.0

    def is_short(self, limit: float, fed: int = 0) -> bool:
        """Return whether the next run may hold the loop.

        Args:
            limit: the maximum seconds.
            fed: elements fed to it through feeds of variable size. With many more elements than in
                earlier runs the time is scaled in proportion.
        """
        average = self.average
        if not average:
            return self.weight + fed < _LARGE and limit > 0
        if fed > _SMALL and fed > 4 * self._fed:
            average *= fed / max(self._fed, 1.0)
        return average < limit

    def observe(self, seconds: float, limit: float, fed: int = 0) -> None:
        """Add the time of a run to the average."""
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
