"""A raw session with background services, which came before the monitored session."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import numpy as np

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.errors import AbortedError, UnavailableError
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.observation import Observers
from asyncmon.runtime.program import as_program, default_saver, program_scope
from asyncmon.runtime.protocols import ProgramMembers, Session, SessionMembers, close_raw
from asyncmon.runtime.queue_runner import QueueRunner
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_manager import SessionManager
from asyncmon.runtime.stop.deadline import SessionShutdown
from asyncmon.runtime.stop.interrupt import CallScope, CallScopes
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.runtime.supervisor_services import EventOutput, order_save, read_state, start_services
from asyncmon.system.cancellation import shielded
from asyncmon.system.clock import monotonic
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import add_note, phrase, text_of
from asyncmon.system.functions import settled
from asyncmon.system.members import members_of
from asyncmon.system.urls import local_events

logger = logging.getLogger("asyncmon.supervisor")

# The errors of a server that has not started yet, or was restarted.
_NOT_STARTED = (AbortedError, UnavailableError)


class Supervisor:
    """Prepare sessions and run services in the background. TF1: ``tf.train.Supervisor``.

    A chief restores or initialises, writes summaries and saves checkpoints by time; others wait until
    the state is ready. The session is the raw one, without hooks and recovery (but see
    :func:`basic_train_loop`). An error in a service makes :meth:`should_stop` true and is raised by
    :meth:`managed_session`. A supervisor can be used again after :meth:`stop`.

    Arguments with ``USE_DEFAULT`` are taken from the program, which is finalized; None means none.
    Most are attributes of the same names; others are ``coord``, the coordinator of the services, and
    ``save_path``, the prefix of checkpoints, None without a ``logdir``. If the supervisor is not the
    chief, the path, the intervals and the ``summary_op`` are None.

    Args:
        graph: the program, a ``Graph`` or another. Default: the default graph.
        ready_op, ready_for_local_init_op: return the names of uninitialised variables.
        is_chief: whether this supervisor initialises, saves and writes events.
        init_op, init_feed_dict: initialise the state if no checkpoint is restored.
        local_init_op: initialises state that is not saved, after a restore, too.
        logdir: the directory of checkpoints and events. None or "": no services.
        summary_op: returns the summaries to write by time. None: write them by
            :meth:`summary_computed`.
        saver: restores and saves. None: neither is done.
        global_step: the tensor that counts steps.
        save_summaries_secs: the interval of summaries; 0 or less for none.
        save_model_secs: the interval of checkpoints; 0 or less for none.
        recovery_wait_secs: the longest pause while waiting for a session to be ready.
        stop_grace_secs: the grace period of tasks after a stop.
        checkpoint_basename: of the checkpoint's files.
        session_manager: makes the sessions.
        summary_writer: writes events. Default: the writer of ``logdir``.
        init_fn: ``init_fn(session)``, plain or async, called after ``init_op``.
        local_init_run_options: for the run of ``local_init_op``.
        save_at_end: save a checkpoint when the body of :meth:`managed_session` ends successfully.

    Example::

        sv = Supervisor(logdir="runs/1")
        async with sv.managed_session() as sess:
            while not sv.should_stop():
                await sess.run(train_op)
    """

    USE_DEFAULT = 0

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | os.PathLike[str] | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Session], Awaitable[Any] | Any] | None = None,
        local_init_run_options: Any = None,
        *,
        save_at_end: bool = False,
    ) -> None:
        program = self._program = as_program(graph)
        members = members_of(ProgramMembers, program)
        self.is_chief = is_chief
        self.init_feed_dict = init_feed_dict
        self.coord = Coordinator()
        with program_scope(program):
            self.ready_op = _given(ready_op, program.ready_op)
            self.init_op = _given(init_op, program.init_op)
            self.local_init_op = _given(local_init_op, program.local_init_op)
            self.ready_for_local_init_op = _given(
                ready_for_local_init_op,
                program.ready_for_local_init_op if self.local_init_op is not None else lambda: None,
            )
            self.saver = _given(saver, lambda: default_saver(program))
            self.summary_op = _given(summary_op, program.summary_op) if is_chief else None
            self.global_step = _given(global_step, members.global_step or (lambda: None))
        self._program_counts = global_step is Supervisor.USE_DEFAULT and program.has_global_step()
        # resolved once: neither a chdir nor another link moves it
        self._logdir = locations.resolved(logdir) if logdir and is_chief else None
        self.save_summaries_secs = save_summaries_secs if is_chief else None
        self.save_model_secs = save_model_secs if is_chief else None
        self.save_path = os.path.join(self._logdir, checkpoint_basename) if self._logdir else None
        shared = summary_writer is Supervisor.USE_DEFAULT
        given = None if shared or not is_chief else summary_writer
        events = os.fspath(local_events(self._logdir)) if self._logdir else None
        self._output = EventOutput(events, given, shared, members.graph or program)
        self._init_fn = init_fn
        self._stop_grace_secs = stop_grace_secs
        self._saves = Saves(Observers(), CallScopes(), StatefulObjects())
        self._save_at_end = save_at_end
        self.session_manager = session_manager or SessionManager(
            local_init_op=self.local_init_op,
            ready_op=self.ready_op,
            ready_for_local_init_op=self.ready_for_local_init_op,
            graph=program,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        program.finalize()

    @property
    def summary_writer(self) -> Any:
        """The writer of events, or None."""
        return self._output.writer

    # -- sessions

    @asynccontextmanager
    async def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> AsyncIterator[Session]:
        """Prepare or wait for a session, run services beside it, close all at the end. TF1: same name.

        ``OutOfRangeError`` in the body is the end of the data: it ends the block without an error. Any
        other error of the body or a service is raised when all is closed; of several errors the first.
        A body that does not check :meth:`should_stop` is interrupted when the grace period after a
        service's error is over. A cancelled body closes in order; a second cancellation cancels that.
        Without ``close_summary_writer`` the event file stays open for the next session."""
        sess: Session | None = None
        cancelled: BaseException | None = None
        unopened: Exception | None = None
        completed = False
        shutdown = SessionShutdown(self._stop_grace_secs, process_shutdown.get())
        shutdown.enter()
        try:
            sess = await self.prepare_or_wait_for_session(
                master, config, start_standard_services=start_standard_services
            )
            if self.is_chief:
                shutdown.unsaved = lambda: "a supervisor's session was cancelled, which saves nothing"
            with self._body_scope():
                yield sess
            completed = True
        except Exception as error:
            self.request_stop(error)
            completed = sess is not None and self.coord.error is None  # the end of the data
            unopened = error if sess is None else None
        except BaseException as error:
            cancelled = error
        try:
            await self._stop(close_summary_writer, sess if completed else None)
        except Exception as error:
            if cancelled is None:
                raise
            logger.error("A service failed before the session was cancelled.", exc_info=error)
            add_note(cancelled, f"Before that: {phrase(error)}")
        finally:
            if sess is not None:
                await shielded(close_raw, sess, name="closing the supervisor's session")
            received, stop = process_shutdown.get().received, None
            if cancelled is not None and received is not None:
                stop = Stop(Cause.SIGNAL, f"signal {received[0]}", preempted=True)
            shutdown.leave(stop)
        if (left := cancelled or unopened) is not None:
            raise left

    def _body_scope(self) -> CallScope:
        """Return a scope that raises the coordinator's error when the grace period is over."""
        scope, loop = CallScope(CallScopes(), "body"), asyncio.get_running_loop()

        def stopped() -> None:
            error = self.coord.error
            if scope.task is not None and error is not None:
                scope.timer = loop.call_later(self._stop_grace_secs, scope.interrupt, error)

        self.coord._stop.when_set(stopped)
        return scope

    async def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """Return a session that is ready, with its services started. TF1: same name.

        Clears an earlier stop, so that a supervisor can be used again. The caller calls :meth:`stop`
        and closes the session. Arguments as :meth:`managed_session`; with ``wait_for_checkpoint`` a
        chief waits for a checkpoint to restore. Others wait for the session to be ready. While a server
        cannot be reached, they wait for it, up to ``max_wait_secs``."""
        self.coord.clear_stop()
        await self._output.open()
        deadline, failures = monotonic() + max_wait_secs, 0
        while True:
            try:
                sess = await self._new_session(
                    master, config, wait_for_checkpoint, deadline - monotonic()
                )
                break
            except Exception as error:
                if not is_only(error, _NOT_STARTED):
                    raise
                left, failures = deadline - monotonic(), failures + 1
                if not master or left <= 0:
                    raise
                logger.info("Waiting for the servers of %r. Error: %s", master, text_of(error))
                pause = Recovery(max_delay_secs=2.0).delay(failures)
                if await self.coord.wait_for_stop(min(pause, left)):
                    raise
        self._saves.begin(sess, self.coord)
        try:
            if self.is_chief:
                await self._output.add_graph()
            if start_standard_services and self.is_chief:
                logger.info("Starting standard services.")
                await self.start_standard_services(sess)
            if start_standard_services:
                logger.info("Starting queue runners.")
                self.start_queue_runners(sess)
        except BaseException:
            await shielded(close_raw, sess, name="closing a session that did not start")
            raise
        return sess

    async def _new_session(self, master: str, config: Any, wait: bool, max_wait_secs: float) -> Session:
        manager = self.session_manager
        if not self.is_chief:
            return await manager.wait_for_session(master, config, max_wait_secs)
        return await manager.prepare_session(
            master,
            init_op=self.init_op,
            saver=self.saver,
            checkpoint_dir=self._logdir,
            wait_for_checkpoint=wait,
            max_wait_secs=max_wait_secs,
            config=config,
            init_feed_dict=self.init_feed_dict,
            init_fn=self._init_fn,
        )

    # -- services

    async def start_standard_services(self, sess: Session) -> list[LooperTask] | None:
        """Start to write summaries and steps per second, and to save checkpoints. TF1: same name.

        Returns these services, which are tasks by time on one version of the state; None, with a
        warning, without a ``logdir``. A supervisor that is not the chief raises ``RuntimeError``.
        """
        if not self.is_chief:
            raise RuntimeError(
                "Only chief supervisor can start standard services. "
                "Because only chief supervisors can write events."
            )
        if self._logdir is None:
            logger.warning("Standard services need a 'logdir' passed to the SessionManager")
            return None
        step = await self.current_step(sess)
        if step is not None:
            self._output.start(step)
        return await start_services(self, sess, step)

    def start_queue_runners(
        self, sess: Session, queue_runners: Iterable[QueueRunner] | None = None
    ) -> list[asyncio.Task[Any]]:
        """Start queue runners, those of the graph by default; return their tasks. TF1: same name."""
        if queue_runners is None:
            start_producers = members_of(ProgramMembers, self._program).start_producers
            return [] if start_producers is None else list(start_producers(sess, self.coord))
        return [t for one in queue_runners for t in one.create_tasks(sess, self.coord, start=True)]

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Awaitable[Any] | Any],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperTask:
        """Call a function at a fixed interval until the stop; return the task. TF1: same name.

        The first call comes at once. See :class:`LooperTask`.
        """
        return LooperTask.loop(self.coord, timer_interval_secs, target, args, kwargs)

    async def summary_computed(
        self, sess: Session, summary: Any, global_step: int | None = None
    ) -> None:
        """Write the value of a summary op, at the session's step if none is given. TF1: same name.

        Raises:
            RuntimeError: there is no writer.
            TypeError: it is no summary.
        """
        if self.summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        step = await self.current_step(sess) if global_step is None else global_step
        self.summary_writer.add_summary(summary, step)

    # -- stopping

    async def stop(
        self,
        tasks: Iterable[asyncio.Task[Any]] | None = None,
        close_summary_writer: bool = True,
        ignore_live_tasks: bool = False,
        *,
        threads: Iterable[Any] | None = None,
        ignore_live_threads: bool = False,
    ) -> None:
        """Stop the services and all tasks of the coordinator, and wait for their end. TF1: same name.

        Does not close the session. If cancelled, it still stops all. A second call does nothing.

        Args:
            tasks: more tasks to wait for.
            close_summary_writer: whether to end and close the event file.
            ignore_live_tasks: log tasks that ignore their cancellation instead of raising.
            threads, ignore_live_threads: TF1's names of these.

        Raises:
            BaseException: the first error that was reported to the coordinator; without one, a
                ``RuntimeError`` about tasks that ignored their cancellation.
        """
        for task in (*(tasks or ()), *(threads or ())):
            self.coord.register_thread(task)
        ignored = ignore_live_tasks or ignore_live_threads
        await self._stop(close_summary_writer, ignore_live_tasks=ignored)

    async def _stop(
        self, close_writer: bool, to_save: Session | None = None, *, ignore_live_tasks: bool = False
    ) -> None:
        stragglers = await shielded(
            self._shut_down, asyncio.current_task(), close_writer, to_save,
            name="supervisor stopping", cancel_after=max(self._stop_grace_secs, 1.0),
        )  # fmt: skip
        self.coord.raise_requested_exception()
        if stragglers and not ignore_live_tasks:
            raise RuntimeError(stragglers)

    async def _shut_down(
        self, caller: asyncio.Task[Any] | None, close_summary_writer: bool, to_save: Session | None
    ) -> str:
        try:
            stragglers = await self.coord._shut_down(self._stop_grace_secs, caller)
            if self.saver is not None:
                if to_save is not None and self._save_at_end and self.coord.error is None:
                    await order_save(self, to_save)
                await self.saver.close()  # waits for saves in flight, and unlocks the directory
        finally:
            if close_summary_writer:  # last: one of the tasks may have used it
                await self._output.close()
        return stragglers

    def request_stop(self, ex: BaseException | None = None, reason: str | None = None) -> None:
        """Request a stop, with an error or a reason. See :meth:`Coordinator.request_stop`."""
        self.coord.request_stop(ex, reason)

    def should_stop(self) -> bool:
        """Return whether a stop was requested, or a service has failed."""
        return self.coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Return a context manager that reports an exception of its block. See the coordinator's."""
        return self.coord.stop_on_exception()

    async def wait_for_stop(self) -> None:
        """Wait until a stop is requested."""
        await self.coord.wait_for_stop()

    # -- steps

    def steps_done(self, sess: Any) -> int | None:
        """Return the completed steps of a session whose program counts them, else None."""
        return members_of(SessionMembers, sess).global_step if self._program_counts else None

    async def current_step(self, sess: Any) -> int | None:
        """Return the global step of a session, or None if it is not counted."""
        if self.global_step is None:
            return self.steps_done(sess)
        return int(np.asarray(await read_state(sess, self.global_step)).item())

    Loop, PrepareSession, RequestStop = loop, prepare_or_wait_for_session, request_stop
    ShouldStop, StartQueueRunners, Stop = should_stop, start_queue_runners, stop
    StartStandardServices, StopOnException = start_standard_services, stop_on_exception
    SummaryComputed, WaitForStop = summary_computed, wait_for_stop


def _given(value: Any, default: Callable[[], Any]) -> Any:
    return default() if value is Supervisor.USE_DEFAULT else value


async def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Awaitable[Any] | Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
    *,
    recovery: Recovery | None = None,
) -> None:
    """Call a step function with managed sessions until the supervisor is to stop. TF1: same name.

    After an ``AbortedError`` it continues with a new session, restored from the last checkpoint.

    Args:
        supervisor: prepares the sessions.
        train_step_fn: called as ``train_step_fn(sess, *args, **kwargs)``, plain or async.
        args: its further arguments.
        kwargs: its keyword arguments.
        master: the target of the sessions.
        recovery: the errors after which to continue, the number of attempts and the pauses. Default:
            after ``AbortedError``, without limit.

    Raises:
        Exception: any other error of a step or a service.
    """
    policy = recovery or Recovery(errors=(AbortedError,))
    failures = 0
    while True:
        try:
            async with supervisor.managed_session(master) as sess:
                while not supervisor.should_stop():
                    await settled(train_step_fn(sess, *(args or ()), **(kwargs or {})))
                    failures = 0
            return
        except policy.errors as error:
            failures += 1
            if policy.is_over(failures):
                raise
            logger.info("An error was raised; going on with a new session. Error: %s", text_of(error))
            await asyncio.sleep(policy.delay(failures))
