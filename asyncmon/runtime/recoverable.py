"""The outer layer: replace a preempted session, and repeat its run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.errors import CancelledError, RecoveredError, UnavailableError
from asyncmon.runtime.coordinated import Coordinated, log_failed_close
from asyncmon.runtime.observation import Observers
from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.session_state import RECOVERING
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope, Kind
from asyncmon.system.cancellation import shielded
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import add_note, forget_frames, phrase, text_of
from asyncmon.system.loop_budget import LoopBudget

logger = logging.getLogger(__name__)

A = TypeVar("A")

_AWAITED_SECS = 0.05  # between two looks


class Recoverable:
    """Repeat a run that ended with a preemption error, in a new session."""

    #                 failure: _recover()          open() is done    a step beyond _failed_at
    #   current       None                         the new session
    #   step_before   the step of the data         None
    #   number        + 1
    #   recoveries                                 + 1
    #   _failures     + 1, also for each creation                    0
    #                 that fails

    def __init__(
        self,
        create: Callable[[], Awaitable[Coordinated]],
        policy: Recovery,
        stops: StopControl,
        lock: RunLock,
        observers: Observers,
        stateful: StatefulObjects,
    ) -> None:
        if not isinstance(cast("object", policy), Recovery):
            raise TypeError(f"recovery must be a Recovery or None, got {policy!r}.")
        self.current: Coordinated | None = None
        """The session in use; None before :meth:`open` and during a recovery."""
        self.coord: SessionCoordinator | None = None
        """The coordinator of the last session that was created."""
        self.call = self._call
        """Make a call of the layer below, see :meth:`_call`, in a span if there are observers."""
        observers.when_changed(self._set_call)
        self.policy = policy
        self.recoveries = 0
        """The number of sessions that were replaced after a failure."""
        self._observers = observers
        self._create = create
        self._stops = stops
        self._lock = lock
        self._stateful = stateful
        self._failures = 0
        self._why = ""  # what the session recovers from
        self._failed_at: int | None = None  # the highest step that a failed run began at
        self.number = 0
        """The number of recoveries that have begun."""
        self.step_before: int | None = None
        """During a recovery: the global step before the interrupted run, or before the failure."""
        self.repeated: asyncio.Task[Any] | None = None
        """The task whose run the last recovery interrupted, if that is repeated."""
        self._reached: int | None = None
        self.on_open: Callable[[], None] = lambda: None
        """Called when a raw session is in use."""

    def in_use(self) -> Coordinated:
        """Return the session in use.

        Raises:
            RuntimeError: there is none during a recovery.
        """
        if self.current is None:
            raise RuntimeError(RECOVERING)
        return self.current

    def release(self) -> None:
        """Let the last raw session go: the session is closed."""
        self.current = self.repeated = None
        if self.coord is not None:
            self.coord.release()

    def step_of_data(self) -> int | None:
        """Return the global step; during a recovery, that before the interrupted run."""
        return self._observers.step if self.step_before is None else self.step_before

    async def has_outlasted_run(self, task: asyncio.Task[Any] | None) -> bool:
        """Wait for the end of a run that another task makes. Return whether there was one.

        This returns early if code awaits the calling task: the run itself may wait for it.
        """
        caller, found = asyncio.current_task(), False
        if task is None or task is caller or caller is None:
            return False
        await LoopBudget.of_running_loop().pause()  # a run may pause before it takes the lock
        # A callback is all that shows that a task is awaited, and nothing announces a new one. asyncio
        # has no public name for it: a task of another class counts as awaited.
        while self._lock.is_used_by(task) and not getattr(caller, "_callbacks", True):
            found = True
            await self._lock.wait_release(_AWAITED_SECS)
        return found

    def progress(self) -> tuple[int | None, int]:
        """Return what changes with each run: the step, and the number of awaited runs."""
        session = self.current
        return self._observers.step, 0 if session is None else session.run_scope.number

    def _set_call(self) -> None:
        self.call = self._call_observed if self._observers else self._call

    async def _call_observed(
        self,
        kind: Kind,
        attempt: Callable[[Any, A], Awaitable[Any]],
        argument: A,
        nowait: Callable[[Any, A], tuple[Any] | None] | None = None,
    ) -> Any:
        with self._observers.span(kind, attempt.__name__):
            return await self._call(kind, attempt, argument, nowait)

    async def _call(
        self,
        kind: Kind,
        attempt: Callable[[Any, A], Awaitable[Any]],
        argument: A,
        nowait: Callable[[Any, A], tuple[Any] | None] | None = None,
    ) -> Any:
        """Make a call of the layer below, and repeat it in a new session after each preemption.

        The arguments are those of :meth:`Coordinated.call`; ``nowait`` is tried first.
        """
        locked = kind == "run"
        while True:
            session = self.current or await self._reopen()
            try:
                if (
                    nowait is not None
                    and session.has_nowait
                    and (done := session.call_nowait(nowait, argument)) is not None
                ):
                    result = done[0]
                else:
                    result = await session.call(kind, attempt, argument)
            except Exception as error:
                if not self._repeats(error, session, locked):
                    raise
                failure = error
            else:
                if locked and self._failures:
                    self._count_progress(session)
                if locked and self._stateful.copying:
                    # The caller may write to the data of this run, and a save still copies it.
                    await self._stateful.wait_copied()
                return result
            async with self._lock.held():  # a recovery replaces the session for all callers
                if self.current is session:
                    self.repeated = self._lock.holder if locked and self.policy.repeat_runs else None
                    with self._observers.span("recovery", type(failure).__name__):
                        await self._recover(failure)
                    self.recoveries += 1
            if locked and not self.policy.repeat_runs:
                raise RecoveredError(
                    "The session recovered from an error, and this run is not repeated: continue with "
                    f"the next data. The error: {text_of(failure)}"
                ) from failure
            forget_frames(failure)
            del failure  # this frame and the error would refer to each other

    def _count_progress(self, session: Coordinated) -> None:
        """Forget failures once a step beyond the highest one that failed is done."""
        step = step_of(session.raw)
        if self._failed_at is None or step is None or step > self._failed_at:
            self._failures, self._failed_at = 0, None

    def _repeats(self, error: Exception, session: Coordinated, locked: bool) -> bool:
        if locked:
            return is_only(error, self.policy.errors)
        # A bare run does not hold the lock: another call may have replaced the session under it. Inside
        # a run, the recovery is left to that run.
        if self.current is not session:
            return True
        return is_only(error, self.policy.errors) and not self._lock.is_mine()

    async def _reopen(self) -> Coordinated:
        """Create a session after a failed recovery.

        Raises:
            RuntimeError: the creation of a session calls this, and it would wait for itself.
        """
        if self._stops.scopes.are_around("creation"):
            raise RuntimeError(RECOVERING)
        async with self._lock.held():
            with self._observers.entered():
                return self.current or await self.open()

    async def _recover(self, failure: Exception) -> None:
        """Replace the session that failed.

        Raises:
            Exception: ``failure``, if the policy gives up or a stop is requested; any error of the
                creation whose type is not one to recover from.
        """
        logger.info(
            "An error was raised. This may be due to a preemption in a connected worker or parameter "
            "server. The current session will be closed and a new session will be created. Attempt "
            "%d. Error: %s",
            self._failures + 1, phrase(failure),
        )  # fmt: skip
        self.number += 1
        self._why = phrase(failure).rstrip(".")
        old, self.current = self.current, None
        if old is not None:
            self._reached = reached = step_of(old.raw)
            began_at = old.boundary.failed_at
            self.step_before = reached if began_at is None or began_at + 1 != reached else began_at
            if reached is not None:
                self._failed_at = max(reached, self._failed_at or 0)
            await shielded(self._close, old, name="asyncmon recovery")
        await self._pause(failure)
        try:
            await self.open()
        except CancelledError as error:
            self._stops.ended = error
            raise error from failure

    async def _close(self, old: Coordinated) -> None:
        old.coord.is_replaced()
        await old.close(grace=0)
        error = old.coord.error
        if error is not None and is_only(error, self.policy.errors):
            log_failed_close(error)
        old.coord.release()

    async def open(self) -> Coordinated:
        """Create a session, with the attempts that the policy allows, and log the lost steps.

        Raises:
            CancelledError: a stop was requested.
        """
        timeout, scopes = self.policy.create_timeout_secs, self._stops.scopes
        while True:
            try:
                call = CallScope(scopes, "creation")
                with call, scopes.current.phase():
                    async with asyncio.timeout(timeout) as scope:
                        session: Coordinated = await call.leavable(self._create())
                break
            except Exception as error:
                failure = error
                if isinstance(error, TimeoutError) and scope.expired():
                    failure = UnavailableError(f"No session was created within {timeout:g} s.")
                    failure.__cause__ = error
                elif not is_only(error, self.policy.errors):
                    raise
            logger.info(
                "An error was raised while a session was being created. This may be due to a "
                "preemption of a connected worker or parameter server. A new session will be "
                "created. Attempt %d. Error: %s",
                self._failures + 1, phrase(failure),
            )  # fmt: skip
            await self._pause(failure)
        if self.coord is not None:
            session.coord.continue_from(self.coord)
        self.current, self.coord = session, session.coord
        self._log_loss(session)
        self.on_open()
        return session

    async def _pause(self, failure: Exception) -> None:
        self._failures += 1
        if self.policy.is_over(self._failures):
            beyond = "" if self._failed_at is None else f", without a step beyond {self._failed_at}"
            add_note(failure, f"Given up after {self._failures} failures in a row{beyond}.")
            self._stops.given_up = failure
            raise failure
        pause = self.policy.delay(self._failures)
        if pause <= 0:
            return
        try:
            with CallScope(self._stops.scopes, "retry"):
                await asyncio.sleep(0 if self._stops.is_over() else pause)
        except StopAsyncIteration:
            pass
        if (over := self._stops.is_over()) is not None:
            add_note(failure, f"Not recovered from: {over}.")
            self._stops.ended = failure
            raise failure

    def _log_loss(self, session: Coordinated) -> None:
        before, self._reached, self.step_before = self._reached, None, None
        now = step_of(session.raw)
        if before is None or now is None:
            return
        lost, what = before - now, "; no step was lost."
        if lost > 0:
            what = f"; {lost} steps up to step {before} were lost."
        elif lost < 0:  # other sessions of a cluster kept training, and may have lost steps
            what = f"; no step up to step {before} was lost."
        logger.warning(
            "Recovered from %s, attempt %d: training continues from step %d%s",
            self._why, self._failures, now, what,
        )  # fmt: skip
