"""A supervisor's event file, and its work by time: summaries, steps per second, checkpoints."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon import clock, files
from asyncmon.errors import InvalidArgumentError
from asyncmon.runtime.looper import LooperTask
from asyncmon.summary import SessionLog
from asyncmon.summary.graph_def import write_graph_text
from asyncmon.summary.shared_writer import SharedWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable

logger = logging.getLogger("asyncmon.supervisor")


class EventOutput:
    """The event file of a supervisor, from a session's preparation to the stop, or over several.

    Args:
        logdir: where ``graph.pbtxt`` goes, and the event file. None: nowhere.
        given: a writer to use instead.
        shared: whether to use that of ``logdir``.
        graph: written once for each file, if it has ``get_operations()``.
    """

    def __init__(self, logdir: str | None, given: Any, shared: bool, graph: Any) -> None:
        self._logdir = logdir
        self._given = given
        self._output = SharedWriter(logdir if shared else None, given)
        self._graph = graph if hasattr(graph, "get_operations") else None
        self._graph_added = self._started = False

    @property
    def writer(self) -> Any:
        """The writer, or None where there is none. That of the directory needs a running event loop."""
        self._output.open()
        return self._output.writer

    async def open(self) -> None:
        """Begin a new file if the writer was closed."""
        reopen = getattr(self.writer, "reopen", None)
        if reopen is not None:
            await reopen()

    async def add_graph(self) -> None:
        """Write the graph, once for each file, and as text beside it."""
        if self._graph is None or self._graph_added:
            return
        self._graph_added = True
        if self._logdir is not None:
            await files.in_thread(write_graph_text, self._logdir, self._graph.get_operations())
        if self.writer is not None:
            self.writer.add_graph(self._graph)

    def start(self, step: int) -> None:
        """Write that a session begins at a step."""
        if self.writer is not None:
            self.writer.add_session_log(SessionLog(status=SessionLog.START), step)
            self._started = True

    async def close(self) -> None:
        """Write that the session ends, and close. A second call does nothing."""
        writer: Any = self._output.writer
        if writer is None or getattr(writer, "closed", False):
            return
        if not self._started:  # else the writer does so when it closes
            writer.add_session_log(SessionLog(status=SessionLog.STOP))
        self._graph_added = self._started = False
        await self._output.close()
        if self._given is not None:
            await writer.close()


class StateReader:
    """Reads values of one version of the state, without delaying a step.

    Fetches that change something (a summary of a batch out of a queue, for example), and sessions that
    cannot be peeked at, are run instead, after the runs before.
    """

    def __init__(self, sess: Any) -> None:
        self._sess = sess
        self._peek = getattr(sess, "peek", None)

    async def read(self, fetches: Any) -> Any:
        """Return the values of fetches."""
        if self._peek is not None:
            try:
                return await self._peek(fetches)
            except InvalidArgumentError:
                self._peek = None  # they change something; else the run raises the same error
        return await self._sess.run(fetches)


class _Service(LooperTask):
    def __init__(self, sv: Any, sess: Any, secs: float | None) -> None:
        super().__init__(sv.coord, secs)
        self._sv = sv
        self._sess = sess
        self._reader = StateReader(sess)
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started(self) -> None:
        """Wait until the first work has begun, or failed."""
        assert self.task is not None, "start() was called"
        self.task.add_done_callback(self._report_started)
        await self._started

    def _report_started(self, *_: Any) -> None:
        if not self._started.done():
            self._started.set_result(None)

    async def start_loop(self) -> None:
        self._report_started()


class SummaryService(_Service):
    """Writes ``sv.summary_op`` every ``save_summaries_secs``. TF1: ``SVSummaryThread``."""

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)

    async def run_loop(self) -> None:
        sv = self._sv
        if sv.global_step is not None:
            summary, step = await self._reader.read([sv.summary_op, sv.global_step])
        else:
            summary, step = await self._reader.read(sv.summary_op), sv.steps_done(self._sess)
        step = None if step is None else int(step)
        logger.info("Recording summary at step %s.", step)
        if sv.summary_writer is not None:
            sv.summary_writer.add_summary(summary, step)


class StepCounterService(_Service):
    """Writes the steps per second every ``save_summaries_secs``. TF1: ``SVStepCounterThread``."""

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_summaries_secs)
        name = getattr(getattr(sv.global_step, "op", None), "name", "global_step")
        self._tag = f"{name}/sec"
        self._last = (0.0, 0)

    async def start_loop(self) -> None:
        self._last = (clock.monotonic(), await self._step())
        self._report_started()

    async def run_loop(self) -> None:
        now, step = clock.monotonic(), await self._step()
        (before, last_step), self._last = self._last, (now, step)
        if now <= before:  # the first tick, at the start
            return
        rate = (step - last_step) / (now - before)
        if self._sv.summary_writer is not None:
            self._sv.summary_writer.add_scalar(self._tag, rate, step)
        logger.info("%s: %g", self._tag, rate)

    async def _step(self) -> int:
        return await self._sv.current_step(self._sess) or 0


class CheckpointService(_Service):
    """Saves every ``save_model_secs``, while steps go on. TF1: ``SVTimerCheckpointThread``."""

    def __init__(self, sv: Any, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_model_secs)

    async def start_loop(self) -> None:
        """Do nothing: it has begun when its first checkpoint is ordered."""

    async def run_loop(self) -> None:
        saved = order_save(self._sv, self._sess)
        self._report_started()
        await saved


def standard_services(
    sv: Any, sess: Any, *, counts_steps: bool
) -> list[SummaryService | StepCounterService | CheckpointService]:
    """Return the services that a ``Supervisor`` has work for."""
    services: list[SummaryService | StepCounterService | CheckpointService] = []
    if sv.save_summaries_secs and sv.summary_writer is not None:
        if sv.summary_op is not None:
            services.append(SummaryService(sv, sess))
        if counts_steps:
            services.append(StepCounterService(sv, sess))
    if sv.saver is not None and sv.save_model_secs:
        services.append(CheckpointService(sv, sess))
    return services


def order_save(sv: Any, sess: Any) -> Awaitable[None]:
    """Order a checkpoint of the present state; the awaitable ends when its event is written."""
    logger.info("Saving checkpoint to path %s", sv.save_path)
    step = sv.global_step if sv.global_step is not None else sv.steps_done(sess)
    handle = sv.saver.start_save(sess, sv.save_path, global_step=step)
    return _write_event(sv, handle)


async def _write_event(sv: Any, handle: Any) -> None:
    path = await handle
    if path is not None and handle.step is not None and sv.summary_writer is not None:
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=path)
        sv.summary_writer.add_session_log(log, handle.step)
