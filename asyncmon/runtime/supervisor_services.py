"""A supervisor's event file, and its services: summaries, steps per second, checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from typing import Any

import numpy as np

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.errors import InvalidArgumentError
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.protocols import ProgramMembers, SessionMembers, WriterMembers
from asyncmon.summary import SessionLog
from asyncmon.summary.graph_events import write_graph_text
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.system import clock
from asyncmon.system.members import members_of

logger = logging.getLogger("asyncmon.supervisor")


class EventOutput:
    """The event file of a supervisor, for one or several sessions.

    Args:
        logdir: the directory of ``graph.pbtxt`` and the event file. None: none are written.
        given: a writer to use instead.
        shared: whether to use the writer of ``logdir``.
        graph: written once for each file, if it has ``get_operations()``.

    Attributes:
        events: the writer.
    """

    def __init__(self, logdir: str | None, given: Any, shared: bool, graph: Any) -> None:
        self._logdir = logdir
        self._given = given
        self.events = SharedWriter(logdir if shared else None, given)
        self._operations = members_of(ProgramMembers, graph).get_operations
        self._graph = graph
        self._graph_added = self._started = False

    @property
    def writer(self) -> Any:
        """The writer, or None. The writer of the directory needs a running event loop."""
        self.events.open()
        return self.events.writer

    async def open(self) -> None:
        """Open a new file if the writer was closed."""
        reopen = members_of(WriterMembers, self.writer).reopen
        if reopen is not None:
            await reopen()

    async def add_graph(self) -> None:
        """Write the graph once for each file, and as text beside it."""
        if self._operations is None or self._graph_added:
            return
        self._graph_added = True
        if self._logdir is not None:
            await write_graph_text(self._logdir, self._operations())
        if self.writer is not None:
            with self.events.tolerated():
                self.writer.add_graph(self._graph)

    def start(self, step: int) -> None:
        """Write the start of a session at a step."""
        if self.writer is not None:
            self.events.add_session_log(SessionLog(status=SessionLog.START), step)
            self._started = True

    async def close(self) -> None:
        """Write the end of the session, and close. A second call does nothing."""
        writer: Any = self.events.writer
        if writer is None or members_of(WriterMembers, writer).closed:
            return
        if not self._started:  # else the writer does so when it closes
            self.events.add_session_log(SessionLog(status=SessionLog.STOP), None)
        self._graph_added = self._started = False
        await self.events.close()
        if self._given is not None:
            with self.events.tolerated():
                await writer.close()


async def read_state(sess: Any, fetches: Any) -> Any:
    """Return values of one version of the state, without delaying a step."""
    peek = members_of(SessionMembers, sess).peek
    if peek is not None:
        with contextlib.suppress(InvalidArgumentError):  # they change something, or the run fails too
            return await peek(fetches)
    # Fetches that change state, such as a summary of a batch out of a queue, are run after earlier
    # runs, and so are all fetches of a session without peek().
    return await sess.run(fetches)


class _Service(LooperTask):
    def __init__(self, sv: Any, sess: Any, secs: float) -> None:
        super().__init__(sv.coord, secs)
        self._sv = sv
        self._sess = sess


class SummaryService(_Service):
    """Write ``sv.summary_op``. TF1: ``SVSummaryThread``."""

    async def run_loop(self) -> None:
        sv = self._sv
        if sv.global_step is not None:
            summary, step = await read_state(self._sess, [sv.summary_op, sv.global_step])
        else:
            summary, step = await read_state(self._sess, sv.summary_op), sv.steps_done(self._sess)
        step = None if step is None else int(np.asarray(step).item())
        logger.info("Recording summary at step %s.", step)
        sv._output.events.add_summary(summary, step)


class StepCounterService(_Service):
    """Write the steps per second, from a given step on. TF1: ``SVStepCounterThread``."""

    def __init__(self, sv: Any, sess: Any, secs: float, step: int) -> None:
        super().__init__(sv, sess, secs)
        name = members_of(FetchMembers, members_of(FetchMembers, sv.global_step).op).name
        self._tag = f"{name or 'global_step'}/sec"
        self._last = (clock.monotonic(), step)

    async def run_loop(self) -> None:
        now, step = clock.monotonic(), await self._sv.current_step(self._sess) or 0
        (before, last_step), self._last = self._last, (now, step)
        if now <= before:  # the first tick, at the start
            return
        rate = (step - last_step) / (now - before)
        self._sv._output.events.add_scalars({self._tag: rate}, step)
        logger.info("%s: %g", self._tag, rate)


class CheckpointService(_Service):
    """Save checkpoints beside the steps. TF1: ``SVTimerCheckpointThread``."""

    def __init__(self, sv: Any, sess: Any, secs: float) -> None:
        super().__init__(sv, sess, secs)
        self._ordered = asyncio.Event()

    async def ordered(self) -> None:
        """Wait until the first checkpoint is ordered, or the order failed."""
        assert self.task is not None, "start() was called"
        self.task.add_done_callback(lambda _task: self._ordered.set())
        await self._ordered.wait()

    async def run_loop(self) -> None:
        saved = order_save(self._sv, self._sess)
        self._ordered.set()
        await saved


async def start_services(sv: Any, sess: Any, step: int | None) -> list[LooperTask]:
    """Start the services that a ``Supervisor`` is configured for, and return them."""
    services: list[LooperTask] = []
    if (sv.save_summaries_secs or 0) > 0 and sv.summary_writer is not None:
        if sv.summary_op is not None:
            services.append(SummaryService(sv, sess, sv.save_summaries_secs))
        if step is not None:
            services.append(StepCounterService(sv, sess, sv.save_summaries_secs, step))
    if sv.saver is not None and (sv.save_model_secs or 0) > 0:
        services.append(CheckpointService(sv, sess, sv.save_model_secs))
    for service in services:
        service.start()
        if isinstance(service, CheckpointService):
            await service.ordered()  # the first checkpoint has the present state
    return services


def order_save(sv: Any, sess: Any) -> Awaitable[None]:
    """Order a checkpoint of the present state. The awaitable ends when its event is written."""
    logger.info("Saving checkpoint to path %s", sv.save_path)
    step = sv.global_step if sv.global_step is not None else sv.steps_done(sess)
    orders = sv._saves.orders_of(sv, sv._output.events)
    awaitable: Awaitable[None] = orders.finish(orders.order(sv.saver, sess, sv.save_path, step))
    return awaitable
