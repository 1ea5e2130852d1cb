"""The calls that make the results of a pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

from asyncmon.runtime.pipelines.item import Item
from asyncmon.runtime.pipelines.policy import Policy
from asyncmon.runtime.tasks import Task


class Lease:
    """One call of the function for an element, by a worker that has the lease until its end.

    Attributes:
        policy: what the call knows of the learner.
        member: the number of the result in its group; None without groups.
        is_open: whether the result is still wanted. It is not once the lease is completed, failed or
            released, or its element is dropped, or a recovery has moved the data back.
    """

    __slots__ = ("answer", "attempt", "is_open", "item", "member", "policy", "task")

    def __init__(self, item: Item, member: int | None) -> None:
        self.item = item
        self.member = member
        self.attempt = item.attempts
        self.is_open = True
        self.policy: Policy
        self.task: Task | None = None  # of a call in this loop
        self.answer: asyncio.Future[Any] | None = None  # for an item that the learner has

    @property
    def element(self) -> Any:
        """The element of the source."""
        return self.item.element

    @property
    def ordinal(self) -> int:
        """The number of the element."""
        return self.item.ordinal

    @property
    def version(self) -> int:
        """The oldest version that has a part in the result so far."""
        return self.policy.oldest

    def __repr__(self) -> str:
        member = "" if self.member is None else f", member {self.member}"
        return f"<Lease of element {self.ordinal}{member}, attempt {self.attempt}>"
