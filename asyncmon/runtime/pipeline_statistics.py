"""The statistics of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class PipelineStatistics(NamedTuple):
    """The result of ``Pipeline.statistics``. Elements are counted, groups as one."""

    name: str
    version: int
    """The committed steps of the learner."""
    read: int
    """Elements that the source has given, over all passes and restarts."""
    queued: int
    """Elements that wait for a worker."""
    running: int
    """Calls in flight."""
    ready: int
    """Finished elements that wait for the learner."""
    held: int
    """Elements that the learner has, and no committed step has consumed."""
    consumed: int
    """Elements that committed steps have consumed, over all restarts, dropped ones included."""
    made: int
    """Results of calls."""
    again: int
    """Elements that are made again: they were too old, or a recovery moved the data back."""
    dropped: int
    """Elements that failed, or were refused as too old, for ever."""
    stale: int
    """Elements that were too old when they would have been delivered."""
    failures: int
    """Errors of calls."""
    lost: int
    """Calls whose worker has ended or given the lease back."""
    ages: Mapping[int, int]
    """The number of delivered elements by their age, in steps."""
    learner_wait_secs: float
    """The time that the learner has waited for batches."""
    workers_wait_secs: float
    """The time that workers have had no call, summed over ``workers``."""
    ended: bool
    """Whether the source has no more elements."""

    @property
    def mean_age(self) -> float:
        """The mean age of the delivered elements; 0.0 without any."""
        count = sum(self.ages.values())
        return sum(age * n for age, n in self.ages.items()) / count if count else 0.0
