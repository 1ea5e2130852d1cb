"""The ordered close of a session: runs, hooks' ``end``, tasks, raw session, hooks' ``cleanup``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from asyncmon.runtime import run_names
from asyncmon.runtime.coordinated import Coordinated, log_failed_close
from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.record_keeper import RecordKeeper
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_state import CLOSES_ITSELF, LOOP_IS_GONE, OTHER_LOOP, SessionState
from asyncmon.runtime.session_tasks import SessionTasks
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.current_run import Phase, join_phase
from asyncmon.runtime.stop.deadline import Stage
from asyncmon.runtime.stop.interrupt import RUNS
from asyncmon.runtime.stop.origin import is_end_of_data
from asyncmon.runtime.stop.outcome import (
    Outcome,
    decide_outcome,
    end_state,
    is_clean,
    is_exit,
    stop_by,
    with_failure,
)
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.runtime.stop.stop import Cause, SessionClosedError, Stop
from asyncmon.system.cancellation import running_loop, shielded
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import phrase
from asyncmon.system.forgotten_await import note_use_of_coroutine
from asyncmon.system.leavable import Leavable, leavable

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAST_WAIT_SECS = 5.0
"""The time that an interrupted run has to end."""


class Closing:
    """The ordered close of a session. An error in one part does not skip the next ones.

    Args:
        gate: of the session.
        hooks: their ``end`` is called when the body ended successfully, their ``cleanup`` always.
        sessions: have the raw session, None during a recovery.
        stops: of the session, with the grace period of runs and tasks.
        saves: get the last step.
        sources: the data that is still read.
        undo: takes back what the opening has changed outside of the session.
        is_chief: whether the state of the session is in this process.
        record: gets the outcome.
        tasks: of the session, which outlive its coordinators.
    """

    def __init__(
        self,
        gate: Gate,
        hooks: HookSet,
        sessions: Recoverable,
        stops: StopControl,
        saves: Saves,
        sources: OpenSources,
        undo: ExitStack,
        is_chief: bool,
        record: RecordKeeper,
        tasks: SessionTasks,
    ) -> None:
        self.on_close: list[Callable[[], None]] = []
        """Called at the start of the close."""
        self.on_release: list[Callable[[], None]] = []
        """Called once the session is closed: its parts let the program go, as the monitor, a metric or
        a user may keep the session for long."""
        self._gate = gate
        self._hooks = hooks
        self._sessions = sessions
        self._stops = stops
        self._saves = saves
        self._sources = sources
        self._undo = undo
        self._is_chief = is_chief
        self._record = record
        self._tasks = tasks
        self._phase = Phase(stops.scopes.current)
        self._outcome: Outcome | None = None  # set once the session has ended
        self._errors: list[BaseException] = []  # that leave the session
        self._body: BaseException | None = None
        # The task that awaits the close, or the background task that it is part of. Not joined.
        self._caller: asyncio.Task[Any] | None = None

    def unsaved(self) -> str | None:
        """Return which state is lost if the process ends now, or None. Safe in any thread."""
        if self._sessions.current is None or not self._is_chief:
            return None  # there is no state, as during a recovery, or it is not in this process
        return self._saves.unsaved()

    async def close(self, body: BaseException | None) -> bool:
        """Close, and return whether to suppress the body's exception.

        Raises:
            RuntimeError: the caller is part of what the close waits for, or its loop is closed.
        """
        with self._hooks.observers.entered():
            return await self._close(body)

    async def _close(self, body: BaseException | None) -> bool:
        gate, stops = self._gate, self._stops
        if gate.state is SessionState.NEW:
            gate.close()
        if stops.shutdown.is_foreign:
            return False
        if gate.state is not SessionState.CLOSED:
            self._check()
        if gate.state is SessionState.OPENING:
            error = RuntimeError("The session was closed while it was being opened.")
            stops.scopes.interrupt(error, "opening")
        if gate.state is not SessionState.OPEN:
            await gate.closed.wait()
            # The close in another task may have ended a run of this body, which is no error of it.
            is_ended = isinstance(body, SessionClosedError) and stops.is_own(body)
            return body is not None and (is_ended or is_clean(body, stops.event))
        outcome = await self.end(body)
        if outcome.error is not None and outcome.error is not body:
            raise outcome.error
        return outcome.error is None and body is not None

    def _check(self) -> None:
        """Refuse a close in another event loop, and one that would wait for its caller."""
        gate, scopes, coord = self._gate, self._stops.scopes, self._sessions.coord
        if gate.loop is not running_loop():
            assert gate.loop is not None, "the session was opened"
            if not gate.loop.is_closed():
                raise RuntimeError(OTHER_LOOP)
            self.abandon()
            raise RuntimeError(LOOP_IS_GONE)
        closing = gate.state is SessionState.CLOSING
        is_joined = self._tasks.task_of_caller() or (coord is not None and coord._task_of_caller())
        if closing and is_joined:
            raise self._stops.closed_error(CLOSES_ITSELF[gate.state])
        listens = scopes.listens("before_save", "listener")
        if gate.lock.is_mine() or scopes.are_around(*RUNS) or listens:
            raise RuntimeError(CLOSES_ITSELF[gate.state])

    def abandon(self) -> None:
        """Give up a session whose event loop is closed: nothing can be awaited any more."""
        if self._gate.state is not SessionState.CLOSED:
            for call in self.on_close:
                call()
            self._leave(None)

    async def end(self, body: BaseException | None) -> Outcome:
        """Close the session in a task of its own, and return the outcome."""
        gate, sessions, shutdown = self._gate, self._sessions, self._stops.shutdown
        gate.state = SessionState.CLOSING
        for call in self.on_close:
            call()
        self._body = body
        coord = sessions.coord
        of_coordinator = coord and coord._task_of_caller()
        self._caller = of_coordinator or self._tasks.task_of_caller() or asyncio.current_task()
        self._tasks.cancel()
        try:
            try:
                # In this task: a source can only be closed in the one that has read it.
                await self._sources.end()
            finally:
                # In a task of its own: a cancellation of the caller skips no part of the close.
                outcome = await shielded(
                    self._run, name="asyncmon closing", cancel_after=max(shutdown.grace, 1.0)
                )
            return outcome
        except asyncio.CancelledError:
            error = None if self._outcome is None else self._outcome.error
            if is_exit(error):
                raise error  # noqa: B904 -- it comes from a hook, not from the cancellation
            raise
        finally:
            failed = False
            if self._outcome is not None:
                self._stops.final, failed = self._outcome.stop, self._outcome.error is not None
            # A signal that comes while the session closes for another reason may cost its last save.
            hit = failed and process_shutdown.get().received is not None
            self._leave(self._stops.stop if hit or self._stops.is_preempted() else None)

    def _leave(self, stop: Stop | None) -> None:
        """End the session for the process. Drop what refers to the body's error."""
        self._stops.shutdown.leave(stop)
        self._stops.scopes.current.leave()
        self._body = self._caller = self._outcome = None
        self._errors = []
        self._undo.close()
        self._record.abandon()
        self._gate.close()
        for call in self.on_release:
            call()
        run_names.closed(self._hooks.observers)

    async def _run(self) -> Outcome:
        """Close in order. A cancellation of this task cancels the current part only."""
        join_phase(self._phase)
        with self._hooks.observers.span("closing", "close"):
            return await self._in_order()

    async def _in_order(self) -> Outcome:
        self._stops.end()
        try:
            outcome = await self._close_all()
        except GeneratorExit:
            raise  # nothing can be awaited any more
        except BaseException as error:  # the hooks still have their cleanup
            logger.exception("The session could not be closed in order.")
            outcome = Outcome(stop_by(error), error)
        outcome = self._outcome = await self._clean_up(outcome)
        if outcome.error is not None:
            note_use_of_coroutine(outcome.error)
        step = self._saves.step_at_end
        logger.log(
            logging.INFO if outcome.error is None else logging.WARNING,
            "Session ended%s: %s.",
            "" if step is None else f" at step {step}", (outcome.stop.text or "").rstrip("."),
        )  # fmt: skip
        over = self._stops.is_preempted() and process_shutdown.get().ended
        await self._part("the run record", self._record.end(outcome, end_state(outcome, over)))
        return outcome

    async def _close_all(self) -> Outcome:
        """Close all but the hooks, whose ``cleanup`` follows."""
        body, hooks, stops, errors = self._body, self._hooks, self._stops, self._errors
        if stops.is_abandoned(body) and isinstance(body, Exception):
            body = None
        clean = is_clean(body, stops.event) or stops.is_abandoned(body)
        cancelled = body is not None and (not isinstance(body, Exception) or body is stops.ended)
        no_run = stops.closed_error("The session is closed: no run begins any more.")
        stops.scopes.interrupt(no_run, "waiting")
        if stops.shutdown.extend(Stage.ENDS):
            logger.warning(
                "The body of the session ended after its grace period. The close has another %g s.",
                stops.shutdown.grace,
            )
        await self._part(
            "waiting for the current run", self._take_lock(stops.shutdown.grace if clean else 0)
        )
        # The lock is ours for ever. From here on the tasks that `end` of hooks starts are part of the
        # close, so that one that runs something is refused and does not wait for it.
        stops.scopes.current.become(self._phase)
        session = self._sessions.current
        if session is None:
            await self._part("ending the session's tasks", self._end_tasks())
            return self._decide(body, ())
        self._saves.step_at_end = step_of(session.raw)
        if clean:
            await self._part("the hooks' end", hooks.end(session.raw, stops, errors))
            self._saves.step_at_end = step_of(session.raw)
        elif cancelled:
            secs = max(stops.shutdown.grace, LAST_WAIT_SECS)
            await self._part("the end of hooks", hooks.end_on_cancel(session.raw, secs, errors))
        self._interrupt_runs("this run was not complete")
        await self._part("ending the session's tasks", self._end_tasks())
        await self._part("closing the session", self._close_session(session))
        session.samples.close("The session ended before another run was complete.")
        return self._decide(body, _unseen_errors(session, stops.preemption, body))

    def _decide(self, body: BaseException | None, background: Sequence[BaseException]) -> Outcome:
        stops = self._stops
        outcome = decide_outcome(body, background, [*stops.late_errors, *self._errors], stops.event)
        if outcome.error is not None and outcome.error is stops.given_up:
            return outcome._replace(stop=outcome.stop._replace(cause=Cause.RECOVERY))
        if stops.event.stop is not None and stops.is_abandoned(outcome.error):
            return outcome._replace(stop=stops.event.stop)
        return outcome

    async def _end_tasks(self) -> None:
        async with self._stops.shutdown.limit(Stage.JOIN):
            await self._tasks.end(self._grace_of_tasks(), self._caller)

    async def _close_session(self, session: Coordinated) -> None:
        async with self._stops.shutdown.limit(Stage.JOIN):
            await session.close(self._grace_of_tasks(), self._caller)

    def _grace_of_tasks(self) -> float:
        shutdown = self._stops.shutdown
        return min(shutdown.grace, shutdown.until(Stage.TASKS) - asyncio.get_running_loop().time())

    async def _take_lock(self, grace: float) -> None:
        """Wait for the runs of other tasks, and interrupt them after the grace period."""
        shutdown = self._stops.shutdown
        try:
            async with asyncio.timeout(max(grace, 0)), shutdown.limit(Stage.RUNS):
                await self._gate.lock.acquire()
        except TimeoutError:
            hook = self._hooks.running
            where = "" if hook is None else f", in the hook {hook_name(hook)}"
            logger.warning("A run did not finish before the session was closed%s.", where)
            self._interrupt_runs(f"a run was not complete{where}")
            error = RuntimeError("The session was closed during a recovery.")
            self._stops.scopes.interrupt(error, "creation")
            try:
                async with asyncio.timeout(LAST_WAIT_SECS), shutdown.limit(Stage.ENDS):
                    await self._gate.lock.acquire()
            except TimeoutError:
                logger.warning("A run%s ignores its interruption; it is left behind.", where)

    def _interrupt_runs(self, what: str) -> None:
        error = self._stops.closed_error(f"The session was closed while {what}.")
        self._stops.interrupt_firmly(error, *RUNS)

    async def _part(self, what: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Await a part of the closing and log its errors, so that the next part follows."""
        try:
            return await work
        except (asyncio.CancelledError, TimeoutError):
            logger.warning("Grace period over: %s was cancelled.", what)
        except GeneratorExit:
            raise
        except Exception:
            logger.exception("%s failed.", what)
        except BaseException as error:  # an exit or a keyboard interrupt, raised at the end
            logger.warning("%s raised %s; closing the session first.", what, phrase(error))
            self._errors.append(error)
        return None

    async def _clean_up(self, outcome: Outcome) -> Outcome:
        """Call the hooks' ``cleanup``. An error in it is raised if there is no other one."""
        while self._hooks.begun:
            hook, self._errors = self._hooks.begun[-1], []
            work = self._clean_up_one(hook, outcome.error)
            error = await self._part(f"{hook_name(hook)}.cleanup", work)
            for one in self._errors if error is None else [error]:
                outcome = with_failure(outcome, f"The cleanup of a hook failed: {phrase(one)}", one)
        return outcome

    async def _clean_up_one(self, hook: Any, error: BaseException | None) -> Exception | None:
        caller = Leavable()
        async with self._stops.shutdown.limit(Stage.CLEANUP, caller):
            failure: Exception | None = await leavable(caller, self._hooks.clean_up(hook, error))
        return failure


def _unseen_errors(
    session: Coordinated, recovered: tuple[type[Exception], ...], body: BaseException | None
) -> list[BaseException]:
    """Return the errors of background tasks that no call has raised yet."""
    coord = session.coord
    if body is not None and body is coord.error:
        return []  # the others are attached to it
    unseen: list[BaseException] = []
    for error in coord.errors:
        if is_only(error, recovered):
            log_failed_close(error)
        elif not (
            is_end_of_data(error) or error is body or (session.delivered and error is coord.error)
        ):
            unseen.append(error)
    return unseen
