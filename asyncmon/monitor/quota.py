"""A quota of memory that the data of several runs share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod

logger = logging.getLogger(__name__)

MOST_IN_ALL_RUNS = 8_000_000
"""Points of 24 bytes each, 48 directly after an array has grown."""

MOST_TAGS_IN_ALL_RUNS = 20_000
_SPARE = 100_000  # points removed at a time, because each removal resets the viewers


class Bounded(ABC):
    """Data by tag that may share a :class:`Quota`. Its amount counts points, or bytes."""

    def __init__(self, what: str, most_tags: int) -> None:
        self._what = what
        self._most_tags = most_tags
        self._total = 0
        self._quota: Quota | None = None
        self._is_cut = False  # data that was left out was logged

    @property
    @abstractmethod
    def size(self) -> tuple[int, int]:
        """The amount and the number of tags."""

    @abstractmethod
    def thin_longest(self) -> None:
        """Reduce the tag with most data."""

    def join(self, quota: Quota) -> None:
        """Share a quota, until :meth:`leave`."""
        self.leave()
        self._quota = quota
        quota.members.add(self)
        quota.amount += self._total

    def leave(self) -> None:
        """Leave the quota, if any."""
        if self._quota is not None:
            self._quota.members.discard(self)
            self._quota.amount -= self._total
            self._quota = None

    def _has_place(self, tag: str) -> bool:
        """Return whether a new tag may be added; otherwise log the first one that is left out."""
        if self.size[1] >= self._most_tags:
            self._leave_out(tag, f"A run has more than {self._most_tags} {self._what}")
        elif self._quota is not None and not self._quota.has_place():
            most = self._quota.most_tags
            self._leave_out(tag, f"All runs together have more than {most} {self._what}")
        else:
            return True
        return False

    def _leave_out(self, tag: str, why: str) -> None:
        if not self._is_cut:
            self._is_cut = True
            logger.warning("%s: %r and further ones are not shown.", why, tag)

    def _count(self, amount: int) -> None:
        self._total += amount
        if self._quota is not None:
            self._quota.amount += amount

    def _fit(self, most: int) -> None:
        """Reduce until the amount fits here and in the quota."""
        if self._total > most:
            while self._total > _goal(most):
                self.thin_longest()
        if self._quota is not None:
            self._quota.fit()


class Quota:
    """A quota shared by several members; the largest one is reduced first.

    Args:
        most: the amount of all members together.
        most_tags: further tags are dropped, with a warning.
    """

    def __init__(self, most: int = MOST_IN_ALL_RUNS, most_tags: int = MOST_TAGS_IN_ALL_RUNS) -> None:
        self.members: set[Bounded] = set()
        self.amount = 0
        """The amount of all members."""
        self.most_tags = most_tags
        self._most = most

    def has_place(self) -> bool:
        """Return whether one more tag may be added."""
        return sum(one.size[1] for one in self.members) < self.most_tags

    def fit(self) -> None:
        """Reduce members until the amount fits."""
        if self.amount > self._most:
            while self.amount > _goal(self._most):
                max(self.members, key=lambda one: one.size).thin_longest()


def _goal(most: int) -> int:
    """Return the amount to keep when a bound is exceeded."""
    return most - min(_SPARE, most // 20)
