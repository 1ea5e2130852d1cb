"""How long something computes, learnt from its runs: what would hold the loop goes to a worker."""

from __future__ import annotations

__all__ = ["Pace", "TooLong"]

_LARGE = 1 << 18  # elements: a first run that computes so many goes to a worker
_SMALL = 1 << 12  # fed elements: of fewer, what a run takes does not depend on how many there are
_MOST = 64  # limits that a single run counts for: after 13 more an accident is forgotten


class TooLong(BaseException):
    """A run on the loop's thread takes long. Nothing of it has happened; a worker begins anew."""


class Pace:
    """The average seconds of runs, and how many elements were fed to them.

    Attributes:
        average: seconds, 0 before the first run.
        weight: elements computed, as far as they are known.
    """

    __slots__ = ("_fed", "average", "weight")

    def __init__(self, weight: int = 0) -> None:
        self.average = 0.0
        self.weight = weight
        self._fed = 0.0

    def is_short(self, limit: float, fed: int = 0) -> bool:
        """Whether the next run may hold the loop.

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

    def took(self, seconds: float, limit: float, fed: int = 0) -> None:
        """Remember how long a run took."""
        if seconds > _MOST * limit:
            seconds = _MOST * limit
        average = self.average
        if average:
            self.average = average + (seconds - average) * 0.2
            if fed != self._fed:
                self._fed += (fed - self._fed) * 0.2
        else:
            self.average, self._fed = seconds, fed

    def overran(self, limit: float) -> None:
        """Remember that a run took longer than the limit, nobody knows how much."""
        self.average = max(self.average, limit)
