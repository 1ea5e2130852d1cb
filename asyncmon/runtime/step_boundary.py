"""Calls between two steps, when all hooks have been called for every committed step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from asyncmon.runtime.protocols import Session
from asyncmon.runtime.stop.current_run import CurrentRun

T = TypeVar("T")


class StepBoundary:
    """The boundary between two steps of a session, including the calls of its hooks."""

    __slots__ = ("_current", "_raw", "_waiting", "began_at", "failed_at", "vetoed")

    def __init__(self, raw: Session, current: CurrentRun) -> None:
        self._raw: Session | None = raw
        self._current = current
        self.began_at: int | None = None
        """The global step before the current run, as the hooks have seen it. None outside of a run with
        hooks, and if steps are not counted."""
        self.failed_at: int | None = None
        """The global step before the last run that failed in a hook or in its step."""
        self._waiting: list[Callable[[], None]] = []
        self.vetoed: str | None = None
        """The reason of a veto against further saves of this session, or None."""

    def run_ends(self) -> None:
        """End the current run, and make the pending calls."""
        self.began_at = None
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()

    def release(self) -> None:
        """Let the raw session go: it is closed."""
        self._raw, self._waiting = None, []

    def veto(self, reason: str) -> None:
        """Prevent saves of this session. A recovery makes a new session, with a new boundary."""
        self.vetoed = self.vetoed or reason

    def hooks_lag(self) -> bool:
        """Return whether the current run has committed a step that some hooks have not seen.

        False inside this run, which would wait for its own end.
        """
        # Between the commit and the last after_run, the hooks' states belong to no step, and a guard
        # may still veto the step. Runs without hooks are ignored, as guards do not see them.
        return (
            self.began_at is not None
            and self._raw is not None
            and self._raw.global_step != self.began_at
            and not self._current.has_caller()
        )

    def at_end(self, call: Callable[[], None]) -> None:
        """Call a function at the end of the current run."""
        self._waiting.append(call)

    def call_after_run(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function at the end of the current run, before another one begins."""
        result: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def call() -> None:
            if not result.done():
                try:
                    result.set_result(fn())
                except Exception as error:
                    result.set_exception(error)

        self.at_end(call)
        return result
