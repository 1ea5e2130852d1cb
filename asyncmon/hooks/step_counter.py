"""Measure the rate of steps."""

from __future__ import annotations

import logging
import os
from typing import Final

from asyncmon.graph import get_global_step
from asyncmon.hooks.hook_support import current_graph, log_errors, next_sample
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import Coordinator, Session, SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter

logger = logging.getLogger(__name__)


class _NotPassed(int):
    """A default that differs from the same number passed by the caller."""


_DEFAULT: Final = _NotPassed(100)


class StepCounterHook(SessionRunHook):
    """Log and write the rate of steps per second. TF1: ``tf.train.StepCounterHook``.

    The first run only begins the measurement: with ``every_n_steps=10`` the rate is reported at steps
    11, 21 and so on. A recovery begins it anew. By seconds, a background task reports; an interval
    without a step reports nothing and counts into the next.

    Args:
        every_n_steps: report every so many steps; 100 unless ``every_n_secs`` is given.
        every_n_secs: report every so many seconds.
        output_dir: write the rate to the event file of this directory, under ``global_step/sec``.
        summary_writer: write it to this writer instead.

    Raises:
        ValueError: neither or both of ``every_n_steps`` and ``every_n_secs`` are given, or the one is
            not positive.

    Example::

        hooks = [StepCounterHook(every_n_secs=10, output_dir="logs")]
    """

    def __init__(
        self,
        every_n_steps: int | None = _DEFAULT,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        if every_n_steps is _DEFAULT and every_n_secs is not None:
            every_n_steps = None
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._schedule = StepSchedule(self, StepCounterHook, "every_n_", every_n_steps, every_n_secs)
        self._output = SharedWriter(output_dir, summary_writer)
        self._tag: str
        self._last_step: int | None = None
        self._warned = False

    async def begin(self) -> None:
        require_global_step(self)
        graph = current_graph()
        step = None if graph is None else get_global_step(graph)
        self._tag = f"{'global_step' if step is None else step.op.name}/sec"

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        step = global_step_of(self, session)
        self._output.start(step)
        self._schedule.start(step)
        self._last_step = None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_after(run_values)
        last, self._last_step = self._last_step, step
        if step == last:
            self._did_not_advance(step)
            return
        self._schedule.restarts(step)
        if self._schedule.is_due(step):
            self._report(step)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Report every so many seconds, from the end of the first run on."""
        await next_sample(coord, [])
        self._schedule.done(global_step_of(self, session))
        async for _ in coord.every(self._schedule.every_secs):
            step = global_step_of(self, session)
            if step != self._schedule.last_step:
                with log_errors(self, "a report"):
                    self._report(step)
                continue
            await next_sample(coord, [])
            if global_step_of(self, session) == step:
                self._did_not_advance(step)

    async def cleanup(self, error: BaseException | None) -> None:
        await self._output.close()

    def _report(self, step: int) -> None:
        secs, steps = self._schedule.done(step)
        if not secs or steps is None:
            return  # the first of a session or of a loaded state; or no time passed
        rate = steps / secs
        logger.info("global_step/sec: %g", rate)
        self._output.add_scalars({self._tag: rate}, step)

    def _did_not_advance(self, step: int) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "It seems that global step (tf.train.get_global_step) has not been increased. Current "
                "value: %s vs previous value: %s. You could increase the global step by passing it to "
                "Optimizer.apply_gradients or Optimizer.minimize. This is said once.",
                step,
                step,
            )
