"""Several blocking calls side by side, without taking the steps' processor."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, TypeVar

from asyncmon.errors import CancelledError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["StopFlag", "each_in_thread"]

T = TypeVar("T")

_WRITERS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Threads that one save uses: the steps that go on meanwhile keep the other half of the machine."""


class StopFlag:
    """Set from the event loop, read by worker threads between two pieces of work."""

    __slots__ = ("is_set",)

    def __init__(self) -> None:
        self.is_set = False

    def check(self, what: str) -> None:
        """Raise :class:`~asyncmon.errors.CancelledError` when the flag is set."""
        if self.is_set:
            raise CancelledError(f"{what} was stopped")


async def each_in_thread(calls: Sequence[Callable[[], T]], stop: StopFlag) -> list[T]:
    """Make blocking calls, a few at a time; return their results in order.

    When one fails, or the caller is cancelled, ``stop`` is set, the calls under way are waited for, no
    further one is begun, and the first error is raised.
    """
    results: dict[int, T] = {}
    waiting = iter(enumerate(calls))

    async def work() -> None:
        for number, call in waiting:
            if stop.is_set:
                return
            results[number] = await in_thread(call)

    workers = [asyncio.ensure_future(work()) for _ in range(min(_WRITERS, len(calls)))]
    if not workers:
        return []
    try:
        done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in done:
            worker.result()
    finally:
        stop.is_set = stop.is_set or len(results) < len(calls)
        await asyncio.gather(*workers, return_exceptions=True)
    stop.check("The work")
    return [results[number] for number in range(len(calls))]
