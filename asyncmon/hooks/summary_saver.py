"""Write summaries periodically."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from typing import Any, Literal

from asyncmon.hooks.hook_support import created_session, samples_every
from asyncmon.hooks.step_schedule import (
    StepSchedule,
    global_step_of,
    idle_until,
    require_global_step,
    step_after,
)
from asyncmon.runtime import (
    Coordinator,
    Scaffold,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter

logger = logging.getLogger(__name__)


class SummarySaverHook(SessionRunHook):
    """Write summaries periodically. TF1: ``tf.train.SummarySaverHook``.

    By steps, the first training run of each session is written, then one every ``save_steps``; the
    same run computes the summary. A run that does not advance the global step, such as an evaluation,
    is not written. By seconds, a background task samples the next run. A new session writes ``START``
    with its next step.

    By steps, loading an earlier state resets the schedule: the next run is written, and so is
    ``START``, so that TensorBoard drops the steps that were undone.

    Args:
        save_steps: the interval in global steps.
        save_secs: the interval in seconds.
        output_dir: write to the event file of this directory.
        summary_writer: write to this writer instead.
        scaffold: write its ``summary_op``, or nothing if it has none.
        summary_op: a fetch, or a list of fetches, of serialized summaries or numbers by tag.
        on_error: with ``"log"``, the summary is computed separately after the run. Its failure is
            logged and does not end training.

    Raises:
        ValueError: neither or both of ``save_steps`` and ``save_secs``, or of ``scaffold`` and
            ``summary_op``, are given, or neither ``output_dir`` nor ``summary_writer``.

    Example::

        hooks = [SummarySaverHook(save_steps=100, output_dir="logs", summary_op=summary.merge_all())]
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
        scaffold: Scaffold | None = None,
        summary_op: Any = None,
        *,
        on_error: Literal["raise", "log"] = "raise",
    ) -> None:
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        self._schedule = StepSchedule(self, SummarySaverHook, "save_", save_steps, save_secs)
        self._output = SharedWriter(output_dir, summary_writer)
        self.output_dir = self._output.directory
        if not self._output.writes:
            raise ValueError(
                "SummarySaverHook has nowhere to write: give output_dir or summary_writer."
            )
        self.on_error = on_error
        self._scaffold = scaffold
        self._summary_op = summary_op
        self._fetches: list[Any] = []
        self._step_before = 0
        self._asked = False

    async def begin(self) -> None:
        require_global_step(self)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Write ``START``, and make the first run due."""
        op = self._summary_op if self._scaffold is None else self._scaffold.summary_op
        self._fetches = list(op) if isinstance(op, list | tuple) else [] if op is None else [op]
        step = global_step_of(self, session)
        self._schedule.start(step)
        if not self._fetches:
            idle_until(self, math.inf)
        self._output.start(step, created_session(coord).recorder)

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        if not self._fetches:
            return None
        step = self._step_before = global_step_of(self, run_context.session)
        self._restarts(step)
        self._asked = self._schedule.is_due(step + 1)
        return SessionRunArgs(self._fetches) if self._asked and self.on_error == "raise" else None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Write the summary if the run was due and advanced the global step."""
        step = step_after(run_values)
        if not self._fetches or self._restarts(step) or step <= self._step_before:
            return
        if self._asked and self._schedule.is_due(step):
            self._schedule.done(step)
            if self.on_error == "log":
                await self._write_apart(run_context.session, run_context.original_args.feed_dict)
            else:
                self._write(run_values.results, step)

    async def background(self, session: Session, coord: Coordinator) -> None:
        if not self._fetches:
            return
        secs, apart = self._schedule.every_secs, self.on_error == "log"
        assert secs is not None, "left out by steps"
        async for results, step in samples_every(coord, secs, [] if apart else self._fetches):
            if apart:
                await self._write_apart(session, None)
            else:
                self._write(results, step)

    async def cleanup(self, error: BaseException | None) -> None:
        await self._output.close()

    def _restarts(self, step: int) -> bool:
        restarts = self._schedule.restarts(step)
        if restarts:
            self._output.start(step)
        return restarts

    async def _write_apart(self, session: Session, feed_dict: Mapping[Any, Any] | None) -> None:
        step = session.global_step
        try:
            self._write(await session.peek(self._fetches, feed_dict), step)
        except Exception:
            logger.exception("The summary of step %s failed.", step)

    def _write(self, results: list[Any], step: int | None) -> None:
        for result in results:
            if isinstance(result, Mapping):
                self._output.add_scalars(result, step)
            elif result is not None:
                self._output.add_summary(result, step)
