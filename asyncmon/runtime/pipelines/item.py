"""The results of a pipeline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class Item:
    """A finished result of a pipeline.

    Attributes:
        value: what the function returned; of a pipeline with groups the list of all results.
        element: of the source.
        ordinal: the number of the element, over all passes of the source.
        version: the oldest version, in committed steps, that had a part in the value.
        age: the committed steps between that version and the run that consumes the item, as known at
            its delivery.
        attempts: the number of calls that were started for it, a group as one, and retries of each.
        error: with ``on_error="item"`` the error of a call that failed, whose value is None.
    """

    __slots__ = (
        "_call", "_failures", "_is_raised", "_missing", "_oldest", "age", "attempts", "element",
        "error", "ordinal", "value", "version",
    )  # fmt: skip

    def __init__(self, ordinal: int, element: Any, group: int | None) -> None:
        self.ordinal = ordinal
        self.element = element
        self.attempts = 0
        self.age = 0
        self._is_raised = False
        self._call: Callable[[Item], Awaitable[Any]] | None = None  # after an error that was raised
        self._begin(group)

    def _begin(self, group: int | None) -> None:
        """Forget all results: it is not started."""
        self.value: Any = None if group is None else [None] * group
        self.version: int | None = None
        self.error: Exception | None = None
        self._missing = group or 1
        self._oldest: int | None = None  # of the results so far
        self._failures: dict[int | None, int] = {}  # of the calls, by member

    def _made(self, member: int | None, value: Any, version: int) -> bool:
        """Set a result, and return whether all are there."""
        if member is None:
            self.value = value
        else:
            self.value[member] = value
        self._missing -= 1
        self._oldest = version if self._oldest is None else min(self._oldest, version)
        return not self._missing

    async def result(self) -> Any:
        """Return the value, or raise the error of its call, in a step that takes the item.

        After the error a further call makes the value again, as in the run that a recovery repeats: all
        members of a group. If that is cancelled, the next one does.
        """
        if self.error is not None:
            if self._call is None:
                raise RuntimeError(
                    f"{self!r} has an error, and its pipeline is closed."
                ) from self.error
            if not self._is_raised:
                self._is_raised = True
                raise self.error
            self.value, self.error = await self._call(self), None
        return self.value

    def __repr__(self) -> str:
        return f"<Item {self.ordinal} of version {self.version}, age {self.age}: {self.value!r:.60}>"
