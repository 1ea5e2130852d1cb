"""How many steps a second."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from asyncmon import clock
from asyncmon.hooks.hook_support import (
    forgiven,
    global_step_name,
    global_step_of,
    idle_until,
    leave_out,
    let_idle,
    next_sample,
    require_global_step,
    whole_number,
)
from asyncmon.runtime.hook import SessionRunHook
from asyncmon.summary.shared_writer import SharedWriter

if TYPE_CHECKING:
    import os

    from asyncmon.runtime.coordinator import Coordinator
    from asyncmon.runtime.hook import SessionRunContext, SessionRunValues
    from asyncmon.runtime.protocols import Session
    from asyncmon.summary.shared_writer import SummaryWriter

logger = logging.getLogger(__name__)


class _NotPassed(int):
    """A default that can be told from the same number passed by the caller."""


_DEFAULT: Final = _NotPassed(100)


class StepCounterHook(SessionRunHook):
    """Log and write the rate of steps per second. TF1: ``tf.train.StepCounterHook``.

    The first run only begins the measurement: with ``every_n_steps=10`` the rate is reported at steps
    11, 21 and so on. A recovery begins it anew. By seconds, a task reports; an interval without a step
    reports nothing and counts into the next.

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
        if every_n_secs is not None and not every_n_secs > 0:
            raise ValueError(f"invalid every_n_secs={every_n_secs!r}: it must be positive.")
        self._every_n_secs = every_n_secs
        self._every_n_steps = 0
        if every_n_steps is None:
            leave_out(self, StepCounterHook, "after_run")
        else:
            self._every_n_steps = whole_number("every_n_steps", every_n_steps, least=1)
            leave_out(self, StepCounterHook, "background")
            let_idle(self, StepCounterHook)
        self._output = SharedWriter(output_dir, summary_writer)
        self._tag = "global_step/sec"
        self._last_step: int | None = None
        self._mark: tuple[float, int] | None = None
        self._due = 0
        self._warned = False

    async def begin(self) -> None:
        """Refuse a program without global step, and take hold of the writer."""
        require_global_step(self)
        self._tag = f"{global_step_name()}/sec"
        self._output.open()

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Begin to measure anew."""
        self._output.start(global_step_of(self, session))
        self._last_step = self._mark = None
        self._due = 0
        idle_until(self, self._due)

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report when it is due."""
        step = run_values.step
        assert step is not None, "after_create_session saw to it"
        last, self._last_step = self._last_step, step
        if last is not None and step <= last:
            if step == last:
                self._did_not_advance(step)
                return
            self._mark, self._due = None, step  # an earlier state was loaded: measure anew
        if step >= self._due:
            self._report(step)
            self._due = step + self._every_n_steps
            idle_until(self, self._due)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Report every so many seconds, from the end of the first run on."""
        await next_sample(coord, [])
        with forgiven(self, "a report"):
            self._report(global_step_of(self, session))
        async for _ in coord.every(self._every_n_secs):
            step = global_step_of(self, session)
            assert self._mark is not None, "the first report set it"
            if step == self._mark[1]:
                await next_sample(coord, [])
                if global_step_of(self, session) == step:
                    self._did_not_advance(step)
                continue
            if step < self._mark[1]:
                self._mark = None
            with forgiven(self, "a report"):
                self._report(step)

    async def cleanup(self, error: BaseException | None) -> None:
        """Let go of the writer."""
        await self._output.close()

    def _report(self, step: int) -> None:
        now, mark = clock.monotonic(), self._mark
        self._mark = now, step
        if mark is None or now <= mark[0]:
            return
        rate = (step - mark[1]) / (now - mark[0])
        logger.info("global_step/sec: %g", rate)
        if self._output.writer is not None:
            self._output.writer.add_scalar(self._tag, rate, step)

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
