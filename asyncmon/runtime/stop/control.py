"""The stop of a session, its reason, and the grace period of calls after it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from contextvars import Context
from numbers import Real
from typing import cast

from asyncmon.errors import CancelledError, DeadlineExceededError, StepTimeoutError
from asyncmon.runtime.stop.deadline import SessionShutdown, Stage
from asyncmon.runtime.stop.error_log import ErrorLog
from asyncmon.runtime.stop.interrupt import RUNS, CallScope, CallScopes, Kind
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.runtime.stop.stop import Cause, RefusedRunError, SessionClosedError, Stop, StopEvent
from asyncmon.system.cancellation import current_task
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import where_it_waits

logger = logging.getLogger(__name__)

LEAST_GRACE_SECS = 0.1
"""The shortest grace period."""

# Calls without a grace period: a stop or a signal ends them at once, or they end with another call.
_NOT_TIMED = ("data", "pause", "retry", "waiting", "evaluation", "before_save", "listener")

NO_REASON = "a stop was requested"

HELD_SECS = 0.1
"""A timer that is later than this was held up by code in the event loop."""

INSIST_SECS = 0.5
"""After this time, and again, a call that ignores its interruption is pressed harder."""


class EvaluationEndedError(CancelledError):
    """Raised in an evaluation when a signal comes."""


class StopControl:
    """The stop of a session, over all of its coordinators: requests, and their effect on open calls.

    Args:
        grace: the grace period in seconds.
        preemption: errors of background tasks that cause a recovery and not a stop.
        interrupt: whether such errors interrupt runs at once, or after the grace period.
        step_secs: the longest time of a run in seconds, or None.
    """

    def __init__(
        self,
        grace: float,
        preemption: tuple[type[Exception], ...],
        interrupt: bool,
        step_secs: float | None,
    ) -> None:
        if not isinstance(cast("object", grace), Real):
            raise TypeError(f"stop_grace_period_secs must be a number of seconds, got {grace!r}.")
        secs: object = step_secs
        if secs is not None and not (isinstance(secs, Real) and float(secs) > 0):
            raise ValueError(f"step_timeout_secs must be a positive number or None, got {secs!r}.")
        #   request() ---> event, and _tasks_stop, that of the present coordinator: adopt() links both
        #                    ^                           |
        #                    +-- coordinator_stopped() --+   unless the next run recovers from the
        #                    |                               error, which is in _errors
        #                    v  _act(), in the loop
        #   scopes.open:  data, pauses, creations     are interrupted at once
        #                 runs, openings, the body    when scope.timer ends their grace period
        #   shutdown:     after a signal, one deadline, which no timer exceeds
        self.describe: Callable[[CallScope], tuple[str, str]]
        """Returns the name of a call and where it waits, for its error."""
        self.save_secs: Callable[[], float] = lambda: 0.0
        """Returns the expected time of the last save."""
        self.final: Stop | None = None
        """What ended the session, once it is closed."""
        self.scopes = CallScopes()
        self.event = StopEvent()
        """The stop of the session: the one that its coordinators, too, make or follow."""
        self.shutdown = SessionShutdown(grace, process_shutdown.get())
        """The deadline after a signal."""
        self.ended: BaseException | None = None
        """The error of the last call that the stop ended: a run that exceeded its grace period, or a
        recovery."""
        self.given_up: BaseException | None = None
        """The error after which the session made no further attempt of a recovery."""
        self.late_errors: list[BaseException] = []
        """Errors of the clean-up of data, which the end of the session raises."""
        self.stopped_by_hook = False
        """Whether a hook requested a stop, after which runs are refused, also after a recovery."""
        self.context: Context | None = None
        """Of the session, for its timers, which may be started by any code."""
        self.step_secs = step_secs
        self.preemption = preemption
        self._interrupt = interrupt
        self._body: CallScope | None = None
        self._errors: ErrorLog | None = None  # of the present coordinator
        self._tasks_stop: StopEvent | None = None

    def begin(self) -> None:
        """Start to act on requests, in the running loop."""
        self.event.bind()
        if self.event.is_set:
            self._act(inside=False)

    def end(self) -> None:
        """Stop to act on requests: the session closes, which has deadlines of its own."""
        self.shutdown.is_closing = True
        self.scopes.on_enter = None
        for scope in self.scopes.open:
            if scope.timer is not None:
                scope.timer.cancel()
        self.interrupt_firmly(StopAsyncIteration(), "data", "pause", "retry")

    def enter_body(self) -> None:
        """Let a signal cancel the calling task, if it does not end within the grace period."""
        self._body = CallScope(CallScopes(), "body")  # not among the calls: runs in it are timed
        self._body.__enter__()

    def leave_body(self, error: BaseException | None) -> BaseException | None:
        """End that. Return the error of the body, that of this cancellation in its place."""
        if self._body is not None:
            try:
                self._body.__exit__(None, error, None)
            except DeadlineExceededError as ended:
                return ended
            finally:
                self._body = None
        return error

    def release(self) -> None:
        """Let the raw session go, and errors, whose frames refer to it: the session is closed."""
        self.scopes.inside_step = self.scopes.abandon = None
        self.ended = self.given_up = self._errors = None
        self.late_errors = []

    def adopt(self, errors: ErrorLog, stop: StopEvent) -> None:
        """Use a new coordinator. A stop of the session or of the coordinator holds for both."""
        stop.bind()
        self._errors, self._tasks_stop = errors, stop
        self.coordinator_stopped(stop)
        if errors.primary is not None:
            self.task_failed(errors)
        if self.event.stop is not None:
            stop.set(self.event.stop)

    def closed_error(self, message: str) -> RuntimeError:
        """Return the error of a call that the close ends. In tasks of the session it is no failure."""
        stop = self._tasks_stop
        return RuntimeError(message) if stop is None else SessionClosedError(message, stop)

    def is_own(self, error: SessionClosedError) -> bool:
        """Return whether an error was made by :meth:`closed_error` of this session."""
        return error.stop is self._tasks_stop

    def refused_run(self) -> RuntimeError:
        """Return the error of a run that begins after a hook's stop."""
        assert self._tasks_stop is not None, "a hook of the session has stopped it"
        return RefusedRunError(self._tasks_stop, self.event)

    def refusal_of_runs(self) -> RuntimeError | None:
        """Return the error of a run that begins now, if a hook has stopped the session."""
        return self.refused_run() if self.stopped_by_hook else None

    def refuse_samples(self) -> None:
        """End the requests that wait for another run: a hook has stopped the session."""
        self.interrupt_firmly(self.refused_run(), "sample")

    # -- requests

    def request(self, stop: Stop) -> None:
        """Request a stop of the session. Safe in any thread and signal handler."""
        # A signal handler may interrupt another request between any two lines: each event keeps its
        # first stop, and all that follows happens in the loop.
        self.event.set(stop)
        if self._tasks_stop is not None and not self._tasks_stop.is_set:
            self._tasks_stop.set(stop)
        if self.shutdown.loop is not None:
            inside = self._exempt_caller()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.shutdown.loop.call_soon_threadsafe(self._act, inside, context=self.context)

    def coordinator_stopped(self, stop: StopEvent) -> None:
        """Follow the stop of the coordinator, unless the next run recovers from its error.

        Safe in any thread and signal handler.
        """
        if stop is not self._tasks_stop or stop.stop is None or self._errors is None:
            return  # not created yet, or replaced
        error = self._errors.primary
        if error is None:
            self.request(stop.stop if stop.reason else stop.stop._replace(text=NO_REASON))
        elif not is_only(error, self.preemption):
            self.event.set(stop.stop)  # task_failed() acts on it in the loop

    def task_failed(self, errors: ErrorLog) -> None:
        """Act on the primary error of a coordinator, in the loop's thread."""
        # It interrupts runs either way. It is a stop, too, unless the next run recovers from it.
        error = errors.primary
        if errors is not self._errors or error is None:  # not created yet, or replaced
            return
        if self._interrupt:
            self.scopes.interrupt(error, *RUNS)
        else:
            for scope in list(self.scopes.open):
                if scope.kind in RUNS:
                    scope.exempt = False
                    self._start_grace(scope)
        if not is_only(error, self.preemption):
            self._act(inside=False)

    def on_signal(self, name: str, at: float | None) -> None:
        """Stop for a signal, with one grace period for all calls. Called in the loop's thread.

        Args:
            name: the name of the signal.
            at: its time on the loop's clock; None for the second signal, which ends the grace period.
        """
        if at is None:
            self.shutdown.cut_short()
        else:
            logger.info("Received %s, stopping. Another SIGINT leaves at once.", name)
            self.shutdown.start(at, self.save_secs())
        self.scopes.interrupt(
            EvaluationEndedError(f"The evaluation was ended by {name}."), "evaluation"
        )
        if self.shutdown.is_closing:  # and has its reason: the signal only shortens the close
            return
        self.request(Stop(Cause.SIGNAL, f"signal {name}", preempted=True))
        error = CancelledError(f"The session was not opened: a stop came, {self.event.reason!r}.")
        self.scopes.interrupt(error, "opening")
        if at is not None and self._body is not None and not self.shutdown.is_hosted:
            # am.run cancels main in its place.
            loop, when = asyncio.get_running_loop(), self.shutdown.end_of_body()
            self._body.timer = loop.call_at(when, self._end_body, context=self.context)
        # The one grace period of the signal replaces those of calls from an earlier stop: _act
        # starts it for all, as request() above has ordered.
        for scope in self.scopes.open:
            if scope.timer is not None and scope.error is None:
                scope.timer.cancel()
                scope.timer = None

    def _end_body(self) -> None:
        body = self._body
        if body is None or body.task is None or self.shutdown.is_closing:
            return
        what = "The body of the session did not end within the grace period"
        logger.warning("%s, and is cancelled: %s.", what, where_it_waits(body.task))
        self.ended = DeadlineExceededError(f"{what} after a stop ({self.reason}).")
        body.interrupt(self.ended)

    @property
    def stop(self) -> Stop | None:
        """What ended the session; while it is open, the stop that was requested, or None."""
        return self.final or self.event.stop

    def is_preempted(self) -> bool:
        """Return whether the program is to be started again, see :attr:`Stop.preempted`."""
        stop = self.event.stop
        return stop is not None and stop.preempted

    def is_abandoned(self, error: BaseException | None) -> bool:
        """Return whether an error only means that a signal has ended a call."""
        if isinstance(error, BaseExceptionGroup):
            return all(map(self.is_abandoned, error.exceptions))
        ended = error is not None and error is self.ended
        if self.shutdown.signalled:
            return ended or isinstance(error, asyncio.CancelledError)
        return ended and self.is_preempted()

    def is_requested(self) -> bool:
        """Return whether a stop is requested. An error that the next run recovers from is no stop."""
        return self.event.is_set

    def is_over(self) -> str | None:
        """Return why there are no further attempts of a recovery, or None."""
        if self.event.is_set:
            return f"a stop is requested ({self.reason})"
        return "the session is being closed" if self.shutdown.is_closing else None

    def raise_pending(self) -> None:
        """Raise the error of a background task, unless the next run recovers from it."""
        error = None if self._errors is None else self._errors.primary
        if error is not None and self.event.is_set:
            raise error

    @property
    def reason(self) -> str | None:
        """The text of the stop, or None."""
        return self.event.reason

    def _exempt_caller(self) -> bool:
        """Exempt the calls that the caller is inside of. Return whether there are any."""
        is_running = self.scopes.current.has_caller()
        task, inside = current_task(), False  # a thread has the context of the run that awaits it
        for scope in list(self.scopes.open):
            if (task is not None and scope.task is task) or (is_running and scope.kind == "run"):
                inside = True
                if scope.timer is None:
                    scope.exempt = True
        return inside

    # -- the grace period

    def _act(self, inside: bool) -> None:
        """Interrupt data iterators, pauses and creations; start the grace period of other calls.

        Args:
            inside: whether the request came from inside a call, which is exempt.
        """
        if self.shutdown.is_closing:
            return  # the close has deadlines of its own
        # These wait for something that the session does not need any more: they end at once.
        self.interrupt_firmly(StopAsyncIteration(), "data", "pause", "retry")
        if self.stopped_by_hook and not self.scopes.current.is_step:
            self.refuse_samples()
        if self.event.is_set:
            what = f"The session was not created: a stop came, {self.event.reason!r}."
            self.interrupt_firmly(CancelledError(what), "creation")
        # A call that starts after the stop has a grace period of its own: the body may still save, or
        # evaluate again.
        self.scopes.on_enter = self._start_grace
        for scope in list(self.scopes.open):
            # A run that requests the stop itself, in a step at its own pace, has no limit until another
            # request comes from elsewhere.
            scope.exempt = scope.exempt and inside
            self._start_grace(scope)

    def _start_grace(self, scope: CallScope) -> None:
        """Interrupt a call after the grace period. A nested call has the one of the outer call."""
        timed = (one.task for one in self.scopes.open if one.timer is not None)
        if scope.kind in _NOT_TIMED or scope.exempt or scope.task in timed:
            return
        loop = asyncio.get_running_loop()
        end = loop.time() + self._call_secs
        when = min(end, self.shutdown.until(Stage.RUNS))
        if when < math.inf:
            scope.timer = loop.call_at(when, self._expire, scope, context=self.context)

    @property
    def _call_secs(self) -> float:
        return max(self.shutdown.grace, LEAST_GRACE_SECS)

    def _expire(self, scope: CallScope) -> None:
        error = None if self._errors is None else self._errors.primary
        if error is not None and scope.kind in RUNS:  # it explains more
            scope.interrupt(error)
            return
        subject, place = self.describe(scope)
        kept = ", of which the end of the session needs a part," if self.shutdown.is_running else ""
        what = (
            f"{subject} did not finish within the grace period of {self._call_secs:g} s{kept} after a "
            f"stop ({self.reason}): {place}. Add a timeout to the pending operation, or pass a longer "
            "stop_grace_period_secs."
        )
        logger.warning("%s The call is interrupted.", what)
        self.ended = DeadlineExceededError(what)
        self._interrupt_firmly(scope, self.ended)

    def time_out(self, scope: CallScope, secs: float, due: float) -> None:
        """Interrupt a run that takes longer than a number of seconds, once it has awaited that long.

        Args:
            scope: the run.
            secs: the limit.
            due: when the limit was reached, on the loop's clock.
        """
        loop = asyncio.get_running_loop()
        if loop.time() - due > HELD_SECS:
            # The loop was held beyond the limit, by a step that computes in it for example. That is
            # done by now, and what the run awaits at present has not taken the time.
            logger.warning(
                "The event loop was held when a run reached step_timeout_secs=%g, by %.3g s, and the "
                "run could not be interrupted. The limit begins again.", secs, loop.time() - due,
            )  # fmt: skip
            due = loop.time() + secs
            scope.limit = loop.call_at(due, self.time_out, scope, secs, due, context=self.context)
            return
        subject, place = self.describe(scope)
        error = StepTimeoutError(
            f"{subject} took longer than step_timeout_secs={secs:g}: {place}. The session recovers "
            "from this, as from a lost server."
        )
        logger.warning("%s", error)
        self._interrupt_firmly(scope, error)

    def interrupt_firmly(self, error: BaseException, *kinds: Kind) -> None:
        """Interrupt the open calls of some kinds, and leave those behind that ignore it."""
        for scope in list(self.scopes.open):
            if scope.kind in kinds:
                self._interrupt_firmly(scope, error)

    def _interrupt_firmly(self, scope: CallScope, error: BaseException) -> None:
        if scope.interrupt(error):
            self._soon(self._insist, scope)

    def _soon(self, call: Callable[[CallScope], None], scope: CallScope) -> None:
        secs = INSIST_SECS
        if self.shutdown.is_running:  # the end of the session has shares of the same period
            secs = min(secs, 0.015 * self.shutdown.grace)
        loop = asyncio.get_running_loop()
        scope.timer = loop.call_later(secs, call, scope, context=self.context)

    def _insist(self, scope: CallScope) -> None:
        """Cancel a call again, and give up the threads that compute for a run."""
        # A graph's run in a thread has ended by now, after its present node.
        scope.interrupt_again()
        if scope.kind in RUNS and self.scopes.abandon is not None:
            self.scopes.abandon()
        self._soon(self._leave, scope)

    def _leave(self, scope: CallScope) -> None:
        subject, place = self.describe(scope)
        is_left = scope.leave()
        end = "is left behind" if is_left else "cannot be left"
        logger.warning("%s ignores its interruption, and %s: %s.", subject, end, place)
