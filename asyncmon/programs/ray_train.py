"""Sessions in a function of Ray Train or Ray Tune: reports, preemptions and stopped trials."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
    so no logger of the chief alone can report. A report has ``step``, the fetched values of the worker
    and, of the chief, the metrics of the last evaluation and ``checkpoint``, the path of the last
    committed checkpoint, of ``checkpoint_step``. A successful end is reported, too.

    After a notice of a preemption all workers stop after the same step, as ``preempted``, and the chief
    saves. Call :meth:`raise_if_preempted` after the session: a function that returns is complete, one
    that raises is started again by Ray Train and resumes at that checkpoint.

    Args:
        fetches: scalars to report, by name.
        report_steps: report each time that the global step is a multiple; None only at the end.
        check_steps: check for a preemption likewise, which takes about a millisecond; None never.

    Example::

        hook = RayTrainHook({"loss": "loss"}, report_steps=100)
        asyncio.run(learn(config, hooks=[hook]))
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
        self._report_steps, self._check_steps = report_steps, check_steps
        self._coord: SessionCoordinator
        self._preemption: Any = None

    async def after_create_session(self, session: Session, coord: Any) -> None:
        if session.global_step is None:
            raise FailedPreconditionError("RayTrainHook needs a program with a global step.")
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetch the values if a report is due after this run."""
        step = run_context.session.global_step
        is_due = step is not None and _is_due(step + 1, self._report_steps)
        return SessionRunArgs(self._fetches) if is_due and self._fetches else None

    async def after_run(self, run_context: SessionRunContext, run_values: Any) -> None:
        """Report and check, in a thread. Waits for the other workers."""
        step = run_values.step
        if step is None:
            return
        if _is_due(step, self._report_steps):
            await self._report(step, run_values.results or {})
        if self._preemption is None and not _in_trial() and _is_due(step, self._check_steps):
            self._preemption = await in_thread(ray.train.get_preemption_info)
            if self._preemption is not None:
                self._stop(step)

    async def cleanup(self, error: BaseException | None) -> None:
        """Report the successful end, with the last checkpoint."""
        saves = self._coord.saves if error is None else None
        if saves is not None and not (_in_trial() and self._coord.should_stop()):
            await self._report(saves.step_at_end, {})

    def raise_if_preempted(self) -> None:
        """Raise ``ray.train.PreemptionError`` if the session stopped for a preemption."""
        if self._preemption is not None:
            raise ray.train.PreemptionError(self._preemption)

    async def _report(self, step: int | None, results: Mapping[str, Any]) -> None:
        record, saves = self._coord.observers.record.now(), self._coord.saves
        values: dict[str, Any] = {n: float(value) for n, value in (record.metrics or {}).items()}
        values |= {"step": step} | {n: float(np.asarray(value)) for n, value in results.items()}
        if saves.path is not None:
            values |= {"checkpoint": saves.path, "checkpoint_step": saves.step}
        if not await in_thread(_sent, values):
            self._coord.request_stop(reason="Ray Tune stopped the trial")

    def _stop(self, step: int) -> None:
        nodes = ", ".join(self._preemption.preempted_node_ids)
        deadline = self._preemption.deadline_ms
        left = "" if deadline is None else f" in {deadline / 1000 - wall():.0f} s"
        logger.warning("Ray preempts node %s%s: stopping after step %d.", nodes, left, step)
        stop = Stop(Cause.HOOK, f"Ray preempts node {nodes}{left}", "RayTrainHook", preempted=True)
        self._coord.request(stop)


def as_trainable(train: Callable[[Any], Any], grace_secs: float = 120) -> Any:
    """Return a function of ``RayTrainHook`` sessions as a trainable of ``ray.tune.Tuner``.

    Tune ends the process of a trial that it stops. This one lets the session save and end before, for
    ``grace_secs`` at most.
    """
    from ray.tune.trainable.function_trainable import wrap_function

    class Trial(wrap_function(train)):  # type: ignore[misc]
        def cleanup(self) -> None:
            session: Any = get_session()
            session.finish(timeout=grace_secs)
            super().cleanup()

    return Trial


def _in_trial() -> bool:
    """Return whether this is a trial of Ray Tune itself, without workers of Ray Train."""
    return get_session() is not None


def _sent(values: dict[str, Any]) -> bool:
    """Report values; return False if Ray Tune stops the trial, for which it raises SystemExit."""
    try:
        (get_session() or ray.train).report(values)
    except SystemExit:
        return False
    return True


def _is_due(step: int, every: int | None) -> bool:
    return every is not None and step % every == 0
