"""One attempt of a job: the same in the loop of a service and in a child process."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from asyncmon.jobs.store import Row
from asyncmon.jobs.table import AFTER, RANK, End, State
from asyncmon.runtime.hook import HookMembers, SessionRunHook
from asyncmon.runtime.job_link import current_job
from asyncmon.runtime.protocols import step_of
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.summary.logged import LoggedValue
from asyncmon.summary.values import HParam
from asyncmon.system.error_text import phrase
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

Emit = Callable[[str, Mapping[str, Any]], None]
"""Gets what an attempt reports: ``"running"`` and ``"saved"`` with a step, ``"metrics"``."""

FLUSH_SECS = 0.2
"""The interval of metrics events and of saved steps. The newest value of each name counts."""

Kind = Callable[["RunningJob"], Awaitable[Any]]


@final
class RunningJob:
    """The job that a kind is called with: its parameters, its directory, and :meth:`report`.

    Example::

        @queue.kind("digits")
        async def train(job):
            async with am.MonitoredTrainingSession(checkpoint_dir=job.directory) as sess:
                while not sess.should_stop():
                    loss = await sess.run(train_op, {rate: job.params["rate"]})
                    job.report(sess.global_step, loss=loss)
    """

    def __init__(self, row: Row, directory: Path, execution: Execution) -> None:
        self.id: str = row["id"]
        self.name: str = row["name"]
        self.kind: str = row["kind"]
        self.params: dict[str, Any] = row["params"]
        self.attempt: int = row["attempt"]
        """1 for the first one. The kind is called once for each attempt."""
        self.directory = directory
        """The job's own, the same in each attempt."""
        self._execution = execution

    def __repr__(self) -> str:
        return f"<RunningJob {self.name!r}: attempt {self.attempt}>"

    def report(self, step: int, **metrics: float) -> None:
        """Report metrics at a step. Does not block.

        They are events of the job, at most five a second. At a rung of :func:`halving`, or at the first
        report beyond it, they decide about the trial, which pauses after this.

        Raises:
            TypeError: the step is no whole number, or a metric no number.
        """
        values = {name: _number(name, value) for name, value in metrics.items()}
        if isinstance(step, bool) or not isinstance(step, int | np.integer):
            raise TypeError(f"step must be a whole number, got {step!r}.")
        self._execution.report(int(step), values)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"the metric {name!r} must be a number, got {value!r}.") from None


class Execution:
    """Runs the kind of a job, links its sessions to it, and stops it in order.

    Args:
        row: of the job.
        directory: of the job.
        emit: see :data:`Emit`. Called in the loop's thread.
    """

    def __init__(self, row: Row, directory: Path, emit: Emit) -> None:
        self.job = RunningJob(row, directory, self)
        self.emit = emit
        self.record: Mapping[str, Any] = {name: row[name] for name in ("id", "name", "kind", "attempt")}
        self.step: int | None = None
        """The newest saved step; of a session without checkpoints the first and the last one."""
        self.request: str | None = None
        """The stop that was requested, a key of :data:`RANK`."""
        self.judged: dict[str, dict[str, float]] = dict(row["judged"])
        """The metrics at the rungs of a sweep, by rung."""
        self.rungs: list[int] = row["rungs"]
        self._passed: int = row["passed"]
        self.sessions: list[SessionLink] = []
        """The open ones."""
        self.main: SessionLink | None = None
        """The session of the job: the first one that saves, or else the first one."""
        self.saves = False
        """Whether a session of the job has saved or is going to."""
        self.stop_of_session: Stop | None = None
        """The stop of the last session of the job that has ended."""
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._thread = 0  # of the loop
        #   in any thread    note()  --> _values, at _step; _is_due: _flush is scheduled
        #   in the loop      saved() --> step, and _saved until _flush
        #                    _flush() every FLUSH_SECS: emits the newest value of each
        #                    stop()  --> request, the sessions at once; _timer cancels _task after the
        #                                grace period
        self._lock = threading.Lock()  # of the values
        self._values: dict[str, float] = {}
        self._step: int | None = None
        self._saved: int | None = None
        self._is_due = False

    def hooks(self) -> Sequence[Any]:
        """See :class:`~asyncmon.runtime.job_link.JobLink`."""
        return [SessionLink(self)]

    # -- the attempt

    async def execute(self, fn: Kind) -> End:
        """Run the kind. Must be awaited in a task of its own, which a stop may cancel."""
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self._thread = threading.get_ident()
        token = current_job.set(self)
        try:
            if self.request is not None:
                raise asyncio.CancelledError
            await fn(self.job)
        except asyncio.CancelledError:
            return self._cancelled()
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a kind that exits does not end the service
            if self.request == "shutdown":  # what the shutdown has taken away may be the cause
                return End(State.LOST, f"an error during the shutdown, {phrase(error)}")
            logger.warning("The job %r has failed.", self.job.name, exc_info=True)
            return End(State.FAILED, "error", phrase(error))
        else:
            return self._returned()
        finally:
            current_job.reset(token)
            if self._timer is not None:
                self._timer.cancel()
            self._flush()
            self._loop = None  # a thread of the kind may report on

    def _cancelled(self) -> End:
        assert self._task is not None, "set by execute"
        if self.request is not None:
            return End(AFTER[self.request], self.request)
        if self._task.cancelling():  # the event loop ends without the queue
            return End(State.LOST, "its task was cancelled")
        text = "It raised CancelledError: it awaited a task or a future that was cancelled."
        return End(State.FAILED, "error", text)

    def _returned(self) -> End:
        assert self._task is not None, "set by execute"
        if self.request is not None and self._task.cancelling():
            return End(AFTER[self.request], self.request)  # it has suppressed its cancellation
        stop = self.stop_of_session
        if stop is None:
            return End(State.COMPLETED, "returned")
        if stop.preempted:
            return End(State.PREEMPTED, stop.text or "shutdown")
        state = State.STOPPED if stop.cause is Cause.REQUEST else State.COMPLETED
        return End(state, stop.text or "returned")

    def stop(self, request: str, grace: float) -> None:
        """Stop in order: the sessions at once, and the rest of the kind after the grace period.

        Without an open session the kind is cancelled at once. A later request cannot extend the grace
        period, and a lower one than before changes nothing else.
        """
        self._limit(grace)
        if RANK[request] <= RANK.get(self.request or "", 0):
            return
        self.request = request
        if not self.sessions:
            self._cancel()
        for link in self.sessions:
            link.stop()

    def _limit(self, grace: float) -> None:
        if self._loop is None:
            return
        when = self._loop.time() + grace
        if self._timer is None or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()

    # -- its sessions

    def opened(self, link: SessionLink, step: int | None) -> None:
        """Note a session that was created, also by a recovery."""
        if link not in self.sessions:
            self.sessions.append(link)
            if link.saves > self.saves or (self.main is None and link.saves == self.saves):
                self.main, self.saves = link, link.saves
        if link is self.main:
            self._advance("running", step)
            for rung, metrics in self.judged.items():  # killed between the checkpoint and the table
                self._emit_metrics(int(rung), metrics, int(rung))
            self._pause_at_rung()
        if self.request is not None:
            link.stop()

    def closed(self, link: SessionLink, step: int | None, stop: Stop | None) -> None:
        """Note the end of a session."""
        if link not in self.sessions:
            return  # its opening has failed
        self.sessions.remove(link)
        if link is self.main:
            self.main, self.stop_of_session = None, stop
            if not link.saves:
                self._advance("saved", step)
        # Code after the session must not take a stopped training for a finished one: the session raises
        # this cancellation at its end.
        if stop is not None and stop.origin == _ORIGIN:
            self._cancel()

    def saved(self, link: SessionLink, step: int) -> None:
        """Note a commit."""
        if link is self.main:
            self.step = step
            if self._saved is None and self._loop is not None:
                self._loop.call_later(FLUSH_SECS, self._flush)  # a session may save at each step
            self._saved = step

    def _advance(self, kind: str, step: int | None) -> None:
        self.step = step
        self.emit(kind, {"step": step})

    # -- values

    def report(self, step: int, metrics: dict[str, float]) -> None:
        """See :meth:`RunningJob.report`."""
        loop = self._loop
        if loop is None:
            return  # the attempt has ended
        if threading.get_ident() != self._thread:
            loop.call_soon_threadsafe(self.report, step, metrics)
            return
        rung = next((one for one in self.rungs if one <= step and str(one) not in self.judged), None)
        if rung is None:
            self.note(step, metrics)
            return
        self._flush()
        for one in self.rungs:
            if rung <= one <= step:  # a report may come after several rungs
                self.judged[str(one)] = metrics  # in the next checkpoint, which is that of the pause
                self._emit_metrics(step, metrics, one)
        self._pause_at_rung()

    def _pause_at_rung(self) -> None:
        """Pause at a rung that was reached and not passed. A trial does not pause at the last one."""
        if any(one > self._passed and str(one) in self.judged for one in self.rungs[:-1]):
            self.stop("pause", _PAUSE_SECS)

    def note(self, step: int | None, values: Mapping[str, float]) -> None:
        """Add values to the next metrics event. Safe in any thread."""
        with self._lock:
            self._values.update(values)
            self._step = step
            is_due, self._is_due = self._is_due, True
        loop = self._loop
        if not is_due and loop is not None:
            loop.call_soon_threadsafe(loop.call_later, FLUSH_SECS, self._flush)

    def _flush(self) -> None:
        with self._lock:
            values, self._values, self._is_due = self._values, {}, False
        saved, self._saved = self._saved, None
        if saved is not None:
            self.emit("saved", {"step": saved})
        if values:
            self._emit_metrics(self._step, values, None)

    def _emit_metrics(self, step: int | None, metrics: Mapping[str, float], rung: int | None) -> None:
        data: dict[str, Any] = {"step": step, "metrics": dict(metrics)}
        self.emit("metrics", data if rung is None else {**data, "rung": rung})


_ORIGIN = "asyncmon.jobs"  # the origin of the stops that a queue requests

_REASON = {
    "shutdown": "the job queue ends",
    "pause": "the job is paused",
    "cancel": "the job is cancelled",
}
_PAUSE_SECS = 120.0  # the grace period of a trial at a rung, of which nothing waits for the end


@final
class SessionLink(SessionRunHook):
    """Connects one session to its job. It is begun first, and cleaned up last."""

    name = "job"
    priority = -1_000

    def __init__(self, execution: Execution) -> None:
        self.saves = False
        """Whether the session saves checkpoints."""
        self._execution = execution
        self._coord: SessionCoordinator | None = None
        self._remove: Callable[[], None] | None = None
        self.state_dict: Callable[[], Mapping[str, Any]] | None = None
        if execution.rungs:  # other checkpoints have nothing of the job
            self.state_dict = lambda: {"judged": execution.judged}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the metrics at the rungs that the checkpoint has passed."""
        self._execution.judged.update(state["judged"])

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self._coord = coord
        if self._remove is None:
            self.saves = any(
                members_of(HookMembers, hook).save_now is not None for hook in coord.hooks()
            )
            coord.saves.on_committed.append(self._saved)
            self._remove = coord.recorder.add((_Values(self._execution),))
        self._execution.opened(self, step_of(session))

    async def cleanup(self, error: BaseException | None) -> None:
        if self._coord is None:
            return
        if self._remove is not None:
            self._remove()
        stop, saves = self._coord.stops.event.stop, self._coord.saves
        self._coord = None
        self._execution.closed(self, saves.step_at_end, stop)

    def stop(self) -> None:
        """Request the stop of the session, for the job's request."""
        assert self._coord is not None, "set in after_create_session"
        request = self._execution.request or "shutdown"
        self._coord.request(
            Stop(Cause.REQUEST, _REASON[request], _ORIGIN, preempted=request != "cancel")
        )

    def _saved(self, step: int | None) -> None:
        if step is not None:
            self._execution.saved(self, step)


class _Values:
    """Gets the values that a session logs."""

    place: object = None

    def __init__(self, execution: Execution) -> None:
        self._note = execution.note

    def put_values(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        numbers = {tag: float(one) for tag, one in values.items() if isinstance(one, int | float)}
        if numbers:
            self._note(step, numbers)

    def put_summary(self, step: int | None, wall_time: float, summary: Any) -> None:
        """Summaries are in the event file."""

    def put_config(self, config: Mapping[str, HParam]) -> None:
        """The parameters of a job are in the table."""
