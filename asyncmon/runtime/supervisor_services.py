"""What a supervisor does by time: summaries, steps per second, checkpoints. Each is a task."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from asyncmon import clock
from asyncmon.errors import InvalidArgumentError
from asyncmon.runtime.looper import LooperTask
from asyncmon.summary import SessionLog

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from asyncmon.runtime.coordinator import Coordinator

logger = logging.getLogger("asyncmon.supervisor")


class Supervised(Protocol):
    """What the services use of a supervisor."""

    coord: Coordinator
    global_step: Any
    saver: Any
    save_model_secs: float | None
    save_path: str | None
    save_summaries_secs: float | None
    summary_op: Any

    @property
    def summary_writer(self) -> Any:
        """The writer of events, or None."""

    def steps_done(self, sess: Any) -> int | None:
        """Return the steps that a session has done, where its program counts them by itself."""

    async def current_step(self, sess: Any) -> int | None:
        """Return the global step of a session, or None where it is not counted."""


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
    def __init__(self, sv: Supervised, sess: Any, secs: float | None) -> None:
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

    def __init__(self, sv: Supervised, sess: Any) -> None:
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

    def __init__(self, sv: Supervised, sess: Any) -> None:
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

    def __init__(self, sv: Supervised, sess: Any) -> None:
        super().__init__(sv, sess, sv.save_model_secs)

    async def start_loop(self) -> None:
        """Do nothing: it has begun when its first checkpoint is ordered."""

    async def run_loop(self) -> None:
        saved = order_save(self._sv, self._sess)
        self._report_started()
        await saved


def standard_services(
    sv: Supervised, sess: Any, *, counts_steps: bool
) -> list[SummaryService | StepCounterService | CheckpointService]:
    """Return the services that a supervisor has work for."""
    services: list[SummaryService | StepCounterService | CheckpointService] = []
    if sv.save_summaries_secs and sv.summary_writer is not None:
        if sv.summary_op is not None:
            services.append(SummaryService(sv, sess))
        if counts_steps:
            services.append(StepCounterService(sv, sess))
    if sv.saver is not None and sv.save_model_secs:
        services.append(CheckpointService(sv, sess))
    return services


def order_save(sv: Supervised, sess: Any) -> Awaitable[None]:
    """Order a checkpoint of the present state; the awaitable ends when its event is written."""
    logger.info("Saving checkpoint to path %s", sv.save_path)
    step = sv.global_step if sv.global_step is not None else sv.steps_done(sess)
    handle = sv.saver.start_save(sess, sv.save_path, global_step=step)
    return _write_event(sv, handle)


async def _write_event(sv: Supervised, handle: Any) -> None:
    path = await handle
    if path is not None and handle.step is not None and sv.summary_writer is not None:
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=path)
        sv.summary_writer.add_session_log(log, handle.step)
