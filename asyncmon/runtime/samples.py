"""Fetches of timers and services, which join the next run of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from asyncmon.runtime.stop.interrupt import RUNS, CallScope, CallScopes, background_task
from asyncmon.runtime.stop.stop import SessionClosedError, StopEvent
from asyncmon.system.error_text import add_note

_MOST_FAILURES = 2
_NO_RUN = "The session ends: no run comes any more."


@dataclass(slots=True, eq=False)
class Sample:
    """A request: its fetches, and the future of their values and of the global step after the run."""

    fetches: Any
    result: asyncio.Future[tuple[Any, int | None]]
    task: asyncio.Task[Any] | None
    failures: int = 0


class Samples:
    """The pending requests of one session.

    Args:
        scopes: of the session.
        refusal: returns the error of a request if no run comes any more, or None.
        check: refuses fetches that the session cannot compute, as the run of another caller would fail.
    """

    __slots__ = ("_check", "_refusal", "_refused", "_scopes", "_stop", "waiting")

    def __init__(
        self,
        scopes: CallScopes,
        refusal: Callable[[], Exception | None],
        check: Callable[[Any], None] | None = None,
    ) -> None:
        self._scopes = scopes
        self._refusal = refusal
        self._check = check
        self._refused: Collection[asyncio.Task[Any] | None] = ()
        self._stop: StopEvent
        self.waiting: list[Sample] = []
        """Checked in each run."""

    async def request(self, fetches: Any) -> tuple[Any, int | None]:
        """Wait for the next run; return its values of ``fetches``, and the global step after it.

        Raises:
            RuntimeError: the session ended first, a hook has stopped it, so that no run comes any more,
            or this is called from inside a run.
        """
        task = asyncio.current_task()
        if self._scopes.are_around(*RUNS):
            raise RuntimeError(
                "sample() waits for the next run and was called from inside one. Use peek(), ask for "
                "the fetches in before_run of a hook, or call sample() in its background."
            )
        if self._check is not None:
            self._check(fetches)
        if (refusal := self._refusal()) is not None:
            await asyncio.sleep(0)  # a loop of requests can be cancelled
            raise refusal
        if task in self._refused:
            await asyncio.sleep(0)  # a loop of requests can be cancelled
            raise SessionClosedError(_NO_RUN, self._stop)
        result: asyncio.Future[tuple[Any, int | None]] = asyncio.get_running_loop().create_future()
        sample = Sample(fetches, result, task)
        self.waiting.append(sample)
        # A stop interrupts a request as it does a run. Tasks of the coordinator are refused at its end.
        scope = nullcontext() if background_task() else CallScope(self._scopes, "sample")
        try:
            with scope:
                return await result
        finally:
            if sample in self.waiting:
                self.waiting.remove(sample)

    def take(self) -> list[Sample]:
        """Return the pending requests, which a run then completes."""
        taken, self.waiting = self.waiting, []
        return [sample for sample in taken if not sample.result.done()]

    def put_back(self, samples: list[Sample], error: BaseException) -> None:
        """Leave the requests of a failed run to the next one."""
        if not isinstance(error, Exception):
            self.waiting[:0] = samples
            return
        names = ", ".join("?" if one.task is None else one.task.get_name() for one in samples)
        add_note(error, f"The run also fetched samples for: {names}.")
        for sample in samples:
            sample.failures += 1  # its fetches may be the cause
            if sample.failures >= _MOST_FAILURES and not sample.result.done():
                sample.result.set_exception(error)
        self.waiting[:0] = [sample for sample in samples if not sample.result.done()]

    def move_to(self, other: Samples) -> None:
        """Move the requests to the session after a recovery."""
        other.waiting.extend(self.waiting)
        self.waiting = []

    def refuse(self, tasks: Collection[asyncio.Task[Any] | None], stop: StopEvent) -> None:
        """Raise an error in the requests of the session's own tasks, now and later."""
        self._refused, self._stop = tasks, stop
        for sample in self.waiting:
            if sample.task in tasks and not sample.result.done():
                sample.result.set_exception(SessionClosedError(_NO_RUN, stop))

    def release(self) -> None:
        """Let the raw session go: it is closed."""
        self._check, self._refused = None, ()

    def close(self, reason: str) -> None:
        """Raise an error in all requests: there are no more runs."""
        for sample in self.waiting:
            if not sample.result.done():
                sample.result.set_exception(RuntimeError(reason))
        self.waiting = []
