"""The ordered close of a session: runs, hooks' ``end``, tasks, raw session, hooks' ``cleanup``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asyncmon.runtime.coordinated import Coordinated, log_failed_close
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.session_state import CLOSES_ITSELF, LOOP_IS_GONE, OTHER_LOOP, SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.current_run import Phase, join_phase
from asyncmon.runtime.stop.deadline import Stage
from asyncmon.runtime.stop.interrupt import RUNS
from asyncmon.runtime.stop.origin import is_end_of_data, is_only
from asyncmon.runtime.stop.outcome import Outcome, decide_outcome, is_clean, stop_by, with_failure
from asyncmon.runtime.stop.stop import Cause
from asyncmon.system.cancellation import running_loop
from asyncmon.system.error_text import phrase
from asyncmon.system.forgotten_await import note_use_of_coroutine
from asyncmon.system.leavable import Leavable, leavable

logger = logging.getLogger(__name__)

T = TypeVar("T")

LAST_WAIT_SECS = 5.0
"""The time that an interrupted run has to end."""


@dataclass(slots=True)
class Closing:
    """The ordered close of a session. An error in one part does not skip the next ones.

    Attributes:
        current: returns the session in use, None during a recovery.
        hooks: their ``end`` is called when the body ended successfully, their ``cleanup`` always.
        lock: runs of other tasks finish first, or are interrupted after the grace period.
        stops: of the session, with the grace period of runs and tasks.
        body: the exception of the body.
        caller: the task that awaits the close, or the background task that it is part of. It is not
            joined.
    """

    current: Callable[[], Coordinated | None]
    hooks: HookSet
    lock: RunLock
    stops: StopControl
    body: BaseException | None
    caller: asyncio.Task[Any] | None
    outcome: Outcome | None = field(default=None, init=False)
    """Set once the session has ended."""
    step: int | None = field(default=None, init=False)
    """The last global step, if steps are counted."""
    _phase: Phase = field(default_factory=Phase, init=False)
    _errors: list[BaseException] = field(default_factory=list, init=False)  # that leave the session

    async def run(self) -> Outcome:
        """Close the session in a task of its own, and return the outcome.

        A cancellation of that task cancels the current part only.
        """
        join_phase(self._phase)
        with self.hooks.observers.span("closing", "close"):
            return await self._run()

    async def _run(self) -> Outcome:
        self.stops.end()
        try:
            outcome = await self._close()
        except GeneratorExit:
            raise  # nothing can be awaited any more
        except BaseException as error:  # the hooks still have their cleanup
            logger.exception("The session could not be closed in order.")
            outcome = Outcome(stop_by(error), error)
        outcome = self.outcome = await self._clean_up(outcome)
        if outcome.error is not None:
            note_use_of_coroutine(outcome.error)
        logger.log(
            logging.INFO if outcome.error is None else logging.WARNING,
            "Session ended%s: %s.",
            "" if self.step is None else f" at step {self.step}", (outcome.stop.text or "").rstrip("."),
        )  # fmt: skip
        return outcome

    async def _close(self) -> Outcome:
        """Close all but the hooks, whose ``cleanup`` follows."""
        body, hooks, stops, errors = self.body, self.hooks, self.stops, self._errors
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
        stops.scopes.current.run = self._phase
        session = self.current()
        if session is None:
            return self._outcome(body, ())
        self.step = step_of(session.raw)
        if clean:
            await self._part("the hooks' end", hooks.end(session.raw, stops, errors))
            self.step = step_of(session.raw)
        elif cancelled:
            secs = max(stops.shutdown.grace, LAST_WAIT_SECS)
            await self._part("the end of hooks", hooks.end_on_cancel(session.raw, secs, errors))
        self._interrupt_runs("this run was not complete")
        await self._part("closing the session", self._close_session(session))
        session.samples.close("The session ended before another run was complete.")
        return self._outcome(body, _unseen_errors(session, stops.preemption, body))

    def _outcome(self, body: BaseException | None, background: Sequence[BaseException]) -> Outcome:
        stops = self.stops
        outcome = decide_outcome(body, background, [*stops.late_errors, *self._errors], stops.event)
        if outcome.error is not None and outcome.error is stops.given_up:
            return outcome._replace(stop=outcome.stop._replace(cause=Cause.RECOVERY))
        if stops.event.stop is not None and stops.is_abandoned(outcome.error):
            return outcome._replace(stop=stops.event.stop)
        return outcome

    async def _close_session(self, session: Coordinated) -> None:
        shutdown = self.stops.shutdown
        grace = min(shutdown.grace, shutdown.until(Stage.TASKS) - asyncio.get_running_loop().time())
        async with shutdown.limit(Stage.JOIN):
            await session.close(grace, self.caller)

    async def _take_lock(self, grace: float) -> None:
        """Wait for the runs of other tasks, and interrupt them after the grace period.

        The lock is never released: there are no more runs.
        """
        shutdown = self.stops.shutdown
        try:
            async with asyncio.timeout(max(grace, 0)), shutdown.limit(Stage.RUNS):
                await self.lock.acquire()
        except TimeoutError:
            hook = self.hooks.running
            where = "" if hook is None else f", in the hook {hook_name(hook)}"
            logger.warning("A run did not finish before the session was closed%s.", where)
            self._interrupt_runs(f"a run was not complete{where}")
            error = RuntimeError("The session was closed during a recovery.")
            self.stops.scopes.interrupt(error, "creation")
            try:
                async with asyncio.timeout(LAST_WAIT_SECS), shutdown.limit(Stage.ENDS):
                    await self.lock.acquire()
            except TimeoutError:
                logger.warning("A run%s ignores its interruption; it is left behind.", where)

    def _interrupt_runs(self, what: str) -> None:
        error = self.stops.closed_error(f"The session was closed while {what}.")
        self.stops.interrupt_firmly(error, *RUNS)

    async def _part(self, what: str, work: Coroutine[Any, Any, T]) -> T | None:
        """Await a part of the closing and log its errors, so that the next part follows.

        An exit or a keyboard interrupt is raised at the end.
        """
        try:
            return await work
        except (asyncio.CancelledError, TimeoutError):
            logger.warning("Grace period over: %s was cancelled.", what)
        except GeneratorExit:
            raise
        except Exception:
            logger.exception("%s failed.", what)
        except BaseException as error:
            logger.warning("%s raised %s; closing the session first.", what, phrase(error))
            self._errors.append(error)
        return None

    async def _clean_up(self, outcome: Outcome) -> Outcome:
        """Call the hooks' ``cleanup``. An error in it is raised if there is no other one."""
        while self.hooks.begun:
            hook, self._errors = self.hooks.begun[-1], []
            work = self._clean_up_one(hook, outcome.error)
            error = await self._part(f"{hook_name(hook)}.cleanup", work)
            for one in self._errors if error is None else [error]:
                outcome = with_failure(outcome, f"The cleanup of a hook failed: {phrase(one)}", one)
        return outcome

    async def _clean_up_one(self, hook: Any, error: BaseException | None) -> Exception | None:
        caller = Leavable()
        async with self.stops.shutdown.limit(Stage.CLEANUP, caller):
            failure: Exception | None = await leavable(caller, self.hooks.clean_up(hook, error))
        return failure


def check_close(
    state: SessionState,
    loop: asyncio.AbstractEventLoop | None,
    coord: Coordinator | None,
    lock: RunLock,
    stops: StopControl,
) -> None:
    """Refuse a close in another event loop, and one that would wait for its caller.

    Raises:
        RuntimeError: see above; it names what to call instead.
    """
    if loop is not running_loop():
        assert loop is not None, "the session was opened"
        raise RuntimeError(LOOP_IS_GONE if loop.is_closed() else OTHER_LOOP)
    if state is SessionState.CLOSING and coord is not None and coord._task_of_caller():
        raise stops.closed_error(CLOSES_ITSELF[state])
    scopes = stops.scopes
    if lock.is_mine() or scopes.are_around(*RUNS) or scopes.listens("before_save", "listener"):
        raise RuntimeError(CLOSES_ITSELF[state])


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
