"""An await that can be given up, where the awaited code ignores its cancellation."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any


class LeavableCall:
    """An awaitable that its task can leave behind, where the awaited code ignores its cancellation.

    A coroutine that catches each ``CancelledError`` cannot be ended from outside, and its caller waits
    with it. This stands between the two: after :meth:`leave`, the next cancellation goes to the caller
    alone. The coroutine stays where it is for ever; nothing of it runs any more.

    Args:
        awaitable: awaited once.
    """

    __slots__ = ("awaitable", "is_left")

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self.awaitable = awaitable
        self.is_left = False
        """Whether the awaited code was left behind."""

    def leave(self) -> None:
        """Let the next cancellation of the task leave the awaited code behind."""
        self.is_left = True

    def __await__(self) -> Generator[Any, Any, Any]:
        # What `yield from` does, but for the exceptions that come after leave().
        inner: Any = self.awaitable.__await__()
        try:
            waits_for = next(inner)
            while True:
                try:
                    yield waits_for
                except BaseException as error:
                    if self.is_left:
                        _left.append(inner)
                        raise
                    waits_for = inner.throw(error)
                else:
                    waits_for = next(inner)
        except StopIteration as end:
            return end.value


_left: list[Any] = []
"""Coroutines that were left behind: their collection would throw ``GeneratorExit`` into them."""
