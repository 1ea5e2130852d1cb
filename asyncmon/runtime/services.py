"""What a supervisor does by time: summaries, steps per second, checkpoints. Each is a task."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from asyncmon import clock
from asyncmon.errors import InvalidArgumentError
from asyncmon.runtime.looper import LooperTask
from asyncmon.summary import SessionLog

if TYPE_CHECKING:
    from asyncmon.runtime.supervisor import Supervisor

__all__ = ["CheckpointService", "Reader", "StepCounterService", "SummaryService"]

logger = logging.getLogger("asyncmon.supervisor")


class Reader:
    """Reads values beside the steps: of one version of the state, and without delaying a step.

    Fetches that change something (a summary of a batch out of a queue, say), and sessions that cannot
    be peeked at, are run instead, in their turn.
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
                self._peek = None  # if it was not that they change something, the run says it, too
        return await self._sess.run(fetches)


class SummaryService(LooperTask):
    """Writes ``sv.summary_op`` every ``save_summaries_secs``. TF1: ``SVSummaryThread``."""

    def __init__(self, sv: Supervisor, sess: Any) -> None:
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv = sv
        self._sess = sess
        self._reader = Reader(sess)

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


class StepCounterService(LooperTask):
    """Writes the steps per second every ``save_summaries_secs``. TF1: ``SVStepCounterThread``."""

    def __init__(self, sv: Supervisor, sess: Any) -> None:
        super().__init__(sv.coord, sv.save_summaries_secs)
        self._sv = sv
        self._sess = sess
        name = getattr(getattr(sv.global_step, "op", None), "name", "global_step")
        self._tag = f"{name}/sec"
        self._last = (0.0, 0)

    async def start_loop(self) -> None:
        self._last = (clock.monotonic(), await self._step())

    async def run_loop(self) -> None:
        now, step = clock.monotonic(), await self._step()
        (before, last_step), self._last = self._last, (now, step)
        if now <= before:  # at the start: nothing to say yet
            return
        rate = (step - last_step) / (now - before)
        if self._sv.summary_writer is not None:
            self._sv.summary_writer.add_scalar(self._tag, rate, step)
        logger.info("%s: %g", self._tag, rate)

    async def _step(self) -> int:
        return await self._sv.current_step(self._sess) or 0


class CheckpointService(LooperTask):
    """Saves every ``save_model_secs``, while steps go on. TF1: ``SVTimerCheckpointThread``."""

    def __init__(self, sv: Supervisor, sess: Any) -> None:
        super().__init__(sv.coord, sv.save_model_secs)
        self._sv = sv
        self._sess = sess

    async def run_loop(self) -> None:
        await save(self._sv, self._sess)


async def save(sv: Supervisor, sess: Any) -> None:
    """Save a checkpoint of one snapshot, and say so in the event file, at the step of that snapshot."""
    logger.info("Saving checkpoint to path %s", sv.save_path)
    step = sv.global_step if sv.global_step is not None else sv.steps_done(sess)
    handle = sv.saver.start_save(sess, sv.save_path, global_step=step)
    path = await handle
    if path is not None and handle.step is not None and sv.summary_writer is not None:
        log = SessionLog(status=SessionLog.CHECKPOINT, checkpoint_path=path)
        sv.summary_writer.add_session_log(log, handle.step)
