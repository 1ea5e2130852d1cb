"""The list of the checkpoints that a directory keeps, and the deletion of old ones."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.retention import Decision, Kept, Retention

logger = logging.getLogger(__name__)


class CheckpointList:
    """Checkpoints to which retention applies together, in the order of their commits.

    A directory has one for each state file; a saver has its own once the user has set it.

    Attributes:
        kept: the checkpoints, oldest first.
        preserved: the last mark of ``keep_checkpoint_every_n_hours``, if there is one.
        saving: held from ``plan`` to ``settle``: of two savers, each would forget the other's.
    """

    def __init__(self, kept: Sequence[Kept] = (), preserved: float | None = None) -> None:
        self.kept = list(kept)
        self.preserved = preserved
        self.saving = threading.Lock()
        self._warned: set[str] = set()

    @classmethod
    def of(cls, kept: Sequence[Kept]) -> CheckpointList | None:
        """Return the list that a user has set; None if it is empty."""
        return cls(kept) if kept else None

    def spelled(self, directory: str) -> list[Kept]:
        """Return the checkpoints with the paths that they have below a directory."""
        return [
            one._replace(path=locations.join(directory, locations.split(one.path)[1]))
            for one in self.kept
        ]

    def plan(self, new: Kept, retention: Retention) -> Decision:
        """Return which checkpoints stay after a commit."""
        key = locations.split(new.path)
        kept = [one for one in self.kept if locations.split(one.path) != key]
        place = len(kept)  # before the checkpoints of states that were captured later
        while place and kept[place - 1].number > new.number:
            place -= 1
        if self.preserved is not None:
            retention = retention.marked(self.preserved)
        if any(
            retention.is_before(new.time, earlier)
            for earlier in (retention.last_preserved, *(one.time for one in kept[place - 1 : place]))
        ):
            retention = retention.marked(new.time)
            self._warn(
                "clock",
                "The clock was set back: %s is saved at an earlier time than a checkpoint before it."
                " keep_checkpoint_every_n_hours counts from now on.",
                new.path,
            )
        kept.insert(place, new)
        decision = retention.decide(kept)
        best = retention.best
        if best is not None and decision.excess and not best.best(kept):
            there = sorted({name for one in kept for name in one.metrics})
            self._warn(
                "other metrics" if there else "no metrics",  # the first evaluation may be later
                "No checkpoint has the metric %r, by which the best are to be kept: %s is deleted. "
                "They have %s. Save with metrics={%r: ...}, or give a CheckpointSaverHook metrics=.",
                best.metric, decision.excess[0].path, there or "no metrics", best.metric,
            )  # fmt: skip
        return decision

    def settle(self, decision: Decision, left: Sequence[Kept]) -> None:
        """Set the list after a commit. ``left`` are checkpoints whose deletion failed."""
        self.preserved = decision.after.last_preserved
        self.kept = [*left, *decision.listed]

    def _warn(self, what: str, text: str, *args: object) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning(text, *args)
