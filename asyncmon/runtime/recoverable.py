"""The outer layer: a preempted session is replaced, and the run repeated."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.cancellation import shielded
from asyncmon.error_text import add_note, text_of
from asyncmon.errors import CancelledError, UnavailableError
from asyncmon.runtime.interrupts import Interrupts
from asyncmon.runtime.stop_event import StopEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncmon.runtime.coordinated import Coordinated
    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.recovery import Recovery
    from asyncmon.runtime.step_fn import StepContext
    from asyncmon.runtime.turn import Turn

__all__ = ["Recoverable", "step_of"]

logger = logging.getLogger(__name__)


class Recoverable:
    """Repeat what a preemption error ended, in a new session.

    Args:
        create: makes a session: raw session, coordinator, hooks told.
        policy: which errors, how often, after what pause.
        stop: of the whole session; a stop ends the pauses, and so does its closing.
    """

    def __init__(
        self, create: Callable[[], Awaitable[Coordinated]], policy: Recovery, stop: Coordinator
    ) -> None:
        self.current: Coordinated | None = None
        """The session in use; None before :meth:`open` and while a recovery is under way."""
        self._create = create
        self._policy = policy
        self.errors = policy.errors
        """What is recovered from."""
        self._stop = stop
        self._watches = self._creating = False
        self._failures = 0
        self._reached: int | None = None
        self.newest: Any = None
        """The raw session made last, from its creation on."""
        self.interrupts = Interrupts()
        """Creations under way, which the end of the whole session ends."""
        self._over = StopEvent(lambda: None)  # whatever ends the pauses

    def step(self) -> int | None:
        """Return the global step of the newest session, or None where nobody counts."""
        return raw_step(self.newest)

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run, in as many sessions as it takes. The whole run is repeated, hooks included."""
        try:
            session = self.current or await self.open()
            result = await session.run(fetches, feed_dict, options, run_metadata)
        except self.errors as error:
            failure = error
        else:
            self._failures = 0
            return result
        return await self._repeat(failure, lambda s: s.run(fetches, feed_dict, options, run_metadata))

    async def run_step_fn(self, step_fn: Callable[[StepContext], Any]) -> Any:
        """Call a step function, likewise; the whole function is repeated."""
        return await self._repeat(None, lambda session: session.run_step_fn(step_fn))

    async def run_bare(self, turn: Turn, args: tuple[Any, ...]) -> Any:
        """Run without hooks and without waiting for the turn, likewise.

        Only a recovery waits for the turn; it replaces the session for everybody.
        """
        while True:
            session = self.current
            if session is None:
                async with turn.held():
                    session = self.current or await self.open()
            try:
                return await session.run_bare(*args)
            except Exception as error:
                replaced = self.current is not session  # the session was closed under this run
                if not replaced and (turn.is_mine() or not isinstance(error, self.errors)):
                    raise
                failure = error
            async with turn.held():
                if self.current is session:
                    await self.recover(failure)

    async def _repeat(
        self, failure: Exception | None, call: Callable[[Coordinated], Awaitable[Any]]
    ) -> Any:
        while True:
            if failure is not None:
                await self.recover(failure)
            try:
                session = self.current or await self.open()
                result = await call(session)
            except self.errors as error:
                failure = error
            else:
                self._failures = 0
                return result

    async def recover(self, failure: Exception) -> None:
        """Replace the session that failed.

        Raises:
            Exception: ``failure``, when the policy gives up or a stop is requested meanwhile; any
                error of the creation that is not one to recover from.
        """
        logger.info(
            "An error was raised. This may be due to a preemption in a connected worker or parameter "
            "server. The current session will be closed and a new session will be created. Attempt "
            "%d. Error: %s",
            self._failures + 1, text_of(failure),
        )  # fmt: skip
        old, self.current = self.current, None
        if old is not None:
            self._reached = step_of(old)
            await shielded(self._close, old, name="asyncmon recovery")
        await self._pause(failure)
        try:
            await self.open()
        except CancelledError as error:
            raise error from failure

    async def _close(self, old: Coordinated) -> None:
        await old.close(grace=0)
        if isinstance(old.coord.error, self.errors):
            logger.error(
                "An error occurred when attempting to close the session. This may be due to a "
                "preemption in a connected worker or parameter server. Error: %s",
                text_of(old.coord.error),
            )

    def _give_up(self) -> None:
        """End a pause or a creation that is under way when a stop comes."""
        self._end_pauses_for_a_stop()
        if not self._creating:
            return
        error = CancelledError(f"The session was not created: a stop came, {self._stop.stop_reason!r}.")
        self.interrupts.interrupt(error)

    def end_pauses(self) -> None:
        """The session is being closed: what pauses gives up, which a closing need not wait for."""
        self._over.set("the session is being closed")

    def _end_pauses_for_a_stop(self) -> None:
        self._over.set(f"a stop is requested ({self._stop.stop_reason})")

    async def open(self) -> Coordinated:
        """Create a session, again and again by the policy, and say what a recovery lost.

        Raises:
            CancelledError: a stop was requested meanwhile.
        """
        if not self._watches and not self._stop.should_stop():
            self._watches = True
            self._stop.when_stopped(self._give_up)
        task = asyncio.current_task()
        if task is None or (base := self.interrupts.enter(task)) is None:
            return await self._open()
        try:
            session = await self._open()
        except BaseException as error:
            reason = self.interrupts.leave(task, base, error)
            if reason is None:
                raise
        else:
            self.interrupts.leave(task, base)
            return session
        raise reason

    async def _open(self) -> Coordinated:
        while True:
            try:
                async with asyncio.timeout(self._policy.create_timeout_secs) as scope:
                    self._creating = True
                    session = await self._create()
                break
            except self.errors as error:
                failure: Exception = error
            except TimeoutError as error:
                if not scope.expired():
                    raise
                failure = UnavailableError(
                    f"No session was created within {self._policy.create_timeout_secs:g} s."
                )
                failure.__cause__ = error
            finally:
                self._creating = False
            logger.info(
                "An error was raised while a session was being created. This may be due to a "
                "preemption of a connected worker or parameter server. A new session will be "
                "created. Attempt %d. Error: %s",
                self._failures + 1, text_of(failure),
            )  # fmt: skip
            await self._pause(failure)
        self.current = session
        self._report_loss(session)
        return session

    async def _pause(self, failure: Exception) -> None:
        self._failures += 1
        if self._policy.is_over(self._failures):
            add_note(failure, f"Given up after {self._failures} failures in a row.")
            raise failure
        if self._stop.should_stop():  # and was before anybody watched it
            self._end_pauses_for_a_stop()
        pause = self._policy.delay(self._failures)
        if pause > 0 and await self._over.wait(pause):
            add_note(failure, f"Not recovered from: {self._over.reason}.")
            raise failure

    def _report_loss(self, session: Coordinated) -> None:
        before, self._reached = self._reached, None
        now = step_of(session)
        if before is None or now is None:
            return
        logger.warning(
            "Recovered: training goes on from step %d; %d steps up to step %d were lost.",
            now, max(before - now, 0), before,
        )  # fmt: skip


def step_of(session: Coordinated) -> int | None:
    """Return the global step of a session, or None where nobody counts."""
    return raw_step(session.raw)


def raw_step(raw: Any) -> int | None:
    """Return the global step of a raw session, or None where nobody counts."""
    try:
        step: int | None = getattr(raw, "global_step", None)
    except Exception:  # a session that is gone need not know any more
        logger.debug("The lost session does not tell its step.", exc_info=True)
        return None
    return step
