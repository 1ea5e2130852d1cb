"""Log the norm of the gradients and the learning rate."""

from __future__ import annotations

from typing import Any

from asyncmon.graph import GraphKeys, global_norm
from asyncmon.hooks.hook_support import current_graph, named_tensor
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import (
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)


class OptimizerHook(SessionRunHook):
    """Log ``gradient_norm`` and ``learning_rate`` to the session's loggers.

    Args:
        every_steps: the interval in global steps; the first training step is logged.
        gradient_norm: a fetch of the norm. Default in a graph: that of all gradients that optimizers
            apply; in another program it is not logged.
        learning_rate: a fetch. Default in a graph: those of its optimizers, ``learning_rate_1`` and so
            on if there are several; in another program it is not logged.

    Raises:
        ValueError: ``every_steps`` is not positive. From ``begin``: there is nothing to log.

    Example::

        hooks = [OptimizerHook(every_steps=100)]  # of a graph
        hooks = [OptimizerHook(gradient_norm="grad_norm", learning_rate="rate")]  # results of a step
    """

    def __init__(
        self, every_steps: int = 100, *, gradient_norm: Any = None, learning_rate: Any = None
    ) -> None:
        self._schedule = StepSchedule(self, OptimizerHook, "every_", every_steps, None)
        self._given = {"gradient_norm": gradient_norm, "learning_rate": learning_rate}

    async def begin(self) -> None:
        require_global_step(self)
        graph = current_graph()
        found: dict[str, Any] = {}
        if graph is not None:
            gradients = graph.get_collection(GraphKeys.GRADIENTS)
            rates = graph.get_collection(GraphKeys.LEARNING_RATES)
            found = {f"learning_rate_{i}" if i else "learning_rate": x for i, x in enumerate(rates)}
            if gradients and self._given["gradient_norm"] is None:
                found["gradient_norm"] = global_norm(gradients, name="gradient_norm")
        found |= {tag: named_tensor(one) for tag, one in self._given.items() if one is not None}
        if not found:
            raise ValueError(
                "OptimizerHook finds no optimizer in the program: pass gradient_norm= or learning_rate="
                ", fetches such as the name of a result of the step."
            )
        self._args = SessionRunArgs(found)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._schedule.start(global_step_of(self, session))

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        step = self._before = global_step_of(self, run_context.session)
        self._schedule.restarts(step)
        return self._args if self._schedule.is_due(step + 1) else None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Log the values, if the run was due and advanced the global step."""
        step = step_after(run_values)
        if run_values.results is not None and step > self._before:
            self._schedule.done(step)
            run_context.log(run_values.results)
