"""Averages of training values that early stopping and checkpoints use like an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from asyncmon.hooks.eval_hook import Evaluations
from asyncmon.hooks.hook_support import named_tensor, whole_number
from asyncmon.hooks.step_schedule import global_step_of, require_global_step, step_after
from asyncmon.runtime import Coordinator, Session, SessionRunArgs, SessionRunContext, SessionRunValues


class TrainingMetricsHook(Evaluations):
    """Average values that training runs fetch over intervals, and publish them like an evaluation.

    For early stopping on a training value, and for the ``metrics`` of a ``CheckpointSaverHook``.

    Args:
        metrics: fetches of numbers by name; the mean of an array is used.
        every_steps: the interval in global steps.
        name: the prefix of the tags of the averages, which the session's loggers get.

    Raises:
        ValueError: ``every_steps`` is not positive, or there is no metric.

    Example::

        training = TrainingMetricsHook({"loss": loss}, every_steps=100)
        hooks = [training, stop_if_no_decrease(training, "loss", patience=5)]
    """

    def __init__(
        self,
        metrics: Mapping[str, Any],
        every_steps: int = 100,
        *,
        name: str = "train",
    ) -> None:
        super().__init__(name, None, None)
        if not metrics:
            raise ValueError("TrainingMetricsHook was given no metric: pass fetches, {'loss': loss}.")
        self._fetches = dict(metrics)
        self._every_steps = whole_number("every_steps", every_steps, least=1)

    async def begin(self) -> None:
        await super().begin()
        require_global_step(self)
        self._args = SessionRunArgs({tag: named_tensor(one) for tag, one in self._fetches.items()})

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        await super().after_create_session(session, coord)
        self._step, self._rows = global_step_of(self, session), list[list[float]]()

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return self._args

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Add the values of a step; publish the averages at each multiple of ``every_steps``."""
        before, self._step = self._step, step_after(run_values)
        if self._step <= before:
            return  # no training
        self._rows.append([float(np.mean(value)) for value in run_values.results.values()])
        if self._step // self._every_steps > before // self._every_steps:
            means, self._rows = np.mean(self._rows, axis=0).tolist(), []
            await self._publish(self._step, dict(zip(self._fetches, means, strict=True)))
            await self.save_evaluated(run_context.session, None)
