"""The elements that a task of the body has at a time."""

from __future__ import annotations

import asyncio
from typing import Any

from asyncmon.data.stage import Mark

NOT_BEGUN = object()
"""The step of a batch before its run; a program may have no count of steps."""

Task = asyncio.Task[Any]


class Batch:
    """Elements that a task of the body has received, and consumes with one run."""

    __slots__ = ("ahead", "at", "elements", "task")

    def __init__(self, elements: dict[int, Mark], task: Task | None, ahead: Task | None) -> None:
        self.elements = elements
        """The positions before the elements, by their numbers."""
        self.task = task
        """The task that has asked for the elements; then the one that has begun a run with them."""
        self.ahead = ahead
        """The task that fetched it while the body had an earlier element for its next run. The body
        has it for certain when it asks for another."""
        self.at: Any = NOT_BEGUN
        """The global step before the run that consumes the elements; None once it is lost."""

    def goes_on(self, task: Task | None, ahead: Task | None) -> bool:
        """Return whether the task collects more elements for the same run."""
        return self.at is NOT_BEGUN and self.task is task and self.ahead is ahead

    def is_consumed(self, step: int | None) -> bool:
        """Return whether the run has committed, given the present step."""
        at = self.at
        return at is not NOT_BEGUN and (at != step or step is None)

    def is_of(self, task: Task | None) -> bool:
        """Return whether a task has the elements, or no task that is running."""
        return self.task is task or self.task is None or self.task.done()

    def is_passed_on(self) -> bool:
        """Return whether the task has ended, and has returned the elements."""
        task = self.task
        # Not exception(): asyncio would not log it any more.
        return task is None or (task.done() and not task.cancelled() and task._exception is None)
