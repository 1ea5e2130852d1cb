"""What becomes, after a stop, of a run that does not come to an end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.hook import SessionRunContext
from asyncmon.runtime.hook_check import hook_name
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.stopping import CANCEL_ROUNDS, where_it_waits
from asyncmon.runtime.turn import inside_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.interrupts import Interrupts
    from asyncmon.runtime.recoverable import Recoverable
    from asyncmon.runtime.turn import Turn

__all__ = ["Patience"]

logger = logging.getLogger(__name__)

LEAST_SECS = 0.1
"""The shortest grace period."""

LOOK_SECS = 1.0
"""How often to look for calls that began after the stop."""


class Patience:
    """Ends what is still awaited inside of a session when the grace period after a stop is over.

    That is each ``run`` and ``run_step_fn``, be it the step that waits or a hook, and an opening or a
    recovery. A call that begins after the stop has a period of its own. One from inside of which the
    stop was asked for takes the time it needs, until somebody else asks for a stop too.

    Nothing is noted down while there is no stop: then the calls under way are looked at, now and again.

    Args:
        grace: seconds.
        hooks: know which of them is running.
        turn: knows whose run it is.
        sessions: know the calls.
        reason: gives that of the stop.
    """

    def __init__(
        self,
        grace: float,
        hooks: HookSet,
        turn: Turn,
        sessions: Recoverable,
        reason: Callable[[], str | None],
    ) -> None:
        self._grace = max(grace, LEAST_SECS)
        self._hooks = hooks
        self._turn = turn
        self._sessions = sessions
        self._reason = reason
        self._timer: asyncio.TimerHandle | None = None
        self.error: DeadlineExceededError | None = None
        """What a call was ended with, the last one."""

    def excuse_caller(self) -> bool:
        """Let the call that this is called from inside of take its time; return whether it is one."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # a thread; watch() finds out
            return False
        return task is not None and any(calls.excuse(task) for calls in self._calls())

    def watch(self, excused: bool) -> None:
        """Begin with it, or note another stop.

        Args:
            excused: whether the call from inside of which the stop was asked for is excused already.
        """
        now, run = asyncio.get_running_loop().time(), inside_run.get()
        if run is not None and run is self._turn.run and self._turn.holder is not None:
            excused = any(calls.excuse(self._turn.holder) for calls in self._calls())
        if not excused:
            for calls in self._calls():
                calls.time_all(now)
        self.forget()
        self._look()

    def forget(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()

    def _calls(self) -> list[Interrupts]:
        session = self._sessions.current
        inside = [] if session is None else [session.coord.interrupts]
        return [*inside, self._sessions.interrupts]

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        next_look = now + LOOK_SECS
        for calls in self._calls():
            for task, since in calls.timed(now):
                if since + self._grace <= now:
                    self._end(calls, task)
                else:
                    next_look = min(next_look, since + self._grace)
        self._timer = loop.call_at(next_look, self._look)

    def _end(self, calls: Interrupts, task: asyncio.Task[Any]) -> None:
        session = self._sessions.current
        if session is not None and session.coord.error is not None:  # which explains more
            calls.interrupt(session.coord.error, task)
            return
        what = (
            f"{self._subject(calls, task)} did not finish within the grace period of {self._grace:g} s "
            f"after a stop ({self._reason()}): {self._where(task)}. Give what it waits for a timeout, "
            "or pass a longer stop_grace_period_secs."
        )
        logger.warning("%s The call is interrupted.", what)
        self.error = DeadlineExceededError(what)
        calls.interrupt(self.error, task)
        loop = asyncio.get_running_loop()
        loop.call_later(LOOK_SECS, self._insist, calls, task, self.error, CANCEL_ROUNDS)

    def _insist(
        self, calls: Interrupts, task: asyncio.Task[Any], error: BaseException, rounds: int
    ) -> None:
        if not calls.insist(task, error):
            return
        if rounds:
            loop = asyncio.get_running_loop()
            loop.call_later(LOOK_SECS, self._insist, calls, task, error, rounds - 1)
        else:
            logger.warning("A run ignores its interruption: %s.", self._where(task))

    def _subject(self, calls: Interrupts, task: asyncio.Task[Any]) -> str:
        if calls is self._sessions.interrupts:
            return "The opening of a session"
        if task is not self._turn.holder:
            return "A run without hooks"
        run = self._turn.run
        if self._hooks.running is not None:
            return f"The hook {hook_name(self._hooks.running)}"
        if isinstance(run, SessionRunContext):
            return f"The run of {run.original_args.fetches!r}"
        return "The step function" if isinstance(run, StepContext) else "The run"

    def _where(self, task: asyncio.Task[Any]) -> str:
        pending = getattr(self._sessions.newest, "pending_operations", None)
        operations = [] if pending is None or self._hooks.running is not None else pending()
        if operations:
            return f"it waits for {', '.join(map(repr, operations))}"
        return where_it_waits(task)
