"""Decide which checkpoints to keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, NamedTuple


class Kept(NamedTuple):
    """A checkpoint in a list: its prefix, its time in seconds since 1970, its metrics, its step.

    ``number`` orders the states that this process has captured; it is 0 for other checkpoints.
    """

    path: str
    time: float
    metrics: Mapping[str, float] = MappingProxyType({})
    number: int = 0
    step: int | None = None


@dataclass(frozen=True, slots=True)
class KeepBest:
    """Keep the best ``k`` checkpoints by a metric, besides the newest ones.

    Pass the metric to each save: ``saver.save(..., metrics={"accuracy": 0.97})``. Checkpoints without
    it, or with NaN, are not considered.

    Example::

        Saver(max_to_keep=3, keep_best=KeepBest("accuracy", k=2, mode="max"))
    """

    metric: str
    k: int = 1
    mode: Literal["min", "max"] = "min"

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"KeepBest keeps a positive number of checkpoints, got k={self.k!r}.")
        if self.mode not in {"min", "max"}:
            raise ValueError(f"KeepBest's mode is 'min' or 'max', got {self.mode!r}.")

    def best(self, kept: Sequence[Kept]) -> list[Kept]:
        """Return the best of these checkpoints. Newer ones precede equal older ones."""
        sign = 1 if self.mode == "min" else -1
        scored = [
            (sign * one.metrics[self.metric], -number, one)
            for number, one in enumerate(kept)
            if not math.isnan(one.metrics.get(self.metric, math.nan))
        ]
        return [one for *_, one in sorted(scored, key=lambda score: score[:2])[: self.k]]


@dataclass(frozen=True, slots=True)
class Retention:
    """Keeps the newest checkpoints, the best ones, and permanently one per ``every_hours``.

    Args:
        max_to_keep: the number of newest checkpoints to keep; None or 0 keeps all.
        every_hours: the interval of permanent checkpoints. One that is no longer among the newest
            becomes permanent, and leaves the list, if it was saved after ``mark``, which then moves on
            by an interval, after a pause from the time of that checkpoint.
        mark: a time in seconds since 1970.
        best: selects the best checkpoints by a metric.
    """

    max_to_keep: int | None
    every_hours: float
    mark: float
    best: KeepBest | None = None

    def __post_init__(self) -> None:
        kept: object = self.max_to_keep
        if kept is not None and not (isinstance(kept, int) and kept >= 0):
            raise ValueError(
                f"max_to_keep is a number of checkpoints, or None for all, got {self.max_to_keep!r}."
            )

    @property
    def last_preserved(self) -> float:
        """The previous mark, which manifests and the state file store."""
        return self.mark - self.every_hours * 3600

    def is_before(self, time: float, earlier: float) -> bool:
        """Return whether the clock was set back: ``time`` was read after ``earlier``."""
        # Clocks of several machines differ: up to a minute is ignored.
        return math.isfinite(earlier) and earlier - time > min(60.0, self.every_hours * 3600)

    def marked(self, last_preserved: float) -> Retention:
        """Return a copy with the mark of an earlier run."""
        return replace(self, mark=last_preserved + self.every_hours * 3600)

    def decide(self, kept: Sequence[Kept]) -> Decision:
        """Return which of these checkpoints, oldest first, to keep. The newest one is always kept."""
        if not self.max_to_keep:
            return Decision(list(kept), [], self)
        stay = [*kept[-self.max_to_keep :], *(self.best.best(kept) if self.best is not None else [])]
        excess = []
        mark, interval = self.mark, self.every_hours * 3600
        for one in kept:
            if one in stay or one.time == math.inf:  # TF1: one without a time is never deleted
                continue
            # A clock that was set back has left times in the future, which would move the mark there.
            time = min(one.time, kept[-1].time)
            if time <= mark:
                excess.append(one)
            else:  # after a pause of intervals without a checkpoint, they count from this one
                mark = mark + interval if time - mark < interval else time + interval
        return Decision([one for one in kept if one in stay], excess, replace(self, mark=mark))


class Decision(NamedTuple):
    """The checkpoints to list and to delete, and the next retention. Permanent ones are in neither."""

    listed: list[Kept]
    excess: list[Kept]
    after: Retention
