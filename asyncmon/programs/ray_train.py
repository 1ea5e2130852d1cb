"""Sessions in a function of Ray Train or Ray Tune: reports, preemptions and stopped trials."""

from __future__ import annotations

import json
import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asyncmon.errors import FailedPreconditionError
from asyncmon.runtime import Session, SessionRunArgs, SessionRunContext, SessionRunHook
from asyncmon.runtime.session_coordinator import SessionCoordinator
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.system.clock import wall
from asyncmon.system.files import in_thread

try:
    import ray.train
    from ray.train._internal.session import get_session
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "asyncmon.programs.ray_train needs the package ray: pip install 'asyncmon[ray]'"
    ) from error

logger = logging.getLogger(__name__)


class RayTrainHook(SessionRunHook):
    """Report to Ray Train or Ray Tune, and stop before a preemption or with the trial.

    Every worker needs one with the same arguments: Ray waits at each report and check for all workers,
    so no logger of the chief alone can report. A report has ``step``, the fetched values and, of the
    chief, the metrics of the last evaluation and ``checkpoint``, the path of the last commit, of
    ``checkpoint_step``. A new one is a file in a checkpoint of Ray, without which a ``Result`` of Ray
    has no metrics. The last report is that of a successful end.

    After a notice of a preemption all workers stop after the same step, as ``preempted``, and the chief
    saves. Call :meth:`raise_if_preempted` after the session: a function that returns is complete, one
    that raises is started again by Ray Train and resumes at that checkpoint.

    Args:
        fetches: scalars to report, by name.
        report_steps: report where the global step is a multiple; None only at the end.
        check_steps: check for a preemption likewise, which takes a millisecond; None never.

    Example::

        asyncio.run(learn(config, hooks=[hook := RayTrainHook({"loss": "loss"})]))
        hook.raise_if_preempted()
    """

    def __init__(
        self,
        fetches: Mapping[str, Any] | None = None,
        *,
        report_steps: int | None = 100,
        check_steps: int | None = 10,
    ) -> None:
        for name, steps in (("report_steps", report_steps), ("check_steps", check_steps)):
            if steps is not None and steps < 1:
                raise ValueError(f"{name} must be 1 or more, or None, got {steps!r}.")
        self._fetches = dict(fetches or {})
        self._report_steps, self._check_steps = report_steps or math.inf, check_steps or math.inf
        self._coord: SessionCoordinator
        self._preemption: Any = None
        self._reported: str | None = None
        self._is_stopped_trial = False

    async def after_create_session(self, session: Session, coord: Any) -> None:
        if session.global_step is None:
            raise FailedPreconditionError("RayTrainHook needs a program with a global step.")
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        step = run_context.session.global_step
        is_due = step is not None and (step + 1) % self._report_steps == 0
        return SessionRunArgs(self._fetches) if is_due and self._fetches else None

    async def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
        if (step := run_values.step) is None:
            return
        if step % self._report_steps == 0:
            await self._report(step, run_values.results or {})
        if self._preemption is None and get_session() is None and step % self._check_steps == 0:
            self._preemption = await in_thread(ray.train.get_preemption_info)
            if self._preemption is not None:
                self._stop(step)

    async def cleanup(self, error: BaseException | None) -> None:
        if error is None and not self._is_stopped_trial:
            await self._report(self._coord.saves.step_at_end, {})

    def raise_if_preempted(self) -> None:
        """Raise ``ray.train.PreemptionError`` if the session stopped for a preemption."""
        if self._preemption is not None:
            raise ray.train.PreemptionError(self._preemption)

    async def _report(self, step: int | None, results: Mapping[str, Any]) -> None:
        metrics, saves = self._coord.observers.record.now().metrics, self._coord.saves
        values: dict[str, Any] = {n: float(value) for n, value in (metrics or {}).items()}
        values |= {"step": step} | {n: float(np.asarray(value)) for n, value in results.items()}
        commit, self._reported = (saves.path if saves.path != self._reported else None), saves.path
        if saves.path is not None:
            values |= {"checkpoint": saves.path, "checkpoint_step": saves.step}
        self._is_stopped_trial = not await in_thread(_sent, values, commit)
        if self._is_stopped_trial:
            self._coord.request_stop(reason="Ray Tune stopped the trial")

    def _stop(self, step: int) -> None:
        nodes, deadline = ", ".join(self._preemption.preempted_node_ids), self._preemption.deadline_ms
        left = "" if deadline is None else f" in {deadline / 1000 - wall():.0f} s"
        logger.warning("Ray preempts node %s%s: stopping after step %d.", nodes, left, step)
        stop = Stop(Cause.HOOK, f"Ray preempts node {nodes}{left}", "RayTrainHook", preempted=True)
        self._coord.request(stop)


def as_trainable(train: Callable[[Any], Any], grace_secs: float = 120) -> Any:
    """Return a function as a trainable of Ray Tune whose session saves and ends if a trial is stopped.

    Tune ends its process, here once the function has returned or after ``grace_secs``."""
    from ray.tune.trainable.function_trainable import wrap_function

    class Trial(wrap_function(train)):  # type: ignore[misc]  # ray is untyped
        def cleanup(self) -> None:
            session: Any = get_session()
            session.finish(timeout=grace_secs)
            super().cleanup()

    return Trial


def _sent(values: dict[str, Any], commit: str | None) -> bool:
    """Report values; return False if Ray Tune stops the trial, for which it raises SystemExit."""
    try:
        if session := get_session():  # of a trial of Ray Tune without workers of Ray Train
            session.report(values)
        elif commit is None:
            ray.train.report(values)
        else:
            with tempfile.TemporaryDirectory() as place:
                Path(place, "checkpoint.json").write_text(json.dumps({"checkpoint": commit}))
                ray.train.report(values, ray.train.Checkpoint(place))
    except SystemExit:
        return False
    return True
