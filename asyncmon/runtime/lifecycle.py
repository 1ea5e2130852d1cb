"""The phases of a monitored session: opening, running, pauses, closing."""

from __future__ import annotations

import asyncio
import logging
import warnings
import weakref
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack, suppress
from numbers import Real
from threading import get_ident
from typing import Any, Literal, TypeVar, cast

from asyncmon.checkpoint.stateful import StatefulObjects, has_state
from asyncmon.runtime import run_names
from asyncmon.runtime.closing import Closing, check_close
from asyncmon.runtime.coordinated import Coordinated
from asyncmon.runtime.frontiers import Frontiers
from asyncmon.runtime.hook import HookMembers, hook_name
from asyncmon.runtime.hook_check import check_hook
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.hooked import Hooked
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.program import as_program, program_of, program_scope
from asyncmon.runtime.protocols import CreatorMembers, ProgramMembers, Session, SessionMembers, step_of
from asyncmon.runtime.recoverable import Recoverable, Recovery
from asyncmon.runtime.reports import describe_call, unsaved_state
from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.session_creators import SessionCreator
from asyncmon.runtime.session_state import NOT_OPEN, OTHER_LOOP, RECOVERING, SessionState
from asyncmon.runtime.session_statistics import (
    SessionStatistics,
    hook_statistics,
    last_step,
    task_statistics,
    timer_statistics,
)
from asyncmon.runtime.stop.control import NO_REASON, StopControl
from asyncmon.runtime.stop.interrupt import CallScope, Kind
from asyncmon.runtime.stop.outcome import Outcome, is_clean, is_exit
from asyncmon.runtime.stop.process import process_shutdown
from asyncmon.runtime.stop.stop import Cause, SessionClosedError, Stop
from asyncmon.runtime.watch import RunWatch
from asyncmon.system import clock
from asyncmon.system.cancellation import shielded
from asyncmon.system.error_text import calling_line
from asyncmon.system.forgotten_await import ForgottenAwait
from asyncmon.system.loop_budget import LoopBudget
from asyncmon.system.members import members_of, warn_of_misspelled

logger = logging.getLogger(__name__)

A = TypeVar("A")

_NOT_CLOSED = "A session was started here and not closed. Write `async with`, or `await sess.close()`."


class Lifecycle:
    """The layers and services of one monitored session, with its opening and its closing.

    ``creator`` is any object with the method of a ``SessionCreator``.
    """

    def __init__(
        self,
        creator: Any,
        hooks: HookSet,
        grace: float,
        recovery: Recovery | None,
        signals: Literal["auto"] | None,
        interrupt: bool,
        step_timeout_secs: float | None,
    ) -> None:
        if signals not in ("auto", None):
            raise ValueError(f"signals must be 'auto' or None, got {signals!r}.")
        recovery = Recovery() if recovery is None else recovery
        if not isinstance(cast("object", recovery), Recovery):
            raise TypeError(f"recovery must be a Recovery or None, got {recovery!r}.")
        if not isinstance(cast("object", grace), Real):
            raise TypeError(f"stop_grace_period_secs must be a number of seconds, got {grace!r}.")
        secs: object = step_timeout_secs
        if secs is not None and not (isinstance(secs, Real) and float(secs) > 0):
            raise ValueError(f"step_timeout_secs must be a positive number or None, got {secs!r}.")
        warn_of_misspelled("session creator", creator, SessionCreator, CreatorMembers)
        self.state = SessionState.NEW
        self.hooks = hooks
        self.stops = StopControl(grace, recovery.errors, interrupt, self._describe, self._abandon)
        self.stops.step_secs = step_timeout_secs
        self.watch = RunWatch(self.stops, self._progress, self._describe)
        self.stateful = StatefulObjects()
        self.sources = OpenSources(self.stops)
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started: float | None = None
        """The time of the opening, in seconds since 1970."""
        self.thread = 0
        """The thread of the loop. A comparison takes less time than looking up the running loop."""
        self._forgotten = ForgottenAwait()
        self.budget: LoopBudget
        self.lock = RunLock(self.stops.scopes)
        self.observers = hooks.observers
        self.observers.when_changed(self._set_call)
        self.sessions = Recoverable(self._create, recovery, self.stops, self.lock, self.observers)
        self.frontiers = Frontiers(self.stateful, self._step_of_data, self.sessions)
        self.call = self.sessions.call
        """Make a run, in a span if there are observers."""
        self.gated = False
        """Whether runs are refused or held: after a hook's stop, and in a pause."""
        self._resumed: asyncio.Event | None = None  # set during a pause only
        self.coord: SessionCoordinator | None = None
        """The coordinator of the background tasks; a recovery brings a new one."""
        self.end: Stop | None = None
        """What ended the session, once it is closed."""
        self._creator = creator
        self._handle_signals = signals == "auto"
        self._closing: Closing | None = None
        self._opened_at: tuple[str, int]
        self._undo = ExitStack()  # for the end of the closing
        self._closed = asyncio.Event()

    # -- opening

    async def open(self) -> None:
        """Call hooks' ``begin``, then create the first session. See ``MonitoredSession.start``."""
        if self.state is not SessionState.NEW:
            raise self._not_open()
        self.state = SessionState.OPENING
        found = [members_of(HookMembers, hook).output_dir for hook in self.hooks.hooks]
        directories = [directory for directory in found if directory]
        run_names.opened(self.observers, directories[0] if directories else None)
        self.loop, self.thread = asyncio.get_running_loop(), get_ident()
        self.started = clock.wall()
        self.budget = LoopBudget.of_running_loop()
        try:
            scope = CallScope(self.stops.scopes, "opening")
            with self.observers.span("opening", "start"), scope, self.stops.scopes.current.phase():
                await scope.leavable(self._open())
        except BaseException as error:
            reason = error
        else:
            self.state = SessionState.OPEN
            return
        outcome = await self._close(reason)
        raise outcome.error or reason

    async def _open(self) -> None:
        shutdown = self.stops.shutdown
        shutdown.unsaved = self._unsaved
        shutdown.enter()
        if self._handle_signals:
            self._undo.callback(process_shutdown.get().call_on_signal(self._on_signal))
        self.stops.begin()
        self.watch.start()
        creator = members_of(CreatorMembers, self._creator)
        program = as_program(creator.program)
        with program_scope(program):
            await self.hooks.begin()
        unfinalize = members_of(ProgramMembers, program).unfinalize
        if unfinalize is not None and not program.finalized:
            self._undo.callback(unfinalize)
        if creator.prepare is not None:
            creator.prepare()
        self._undo.callback(self.stateful.release)
        self.save_states_of(self.hooks.hooks)
        await self.sessions.open()

    def close_by(self, owner: object) -> None:
        """Report a session whose ``owner`` is gone before :meth:`close`; ``am.run`` also closes it."""
        self._opened_at = calling_line()
        self.stops.shutdown.close = self._close_forgotten
        weakref.finalize(owner, self._report_open)

    async def _close_forgotten(self, error: BaseException | None) -> None:
        try:
            await self.close(error)
        finally:
            warnings.warn_explicit(_NOT_CLOSED, ResourceWarning, *self._opened_at)

    def _report_open(self) -> None:
        if self.state is SessionState.OPEN and self.loop not in process_shutdown.get().loops:
            step, lost = self.observers.step, self._unsaved()
            logger.warning(
                "Session ended%s: it was not closed%s.",
                "" if step is None else f" at step {step}", "" if lost is None else f", and {lost}",
            )  # fmt: skip
            self.watch.end()
            run_names.closed(self.observers)
            self.stops.shutdown.leave(None)
            warnings.warn_explicit(_NOT_CLOSED, ResourceWarning, *self._opened_at)

    def save_states_of(self, hooks: Iterable[Any]) -> None:
        """Save the states of hooks in checkpoints: ``hooks/<name>``, ``hooks/<name>_1`` and so on."""
        for hook in hooks:
            if has_state(hook):
                self.stateful.add_numbered(f"hooks/{hook_name(hook)}", hook)

    async def _create(self) -> Coordinated:
        """Create one session, layer over layer."""
        with self.observers.span("creation", type(self._creator).__name__):
            raw = self.observers.raw = await self._creator.create_session()
        self.stops.scopes.inside_step = members_of(SessionMembers, raw).inside
        self.stateful.adopt(raw, step_of(raw))
        warn_of_misspelled("session", raw, Session, SessionMembers)
        hooks = self.hooks
        coord = SessionCoordinator(raw, self.stops, lambda: hooks.hooks, self.observers, hooks.recorder)
        inner = Hooked(coord, self.hooks, self._request_stop_by_hook)
        session = Coordinated(inner, coord, self.lock)
        try:
            start_producers = members_of(ProgramMembers, program_of(raw)).start_producers
            if start_producers is not None:
                start_producers(raw, coord)
            await self.hooks.created(raw, coord)
        except BaseException:
            await shielded(session.close, 0.0, name="closing a session that did not open")
            raise
        if self.state not in (SessionState.OPENING, SessionState.OPEN):  # closed during the creation
            await shielded(session.close, 0.0, name="closing a session that came too late")
            raise self._not_open()
        if self.coord is not None:
            self.coord.samples.move_to(coord.samples)
        self.coord = coord
        self.stateful.boundary = coord.boundary
        self.stops.adopt(coord._errors, coord._stop)
        return session

    def _step_of_data(self) -> int | None:
        """Return the global step; during a recovery, that before the interrupted run."""
        before = self.sessions.step_before
        return self.observers.step if before is None else before

    # -- hooks that come and go

    async def attach(self, hook: Any) -> None:
        """Add a hook. See ``MonitoredSession.attach``."""
        self.check_open()
        async with self.lock.held():
            session = self.current()
            check_hook(hook)
            with program_scope(program_of(session.raw)):
                attach, coord = self.hooks.attach, session.coord
                await session.call("run", lambda inner, one: attach(one, inner.raw, coord), hook)
            self.save_states_of([hook])

    async def detach(self, hook: Any) -> None:
        """Remove a hook. See ``MonitoredSession.detach``."""
        if self.state in (SessionState.CLOSING, SessionState.CLOSED):
            return
        self.check_open()
        async with self.lock.held():
            if self.state is SessionState.OPEN:
                self.stateful.discard(hook)
                await self.hooks.detach(hook, self.current().raw)

    # -- observation

    def _set_call(self) -> None:
        self.call = self._call_observed if self.observers else self.sessions.call

    async def _call_observed(
        self,
        kind: Kind,
        attempt: Callable[[Hooked, A], Awaitable[Any]],
        argument: A,
        nowait: Callable[[Hooked, A], tuple[Any] | None] | None = None,
    ) -> Any:
        with self.observers.span(kind, attempt.__name__):
            return await self.sessions.call(kind, attempt, argument, nowait)

    def statistics(self) -> SessionStatistics:
        """Return hooks, tasks, timers and so on."""
        coord = self.coord
        return SessionStatistics(
            state=self.state,
            step=self.observers.step,
            last_step=last_step(self.hooks.hooks),
            paused=self.paused,
            stop=self.stop,
            recoveries=self.sessions.recoveries,
            hooks=hook_statistics(self.hooks),
            tasks=() if coord is None else task_statistics(coord),
            timers=() if coord is None else timer_statistics(coord),
            under_way=tuple(self.observers.under_way),
            last_error=self.watch.last_error,
        )

    # -- pauses

    @property
    def paused(self) -> bool:
        """Whether the next run is held. A stop and the close end a pause."""
        is_open = self.state is SessionState.OPEN
        return is_open and self._resumed is not None and not self.stops.is_requested()

    def pause(self, reason: str | None) -> None:
        """Hold runs. See ``MonitoredSession.pause``."""
        self.check_open()
        if self.stops.is_requested():
            raise RuntimeError(
                f"The session is to stop ({self.stops.reason}), so that it cannot be paused."
            )
        if self._resumed is None:
            logger.info("Paused: %s.", reason or "a pause was requested")
            self._resumed, self.gated = asyncio.Event(), True

    def resume(self) -> None:
        """Release held runs. See ``MonitoredSession.resume``."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            logger.info("Resumed.")
            resumed.set()
            self.gated = self.hooks.stop_requested

    async def acquire_lock(self) -> None:
        """Take the run lock after all earlier runs, outside a pause.

        Runs acquire the lock before they wait for the end of a pause, so that it keeps their order.
        They release it during the pause, for other users of the lock."""
        await self.lock.acquire()
        while (resumed := self._resumed) is not None and self.paused:
            self.lock.release()
            with suppress(StopAsyncIteration), CallScope(self.stops.scopes, "pause"):
                await resumed.wait()
            self.check_run()
            await self.lock.acquire()

    # -- stopping

    @property
    def stop(self) -> Stop | None:
        """What ended the session; while it is open, the stop that was requested, or None."""
        return self.end or self.stops.event.stop

    def should_stop(self) -> bool:
        """Return whether the body should end. See ``MonitoredSession.should_stop``."""
        if self.state is not SessionState.OPEN or self.stops.is_requested():
            return True
        self._forgotten.asked()
        return False

    def request_stop(self, reason: str | None, preempted: bool) -> None:
        """Request a stop. See ``MonitoredSession.request_stop``."""
        if not isinstance(cast("object", reason), str | None):
            raise TypeError(f"reason must be a str or None, got {reason!r}.")
        self.stops.request(Stop(Cause.REQUEST, reason or NO_REASON, preempted=bool(preempted)))

    def _request_stop_by_hook(self, stop: Stop) -> None:
        self.hooks.stop_requested = self.gated = True
        self.stops.request(stop)

    def _on_signal(self, name: str, at: float | None) -> None:
        if at is not None:
            logger.info("Received %s, stopping. Another SIGINT leaves at once.", name)
        self.stops.preempt(name, at, self.hooks.end_secs)

    def _unsaved(self) -> str | None:
        """Return which state is lost if the process ends now, or None. Safe in any thread."""
        session, closing = self.sessions.current, self._closing
        if session is None or not members_of(CreatorMembers, self._creator).is_chief:
            return None  # there is no state, as during a recovery, or it is not in this process
        step = step_of(session.raw) if closing is None or closing.step is None else closing.step
        return unsaved_state(step, session.first_step, self.hooks.hooks)

    def _describe(self, scope: CallScope) -> tuple[str, str]:
        return describe_call(
            scope, self.stops.scopes.current.run, self.hooks.running, self.observers.raw
        )

    def _progress(self) -> tuple[int | None, int]:
        session = self.sessions.current
        return self.observers.step, 0 if session is None else session.run_scope.number

    def _abandon(self) -> None:
        abandon = members_of(SessionMembers, self.observers.raw).abandon
        if abandon is not None:
            abandon()

    # -- saving

    async def save(self) -> str:
        """Save now. See ``MonitoredSession.save``."""
        self.check_open()
        scopes = self.stops.scopes
        if self.lock.is_mine() or scopes.is_awaited() or scopes.listens("before_save"):
            raise RuntimeError(
                "save() was called from inside a run or a save, which it waits for. Call it later: in "
                "the body, in the `background` of a hook or in a task of the body."
            )
        session = self.current()
        for hook in self.hooks.hooks:
            if (save_now := members_of(HookMembers, hook).save_now) is not None:
                return await save_now(session.raw)
        raise RuntimeError(
            "No hook of this session saves checkpoints. Pass a CheckpointSaverHook in hooks, or a "
            "checkpoint_dir to MonitoredTrainingSession."
        )

    # -- closing

    async def close(self, body: BaseException | None) -> bool:
        """Close, and return whether to suppress the body's exception."""
        if self.state is SessionState.NEW:
            self.state = SessionState.CLOSED
            self._closed.set()
        if self.stops.shutdown.is_foreign:
            return False
        if self.state is not SessionState.CLOSED:
            check_close(self.state, self.loop, self.coord, self.lock, self.stops)
        if self.state is SessionState.OPENING:
            error = RuntimeError("The session was closed while it was being opened.")
            self.stops.scopes.interrupt(error, "opening")
        if self.state is not SessionState.OPEN:
            await self._closed.wait()
            # The close in another task may have ended a run of this body, which is no error of it.
            is_ended = isinstance(body, SessionClosedError) and self.stops.is_own(body)
            return body is not None and (is_ended or is_clean(body, self.stops.event))
        outcome = await self._close(body)
        if outcome.error is not None and outcome.error is not body:
            raise outcome.error
        return outcome.error is None and body is not None

    async def _close(self, body: BaseException | None) -> Outcome:
        self.state = SessionState.CLOSING
        self.watch.end()
        caller = (self.coord and self.coord._task_of_caller()) or asyncio.current_task()
        self._closing = closing = Closing(
            lambda: self.sessions.current, self.hooks, self.lock, self.stops, body, caller
        )
        try:
            try:
                await self.sources.end()
            finally:
                outcome = await shielded(
                    closing.run,
                    name="asyncmon closing",
                    cancel_after=max(self.stops.shutdown.grace, 1.0),
                )
            return outcome
        except asyncio.CancelledError:
            error = None if closing.outcome is None else closing.outcome.error
            if is_exit(error):
                raise error  # noqa: B904 -- it comes from a hook, not from the cancellation
            raise
        finally:
            failed = False
            if closing.outcome is not None:
                self.end, failed = closing.outcome.stop, closing.outcome.error is not None
            # A signal that comes while the session closes for another reason may cost its last save.
            hit = failed and process_shutdown.get().received is not None
            self.stops.shutdown.leave(self.stop if hit or self.stops.is_preempted() else None)
            self.lock.holder = self.stops.scopes.current.run = (
                None  # the first refers to the body's error
            )
            self._closing = self.sessions.current = None
            self._undo.close()
            self.state = SessionState.CLOSED
            run_names.closed(self.observers)
            self._closed.set()

    # -- misuse

    def check_log(self) -> None:
        """Refuse to log before the opening and after the close. Thread-safe."""
        if self.state in (SessionState.NEW, SessionState.CLOSED):
            raise self._not_open()

    def check_open(self) -> None:
        """Refuse a call before the opening, after the close, or in another event loop."""
        if self.state is not SessionState.OPEN:
            raise self._not_open()
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError(OTHER_LOOP)

    def check_run(self) -> None:
        """Refuse a run in the same cases, and after a hook's stop."""
        self.check_open()
        if self.hooks.stop_requested:
            raise self.stops.refused_run()

    def current(self) -> Coordinated:
        """Return the session in use."""
        self.check_open()
        session = self.sessions.current
        if session is None:
            raise RuntimeError(RECOVERING)
        return session

    def _not_open(self) -> RuntimeError:
        message = NOT_OPEN[self.state]
        closing = self.state is SessionState.CLOSING
        return self.stops.closed_error(message) if closing else RuntimeError(message)
