"""Hooks of the sessions in a cluster: a delayed start and a common stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket

from asyncmon.errors import AbortedError, OutOfRangeError, UnavailableError
from asyncmon.hooks.hook_support import created_session, whole_number
from asyncmon.hooks.step_schedule import global_step_of, require_global_step
from asyncmon.runtime import (
    SAVER,
    Coordinator,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.program import global_step_fetch, step_fetch
from asyncmon.runtime.protocols import ClusterRun, SessionMembers
from asyncmon.runtime.stop.control import NO_REASON
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.clock import monotonic, random_bytes
from asyncmon.system.error_groups import is_only
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)

_UNREACHABLE = (AbortedError, UnavailableError)
_READ_SECS = 0.5  # between two reads of the global step
_LOG_STEPS = 1000
_POLL_SECS = 10.0  # the timeout of one request; the server may answer earlier
_PAUSE_SECS = 1.0  # after an error, while the session recovers
_INTERVALS = 3  # without a checkpoint, before a worker warns
_RUN_SECS = 10.0  # how long a stop waits for the end of a run


class GlobalStepWaiterHook(SessionRunHook):
    """Delay the first run until a global step. TF1: ``tf.train.GlobalStepWaiterHook``.

    Other workers of a cluster, or other tasks of the session, advance the step. After a stop request
    the run raises :class:`~asyncmon.errors.OutOfRangeError`, the clean end.

    Args:
        wait_until_step: the step to wait for. 0 or less does not wait.

    Example::

        hooks = [GlobalStepWaiterHook(task_index * 1000)]
    """

    def __init__(self, wait_until_step: int) -> None:
        self._wait_until_step = whole_number("wait_until_step", wait_until_step)
        self._passed = False
        self._coord: Coordinator

    async def begin(self) -> None:
        """Reject a program without a global step. A new session waits again; a recovery does not."""
        require_global_step(self)
        self._passed = self._wait_until_step <= 0

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        global_step_of(self, session)
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> None:
        """Wait before the first run.

        Raises:
            OutOfRangeError: a stop was requested.
        """
        if self._passed:
            return
        session, wanted = run_context.session, self._wait_until_step
        line = "Waiting for global step %d before starting training."
        logger.info(line, wanted)
        logged = 0
        while (step := await self._read_step(session)) < wanted:
            if step - logged > _LOG_STEPS:
                logged = step
                logger.info(f"{line} Current step is %d.", wanted, step)
            if await self._coord.wait_for_stop(_READ_SECS):
                raise OutOfRangeError(f"A stop was requested at step {step}, before step {wanted}.")
        self._passed = True

    async def _read_step(self, session: Session) -> int:
        fetch = global_step_fetch(session)
        if fetch is None:
            return global_step_of(self, session)
        return int(await session.run(fetch))  # session.global_step is that of its own last run


class ClusterHook(SessionRunHook):
    """Broadcast a stop to all sessions of a cluster, and let the chief end last.

    :func:`MonitoredTrainingSession` adds one if its ``master`` is not "". A stop request in one
    session stops the others after their current run, or 10 s later. The end of the data and an error
    of one session do not stop the others. A worker whose job is elastic, see
    :class:`~asyncmon.distributed.ClusterSpec`, leaves the run at a signal, and stops no others. If a
    run fails before the stop, the session recovers and continues to the step of the stop. The chief
    waits for the workers before its last checkpoint, which therefore has all of their steps. A worker
    warns when three intervals have passed without a checkpoint of the chief. The hook has no effect
    outside a cluster.

    Args:
        is_chief: whether this session ends last.
        timeout_secs: the longest time that the chief waits, in seconds. A WARNING lists the remaining
            sessions.
        save_secs, save_steps: the interval of the chief's checkpoints, in seconds and in steps. None:
            a worker does not look for them.

    Example::

        creator = WorkerSessionCreator(master=server.target)
        async with MonitoredSession(creator, hooks=[ClusterHook(is_chief=False)]) as sess:
            ...
    """

    priority = SAVER - 1
    """After all other hooks but savers."""

    def __init__(
        self,
        is_chief: bool = True,
        timeout_secs: float = 30.0,
        *,
        save_secs: float | None = None,
        save_steps: int | None = None,
    ) -> None:
        self._is_chief = is_chief
        self._timeout_secs = timeout_secs
        self._save_secs, self._save_steps = save_secs, save_steps
        self._begun: tuple[int, float]  # the step and the time at which a worker joined
        self._warned_at: int | None = None  # the step of the checkpoint that is too old
        role = "chief" if is_chief else "worker"
        self._name = f"{role} {socket.gethostname()}:{os.getpid()}:{random_bytes(3).hex()}"
        self._coord: Coordinator | None = None
        self._stop: Stop | None = None  # of another session
        self._rollback: tuple[int, int] | None = None  # by the chief, not logged yet

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Join the sessions of the cluster."""
        self._coord, self._rollback = coord, None
        run = members_of(SessionMembers, session).cluster_run
        self._stop = None if run is None else await run.join(self._name, self._is_chief)
        self._begun = members_of(SessionMembers, session).global_step or 0, monotonic()
        commits = created_session(coord).saves.on_committed
        if self._is_chief and self._report not in commits:
            commits.append(self._report)
        if self._stop is not None:
            created_session(coord).request(self._stop)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Wait for a stop of another session, and for a restore by the chief."""
        members = members_of(SessionMembers, session)
        run = members.cluster_run
        while run is not None and not members.closed:
            try:
                answer = await run.watch(self._name, _POLL_SECS)
            except Exception as error:
                if not is_only(error, _UNREACHABLE):
                    raise
                # The next run recovers from it.
                logger.debug("The other sessions cannot be asked: %s", error)
                await asyncio.sleep(_PAUSE_SECS)
                continue
            self._rollback = answer["rollback"] or self._rollback
            if not self._is_chief:
                self._look_for_checkpoints(answer["saved"], members.global_step)
            if answer["stop"] is not None:
                self._stop = answer["stop"]
                assert self._stop is not None, "for mypy"
                # A run that fails now is recovered from, maybe at an earlier step, and may continue.
                if created_session(coord).stops.scopes.current.is_step:
                    await coord.wait_for_stop(_RUN_SECS)
                created_session(coord).request(self._stop)
                return

    def _report(self, step: int | None) -> None:
        """Let the workers know of a commit."""
        coord = self._coord
        if step is not None and coord is not None and not coord.should_stop():
            coord.create_task(self._send_commit, step, name="report of a checkpoint")

    async def _send_commit(self, step: int) -> None:
        assert self._coord is not None, "a session is created"
        run = members_of(SessionMembers, created_session(self._coord).raw).cluster_run
        if run is not None:
            with contextlib.suppress(*_UNREACHABLE):  # the next run recovers from it
                await run.saved(step)

    def _look_for_checkpoints(self, saved: tuple[int, float] | None, step: int | None) -> None:
        """Warn once when the last checkpoint is three intervals old."""
        of, age = saved or (self._begun[0], monotonic() - self._begun[1])
        is_late = self._save_secs is not None and age > _INTERVALS * self._save_secs
        steps = 0 if step is None else step - of
        is_late = is_late or (self._save_steps is not None and steps > _INTERVALS * self._save_steps)
        if is_late and self._warned_at != of:
            self._warned_at = of
            last = "none since this worker joined" if saved is None else f"the last one of step {of}"
            logger.warning(
                "The chief has committed no checkpoint for %.0f s and %d steps, three intervals: %s. "
                "These steps are lost if the servers are. See whether the chief still trains.",
                age, steps, last,
            )  # fmt: skip

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log that the chief has set the variables back; stop if another session has stopped."""
        if self._rollback is not None:
            self._log_rollback()
        if self._stop is not None and self._coord is not None:
            created_session(self._coord).request(self._stop)
            run_context.request_stop(self._stop.text)

    async def end(self, session: Session) -> None:
        """Broadcast a stop; as the chief, wait for the other sessions."""
        members, coord = members_of(SessionMembers, session), self._coord
        run = members.cluster_run
        if run is None or coord is None:
            return
        if self._rollback is not None:
            self._log_rollback()
        try:
            stop = created_session(coord).stops.event.stop
            if stop is not None and stop.preempted and run.may_leave and not self._is_chief:
                logger.info("This worker leaves the run: %s.", stop.text)
            elif stop is not None:
                of = stop.of or stop.cause
                sent = Stop(Cause.CLUSTER, stop.text or NO_REASON, self._name, stop.preempted, of)
                await run.stop(sent, members.global_step)
            if self._is_chief:
                await self._wait_for_others(run)
                fetch = step_fetch(session)
                if fetch is not None:
                    await session.run(fetch)  # reads the last steps of the others
            await run.leave(self._name)
        except Exception as error:
            if not is_only(error, _UNREACHABLE):
                raise
            logger.warning("The other sessions of the cluster cannot be notified of the end: %s", error)

    def _log_rollback(self) -> None:
        """A run that fails instead is recovered from, which logs the lost steps."""
        assert self._rollback is not None, "checked by the caller"
        (before, after), self._rollback = self._rollback, None
        logger.warning(
            "The chief has set the variables of all sessions back from step %d to step %d: %d steps "
            "were lost.",
            before, after, before - after,
        )  # fmt: skip

    async def _wait_for_others(self, run: ClusterRun) -> None:
        loop = asyncio.get_running_loop()
        end, waited = loop.time() + self._timeout_secs, 0.0
        others: list[str] = []
        while (left := end - loop.time()) > 0:
            answer = await run.watch(self._name, min(left, waited), len(others))
            others = answer["others"]
            if not others:
                return
            if not waited:
                logger.info("Waiting for %d sessions of the cluster to end: %s.", len(others), others)
            waited = _POLL_SECS
        logger.warning(
            "After %g s these sessions of the cluster have not ended, and are not waited for: %s.",
            self._timeout_secs,
            ", ".join(others),
        )
