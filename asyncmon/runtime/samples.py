"""Fetches of timers and services, which join the next run of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from asyncmon.runtime.call_scope import RUNS, CallScopes
from asyncmon.runtime.stop_event import SessionClosedError, StopEvent
from asyncmon.system.error_text import add_note

_MOST_FAILURES = 2
_NO_RUN = "The session ends: no run comes any more."


@dataclass(slots=True, eq=False)
class Sample:
    """One request: its fetches, and the future that gets their values and the global step after."""

    fetches: Any
    result: asyncio.Future[tuple[Any, int | None]]
    task: asyncio.Task[Any] | None
    failures: int = 0


class Samples:
    """The requests of one session that no run has answered yet.

    Args:
        scopes: of the session.
        check: refuses fetches that are unknown to the session: they would make runs of other callers
            fail.
    """

    __slots__ = ("_check", "_refused", "_scopes", "_stop", "waiting")

    def __init__(self, scopes: CallScopes, check: Callable[[Any], None] | None = None) -> None:
        self._scopes = scopes
        self._check = check
        self._refused: Collection[asyncio.Task[Any] | None] = ()
        self._stop: StopEvent
        self.waiting: list[Sample] = []
        """Checked in each run."""

    async def request(self, fetches: Any) -> tuple[Any, int | None]:
        """Wait for the next run; return its values of ``fetches``, and the global step after it.

        Raises:
            RuntimeError: the session ended before, or this is called from inside of a run.
        """
        task = asyncio.current_task()
        if self._scopes.inside(task, *RUNS):
            raise RuntimeError(
                "sample() waits for the next run and was called from inside one. Ask for the fetches "
                "in before_run, or call it in the hook's background."
            )
        if self._check is not None:
            self._check(fetches)
        if task in self._refused:
            await asyncio.sleep(0)  # a loop of requests can be cancelled
            raise SessionClosedError(_NO_RUN, self._stop)
        result: asyncio.Future[tuple[Any, int | None]] = asyncio.get_running_loop().create_future()
        sample = Sample(fetches, result, task)
        self.waiting.append(sample)
        try:
            return await result
        finally:
            if sample in self.waiting:
                self.waiting.remove(sample)

    def take(self) -> list[Sample]:
        """Return the requests that a run is going to answer."""
        taken, self.waiting = self.waiting, []
        return [sample for sample in taken if not sample.result.done()]

    def put_back(self, samples: list[Sample], error: BaseException) -> None:
        """Leave the requests of a failed run to the next one.

        Their fetches may be the cause, so after the second failure in a row they get the error.
        """
        if not isinstance(error, Exception):
            self.waiting[:0] = samples
            return
        names = ", ".join("?" if one.task is None else one.task.get_name() for one in samples)
        add_note(error, f"The run also fetched samples for: {names}.")
        for sample in samples:
            sample.failures += 1
            if sample.failures >= _MOST_FAILURES and not sample.result.done():
                sample.result.set_exception(error)
        self.waiting[:0] = [sample for sample in samples if not sample.result.done()]

    def move_to(self, other: Samples) -> None:
        """Leave the requests to the session that follows a recovery."""
        other.waiting.extend(self.waiting)
        self.waiting = []

    def refuse(self, tasks: Collection[asyncio.Task[Any] | None], stop: StopEvent) -> None:
        """Raise an error in the requests of the session's own tasks, now and later."""
        self._refused, self._stop = tasks, stop
        for sample in self.waiting:
            if sample.task in tasks and not sample.result.done():
                sample.result.set_exception(SessionClosedError(_NO_RUN, stop))

    def close(self, reason: str) -> None:
        """Raise an error in all requests: no run comes any more."""
        for sample in self.waiting:
            if not sample.result.done():
                sample.result.set_exception(RuntimeError(reason))
        self.waiting = []
