"""Sessions inside the function of a trainer of Ray Train: reports, and notices of a preemption."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from asyncmon.errors import FailedPreconditionError
from asyncmon.runtime import (
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.clock import wall
from asyncmon.system.files import in_thread

try:
    import ray.train
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "asyncmon.programs.ray_train needs the package ray: pip install 'asyncmon[ray]'"
    ) from error

logger = logging.getLogger(__name__)


class RayTrainHook(SessionRunHook):
    """Report values to Ray Train, and stop when a node of the workers is about to be preempted.

    Every worker needs one with the same arguments: Ray waits at each report and check for all workers.
    The values are those of the worker. Schedulers of Ray Tune see them.

    After a notice of a preemption all workers stop after the same step, as ``preempted``, and the chief
    saves. Call :meth:`raise_if_preempted` after the session: a function that returns is complete, one
    that raises is started again by Ray Train and resumes at that checkpoint.

    Args:
        fetches: scalars to report, by name.
        report_steps: report each time that the global step is a multiple; None never reports.
        check_steps: check for a preemption likewise; None never checks. A check takes about a
            millisecond.

    Raises:
        ValueError: a number of steps below 1.

    Example::

        def train(config):
            hook = RayTrainHook({"loss": "loss"}, report_steps=100)
            asyncio.run(learn(config, hooks=[hook]))
            hook.raise_if_preempted()
    """

    def __init__(
        self,
        fetches: dict[str, Any] | None = None,
        *,
        report_steps: int | None = 100,
        check_steps: int | None = 10,
    ) -> None:
        for name, steps in (("report_steps", report_steps), ("check_steps", check_steps)):
            if steps is not None and steps < 1:
                raise ValueError(f"{name} must be 1 or more, or None, got {steps!r}.")
        self._fetches = dict(fetches or {})
        self._report_steps = report_steps
        self._check_steps = check_steps
        self._coord: Coordinator | None = None
        self._preemption: Any = None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Reject a session without a global step."""
        if session.global_step is None:
            raise FailedPreconditionError("RayTrainHook needs a program with a global step.")
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the values if a report is due after this run."""
        step = run_context.session.global_step
        is_due = step is not None and _is_due(step + 1, self._report_steps)
        return SessionRunArgs(self._fetches) if is_due and self._fetches else None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Report and check, in a thread. Waits for the other workers."""
        step = run_values.step
        if step is None:
            return
        if _is_due(step, self._report_steps):
            found = run_values.results or {}
            values = {name: float(np.asarray(value)) for name, value in found.items()}
            await in_thread(ray.train.report, {"step": step, **values})
        if self._preemption is None and _is_due(step, self._check_steps):
            self._preemption = await in_thread(ray.train.get_preemption_info)
            if self._preemption is not None:
                self._stop(step)

    def raise_if_preempted(self) -> None:
        """Let Ray Train start the workers again if the session stopped for a preemption.

        Raises:
            ray.train.PreemptionError: it did.
        """
        if self._preemption is not None:
            raise ray.train.PreemptionError(self._preemption)

    def _stop(self, step: int) -> None:
        nodes = ", ".join(self._preemption.preempted_node_ids)
        deadline = self._preemption.deadline_ms
        left = "" if deadline is None else f" in {deadline / 1000 - wall():.0f} s"
        logger.warning("Ray preempts node %s%s: stopping after step %d.", nodes, left, step)
        assert isinstance(self._coord, SessionCoordinator), "set in after_create_session"
        stop = Stop(Cause.HOOK, f"Ray preempts node {nodes}{left}", "RayTrainHook", preempted=True)
        self._coord.request(stop)


def _is_due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
