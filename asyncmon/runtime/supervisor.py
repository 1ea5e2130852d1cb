"""The ancestor of the monitored session: a raw session, with services beside it."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from asyncmon.cancellation import shielded
from asyncmon.error_text import add_note, phrase
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.runtime.coordinated import close_raw
from asyncmon.runtime.interrupts import Interrupts
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.services import (
    CheckpointService,
    Reader,
    StepCounterService,
    SummaryService,
    save,
)
from asyncmon.runtime.supervisor_pieces import SupervisorPieces

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )
    from contextlib import AbstractContextManager

    from asyncmon.runtime.protocol import Session
    from asyncmon.runtime.queue_runner import ProducerTask, QueueRunner

__all__ = ["Supervisor"]

logger = logging.getLogger("asyncmon.supervisor")


class Supervisor(SupervisorPieces):
    """Prepares sessions and keeps services beside them. TF1: ``tf.train.Supervisor``.

    A chief restores or initialises, writes summaries and saves checkpoints by time; others wait until
    the state is ready. The session is the raw one: no hooks, no recovery (but see
    :func:`basic_train_loop`). An error in a service makes :meth:`should_stop` true and leaves by
    :meth:`managed_session`. A supervisor can be used again after :meth:`stop`.

    What is ``USE_DEFAULT`` is taken from the program, which is finalized; None is none at all.

    Args:
        graph: the program, a ``Graph`` or another. Default: the default graph.
        ready_op: gives the names of what is not initialised.
        ready_for_local_init_op: likewise, for ``local_init_op``.
        is_chief: whether this one initialises, saves and writes events.
        init_op: initialises the state where nothing is restored.
        init_feed_dict: fed to it.
        local_init_op: initialises what is not saved, restored or not.
        logdir: where checkpoints and events go. None: no services.
        summary_op: gives the summaries to write by time. None: they are yours to write, with
            :meth:`summary_computed`.
        saver: restores and saves. None: nobody does.
        global_step: the tensor that counts steps.
        save_summaries_secs: between summaries; 0 for none.
        save_model_secs: between checkpoints; 0 for none.
        recovery_wait_secs: the longest pause while waiting for a session to be ready.
        stop_grace_secs: how long tasks have to end after a stop before they are cancelled.
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

    # -- sessions

    @asynccontextmanager
    async def managed_session(
        self,
        master: str = "",
        config: Any = None,
        start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> AsyncIterator[Session]:
        """Prepare or wait for a session, keep services beside it, close all at the end. TF1: same name.

        ``OutOfRangeError`` in the body is the end of the data: it ends the block without an error. What
        else the body raises, or a service, leaves it when all is closed; of several errors the first.
        A body that does not look at :meth:`should_stop` is interrupted when the grace period after a
        service's error is over. A cancelled body closes in order, a second cancellation in a hurry.

        Args:
            master: where the session runs; "" is here.
            config: for the session.
            start_standard_services: whether to start services and queue runners.
            close_summary_writer: whether the end closes the event file.
        """
        sess: Session | None = None
        cancelled: BaseException | None = None
        completed = False
        try:
            sess = await self.prepare_or_wait_for_session(
                master, config, start_standard_services=start_standard_services
            )
            with self._interrupted_after_grace():
                yield sess
            completed = True
        except Exception as error:
            self.request_stop(error)
            completed = sess is not None and self._coord.error is None  # the end of the data
        except BaseException as error:
            cancelled = error
        try:
            await self._stop((), False, close_summary_writer, sess if completed else None)
        except Exception as error:
            if cancelled is None:
                raise
            logger.error("A service failed before the session was cancelled.", exc_info=error)
            add_note(cancelled, f"Before that: {phrase(error)}")
        finally:
            if sess is not None:
                await shielded(close_raw, sess, name="closing the supervisor's session")
        if cancelled is not None:
            raise cancelled

    @contextmanager
    def _interrupted_after_grace(self) -> Iterator[None]:
        """Raise the coordinator's error in a body that still waits when the grace period is over."""
        body, task, loop = Interrupts(), asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None, "coroutines of a session run in tasks"
        base = body.enter(task) or 0
        timers: list[asyncio.TimerHandle] = []

        def stopped() -> None:
            if task in body and (error := self._coord.error) is not None:
                timers.append(loop.call_later(max(self._stop_grace_secs, 0), body.interrupt, error))

        self._coord.when_stopped(stopped)
        reason: BaseException | None = None
        try:
            yield
        except BaseException as error:
            reason = body.leave(task, base, error)
            if reason is None:
                raise
        else:
            body.leave(task, base)
        finally:
            for timer in timers:
                timer.cancel()
        if reason is not None:
            raise reason

    async def prepare_or_wait_for_session(
        self,
        master: str = "",
        config: Any = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        start_standard_services: bool = True,
    ) -> Session:
        """Return a session that is ready, with services beside it. TF1: same name.

        Forgets an earlier stop, so a supervisor can be used again. You :meth:`stop` it and close the
        session.

        Args:
            master: where the session runs.
            config: for the session.
            wait_for_checkpoint: whether a chief waits for a checkpoint to restore.
            max_wait_secs: how long to wait for that, or (not the chief) for the session to be ready.
            start_standard_services: whether to start services and queue runners.
        """
        self._coord.clear_stop()
        await self._output.open()
        if not self._is_chief:
            sess = await self._session_manager.wait_for_session(master, config, max_wait_secs)
        else:
            sess = await self._session_manager.prepare_session(
                master,
                init_op=self._init_op,
                saver=self._saver,
                checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint,
                max_wait_secs=max_wait_secs,
                config=config,
                init_feed_dict=self._init_feed_dict,
                init_fn=self._init_fn,
            )
        try:
            if self._is_chief:
                await self._output.add_graph()
            if start_standard_services and self._is_chief:
                logger.info("Starting standard services.")
                await self.start_standard_services(sess)
            if start_standard_services:
                logger.info("Starting queue runners.")
                self.start_queue_runners(sess)
        except BaseException:
            await shielded(close_raw, sess, name="closing a session that did not start")
            raise
        return sess

    # -- services

    async def start_standard_services(self, sess: Session) -> list[LooperTask] | None:
        """Start to write summaries and steps per second, and to save checkpoints. TF1: same name.

        Each is a task that does its work now and then by time, on one version of the state.

        Returns:
            The services, in this order; None, with a warning, where there is no ``logdir``.

        Raises:
            RuntimeError: this is not the chief.
        """
        if not self._is_chief:
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
        services: list[LooperTask] = []
        if self._save_summaries_secs and self.summary_writer is not None:
            if self._summary_op is not None:
                services.append(SummaryService(self, sess))
            if step is not None:
                services.append(StepCounterService(self, sess))
        if self._saver is not None and self._save_model_secs:
            services.append(CheckpointService(self, sess))
        for service in services:
            service.start()
        for _ in range(2):  # turns until their first ticks: the first checkpoint is of the state now
            await asyncio.sleep(0)
        return services

    def start_queue_runners(
        self, sess: Session, queue_runners: Iterable[QueueRunner] | None = None
    ) -> list[ProducerTask]:
        """Start queue runners, those of the graph by default; return their tasks. TF1: same name."""
        if queue_runners is None:
            graph = getattr(self._program, "graph", None)
            key = GraphKeys.QUEUE_RUNNERS
            queue_runners = graph.get_collection(key) if isinstance(graph, Graph) else ()
        tasks: list[ProducerTask] = []
        for runner in queue_runners:
            tasks += runner.create_tasks(sess, self._coord, start=True)
        return tasks

    def loop(
        self,
        timer_interval_secs: float | None,
        target: Callable[..., Awaitable[Any] | Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> LooperTask:
        """Call something every so many seconds until the stop; return the task. TF1: same name.

        Args:
            timer_interval_secs: between calls; the first comes at once. None or 0: back to back.
            target: plain or ``async def``.
            args: its positional arguments.
            kwargs: its keyword arguments.
        """
        return LooperTask.loop(self._coord, timer_interval_secs, target, args, kwargs)

    async def summary_computed(
        self, sess: Session, summary: Any, global_step: int | None = None
    ) -> None:
        """Write a summary that you have computed. TF1: same name.

        Args:
            sess: asked for the step where none is given.
            summary: what a run of a summary op gave.
            global_step: the step it belongs to.

        Raises:
            RuntimeError: there is no writer.
            TypeError: it is no summary.
        """
        if self.summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None:
            global_step = await self.current_step(sess)
        self.summary_writer.add_summary(summary, global_step)

    # -- stopping

    async def stop(
        self,
        tasks: Iterable[asyncio.Task[Any]] | None = None,
        close_summary_writer: bool = True,
        ignore_live_tasks: bool = False,
    ) -> None:
        """Stop the services and all tasks of the coordinator, and wait for their end. TF1: same name.

        Does not close the session. Cancelled, it still stops all. A second call does nothing.

        Args:
            tasks: to wait for in addition.
            close_summary_writer: whether to end and close the event file.
            ignore_live_tasks: log tasks that ignore their cancellation instead of raising.

        Raises:
            BaseException: the first error that was reported to the coordinator.
            RuntimeError: there is none, but tasks ignored their cancellation.
        """
        await self._stop(tasks or (), ignore_live_tasks, close_summary_writer, None)

    async def _stop(
        self,
        tasks: Iterable[asyncio.Task[Any]],
        ignore_live_tasks: bool,
        close_summary_writer: bool,
        to_save: Session | None,
    ) -> None:
        for task in tasks:
            self._coord.register_task(task)
        stragglers = await shielded(
            self._shut_down, asyncio.current_task(), close_summary_writer, to_save,
            name="supervisor stopping", cancel_after=max(self._stop_grace_secs, 1.0),
        )  # fmt: skip
        self._coord.raise_requested_exception()
        if stragglers and not ignore_live_tasks:
            raise RuntimeError(stragglers)

    async def _shut_down(
        self, caller: asyncio.Task[Any] | None, close_summary_writer: bool, to_save: Session | None
    ) -> str:
        try:
            stragglers = await self._coord.shut_down(self._stop_grace_secs, caller)
            if self._saver is not None:
                if to_save is not None and self._save_at_end and self._coord.error is None:
                    await save(self, to_save)
                await self._saver.close()  # waits for saves in flight, and lets others save there
        finally:
            if close_summary_writer:  # last: one of the tasks may have used it
                await self._output.close()
        return stragglers

    def request_stop(self, ex: BaseException | None = None, reason: str | None = None) -> None:
        """Ask all to stop, for an error or a reason. See :meth:`Coordinator.request_stop`."""
        self._coord.request_stop(ex, reason)

    def should_stop(self) -> bool:
        """Return whether a stop was requested, or a service has failed."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> AbstractContextManager[None]:
        """Return a context manager that reports an exception of its block. See the coordinator's."""
        return self._coord.stop_on_exception()

    async def wait_for_stop(self) -> None:
        """Wait until a stop is requested."""
        await self._coord.wait_for_stop()

    # -- steps

    def steps_done(self, sess: Any) -> int | None:
        """Return the steps that a session has done, where its program counts them by itself."""
        return getattr(sess, "global_step", None) if self._counts_itself else None

    async def current_step(self, sess: Any) -> int | None:
        """Return the global step of a session, or None where nobody counts."""
        if self._global_step is None:
            return self.steps_done(sess)
        return int(await Reader(sess).read(self._global_step))
