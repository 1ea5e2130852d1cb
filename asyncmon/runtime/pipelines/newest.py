"""The newest weights in the form in which workers outside of the process get them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from asyncmon.system.files import in_thread

T = TypeVar("T")


class Newest(Generic[T]):
    """What a blocking function makes of the newest weights, in a thread, once for all workers.

    Args:
        make: the function.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        # By identity: a version is another one after a recovery that lost steps.
        self._weights: Any = self
        self._made: asyncio.Task[T] | None = None
        self.number = 0
        """The number of weights so far."""

    async def of(self, weights: Any) -> T:
        """Return the form of weights. Raises the errors of the function."""
        if self._made is None or self._weights is not weights:
            self._weights, self.number = weights, self.number + 1
            self._made = asyncio.create_task(in_thread(self._make, weights), name="weights")
        return await asyncio.shield(self._made)
