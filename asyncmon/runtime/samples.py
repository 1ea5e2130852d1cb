"""Fetches that wait for the next run to carry them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncmon.error_text import add_note

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

__all__ = ["Sample", "Samples"]

_PATIENCE = 2


@dataclass(slots=True, eq=False)
class Sample:
    """One request: what to fetch, who gets it."""

    fetches: Any
    future: asyncio.Future[tuple[Any, int | None]]
    task: asyncio.Task[Any] | None
    failures: int = 0

    @property
    def asked_by(self) -> str:
        """The name of the task."""
        return self.task.get_name() if self.task is not None else "?"

    def answer(self, values: Any, step: int | None) -> None:
        """Give the values, with the global step after the run, to whoever still waits."""
        if not self.future.done():
            self.future.set_result((values, step))


class Samples:
    """The requests of one session that no run has answered yet."""

    __slots__ = ("_refusal", "_refused", "check", "waiting")

    def __init__(self) -> None:
        self.check: Callable[[Any], None] | None = None
        """Refuses fetches that the session does not know, where it can tell: they would cost others the
        runs that carry them."""
        self._refused: Collection[asyncio.Task[Any] | None] = ()
        self._refusal: Callable[[], Exception] = RuntimeError
        self.waiting: list[Sample] = []
        """Empty where nobody asks: a look at this is all that a run pays."""

    async def ask(self, fetches: Any) -> tuple[Any, int | None]:
        """Wait for the next run; return the values it computed for ``fetches``, and its global step."""
        if self.check is not None:
            self.check(fetches)
        task = asyncio.current_task()
        if task in self._refused:
            await asyncio.sleep(0)  # who asks again and again can be cancelled
            raise self._refusal()
        future: asyncio.Future[tuple[Any, int | None]] = asyncio.get_running_loop().create_future()
        sample = Sample(fetches, future, task)
        self.waiting.append(sample)
        try:
            return await future
        finally:
            if sample in self.waiting:
                self.waiting.remove(sample)

    def take(self) -> list[Sample]:
        """Return the requests a run is going to carry."""
        taken, self.waiting = self.waiting, []
        return [sample for sample in taken if not sample.future.done()]

    def put_back(self, samples: list[Sample], error: BaseException) -> None:
        """Let the next run carry them: this one failed. Their fetches may be the cause, so the
        second failure in a row is theirs to hear of."""
        if not isinstance(error, Exception):
            self.waiting[:0] = samples
            return
        asked_by = ", ".join(sample.asked_by for sample in samples)
        add_note(error, f"The run also fetched samples for: {asked_by}.")
        for sample in samples:
            sample.failures += 1
            if sample.failures >= _PATIENCE and not sample.future.done():
                sample.future.set_exception(error)
        self.waiting[:0] = [sample for sample in samples if not sample.future.done()]

    def move_to(self, other: Samples) -> None:
        """Hand the requests to the session that comes after a recovery."""
        other.waiting.extend(self.waiting)
        self.waiting = []

    def refuse(
        self, tasks: Collection[asyncio.Task[Any] | None], refusal: Callable[[], Exception]
    ) -> None:
        """Answer some tasks, now and whenever they ask again, that no run will come."""
        self._refused, self._refusal = tasks, refusal
        for sample in self.waiting:
            if sample.task in tasks and not sample.future.done():
                sample.future.set_exception(refusal())

    def close(self, reason: str) -> None:
        """Answer everybody that no run will come."""
        for sample in self.waiting:
            if not sample.future.done():
                sample.future.set_exception(RuntimeError(reason))
        self.waiting = []
