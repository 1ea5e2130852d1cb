"""The middle layer: an error in a background task interrupts the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, TypeVar

from asyncmon.errors import PREEMPTION
from asyncmon.runtime.protocols import close_raw, step_of
from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.interrupt import CallScope, Kind
from asyncmon.runtime.stop.origin import mark
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import add_note, phrase, text_of
from asyncmon.system.forgotten_await import note_use_of_coroutine

logger = logging.getLogger(__name__)

A = TypeVar("A")


class Coordinated:
    """A session with the coordinator of its background tasks.

    An error reported to the coordinator interrupts the current run, and is raised by every later one.
    If a run has an error of its own, the root cause of the two is raised.
    """

    def __init__(
        self,
        inner: Any,
        coord: SessionCoordinator,
        lock: RunLock,
    ) -> None:
        self.raw = coord.raw
        self.first_step = step_of(coord.raw)
        """The global step of the new session: 0, or that of the restored checkpoint."""
        self.samples, self.boundary = coord.samples, coord.boundary
        self.coord = coord
        self.delivered = False
        """Whether a run has raised the coordinator's error."""
        self.has_nowait = inner.raw_nowait is not None
        self._inner = inner
        self._errors = coord._errors
        self._stops = coord.stops
        self._scopes = coord.stops.scopes
        self._step_secs = coord.stops.step_secs
        self._lock = lock
        self.run_scope = CallScope(self._scopes, "run")  # of the run that holds the lock
        self._preemption = coord.stops.preemption or PREEMPTION

    def call_nowait(self, attempt: Callable[[Any, A], tuple[Any] | None], argument: A) -> Any:
        """Return ``attempt(inner, argument)``, or None if a background task has failed."""
        if self._errors.primary is not None:
            return None
        try:
            return attempt(self._inner, argument)
        except BaseException as error:
            note_use_of_coroutine(error)
            _mark_step(error, argument)
            raise

    async def call(self, kind: Kind, attempt: Callable[[Any, A], Awaitable[Any]], argument: A) -> Any:
        """Return ``await attempt(inner, argument)``, unless a background task has failed.

        Args:
            kind: the kind of call.
            attempt: a method of the layer below, such as ``Hooked.run``.
            argument: the argument of that method.
        """
        cause = self._errors.primary
        if cause is not None:
            self.delivered = True
            raise cause
        scope = self.run_scope
        if kind == "run" and scope.task is None:
            scope.task = self._lock.holder
        else:
            scope = CallScope(self._scopes, kind)
        call: Any = attempt(self._inner, argument)
        try:
            with scope:
                if self._step_secs is not None:
                    return await self._timed(scope, scope.leavable(call))
                if call.__class__ is not CoroutineType:
                    return await scope.leavable(call)
                try:  # most runs return without a wait, and need no generator between
                    waits_for = call.send(None)
                except StopIteration as end:
                    return end.value
                return await scope.leavable(call, waits_for)
        except BaseException as error:
            if scope.is_left:
                scope.is_left = False
                self._inner.leave_run()
            note_use_of_coroutine(error)
            cause = self._errors.primary
            self.delivered = self.delivered or error is cause
            if cause is None or error is cause or not self._explains(cause, error):
                _mark_step(error, argument)
                raise
            add_note(cause, f"The interrupted run raised {phrase(error)}")
        self.delivered = True
        raise cause

    async def _timed(self, scope: CallScope, call: Awaitable[Any]) -> Any:
        assert self._step_secs is not None, "checked by the caller"
        loop, secs = asyncio.get_running_loop(), self._step_secs
        due = loop.time() + secs
        time_out, context = self._stops.time_out, self._stops.context
        scope.limit = loop.call_at(due, time_out, scope, secs, due, context=context)
        try:
            return await call
        finally:
            scope.limit.cancel()

    def _explains(self, cause: BaseException, error: BaseException) -> bool:
        """Return whether the coordinator's error is the root cause of the run's error."""
        # It is when exactly one of the two is a preemption.
        return isinstance(error, Exception) and (
            is_only(cause, self._preemption) != is_only(error, self._preemption)
        )

    async def close(self, grace: float, exclude: asyncio.Task[Any] | None = None) -> None:
        """Stop and join the tasks, then close the raw session. Raises nothing.

        Errors of tasks are kept by the coordinator; an error of the raw session's ``close`` is logged.

        Args:
            grace: the grace period of the tasks, in seconds.
            exclude: a task that is not joined, as it awaits this.
        """
        try:
            await self.coord._shut_down(grace, exclude)
        finally:
            await close_raw(self.raw)


def _mark_step(error: BaseException, argument: Any) -> None:
    """Note that a step has raised an error, unless it has another origin."""
    if isinstance(error, Exception):
        fetches = argument[0] if isinstance(argument, tuple) else argument
        mark(error, "step", f"the run of {fetches!r:.100}")


def log_failed_close(error: BaseException) -> None:
    """Log the preemption of a background task that no run has raised."""
    logger.error(
        "An error occurred when attempting to close the session. This may be due to a "
        "preemption in a connected worker or parameter server. Error: %s",
        text_of(error),
    )
