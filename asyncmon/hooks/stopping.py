"""Hooks that stop training: at a step, at NaN, or when evaluations no longer improve."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.hooks.eval_hook import Evaluations
from asyncmon.hooks.hook_support import named_tensor, veto_saving, whole_number
from asyncmon.hooks.step_schedule import (
    global_step_of,
    idle_until,
    let_idle,
    require_global_step,
    step_after,
)
from asyncmon.runtime import (
    GUARD,
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class StopAtStepHook(SessionRunHook):
    """Request a stop at a step. TF1: ``tf.train.StopAtStepHook``.

    A session that starts at or beyond the step stops before its first run.

    Args:
        num_steps: the number of steps from the first step of the session; a recovery does not reset
            it.
        last_step: the step to stop at.

    Raises:
        ValueError: neither or both are given, or the value is negative.
        TypeError: the value is not a whole number.

    Example::

        hooks = [StopAtStepHook(last_step=10_000)]
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = None if num_steps is None else whole_number("num_steps", num_steps, least=0)
        self.last_step = None if last_step is None else whole_number("last_step", last_step, least=0)
        """The step to stop at; None with ``num_steps`` before the first session."""
        self.stops_at_step = self.last_step
        let_idle(self, StopAtStepHook)

    async def begin(self) -> None:
        require_global_step(self)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Compute the last step, once. Request a stop if the session is at it."""
        step = global_step_of(self, session)
        if self.last_step is None:
            assert self._num_steps is not None, "one of the two is given"
            self.last_step = self.stops_at_step = step + self._num_steps
        idle_until(self, self.last_step)
        if step >= self.last_step:
            coord.request_stop(reason=self._reason(step))

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        # An earlier hook may have waited for an update, or another replica may have made one.
        step = max(step_after(run_values), global_step_of(self, run_context.session))
        assert self.last_step is not None, "set in after_create_session"
        if step >= self.last_step:
            run_context.request_stop(self._reason(step))

    def _reason(self, step: int) -> str:
        return f"StopAtStepHook: step {step} reached the last step, {self.last_step}"


class NanLossDuringTrainingError(RuntimeError):
    """The loss became NaN. TF1: ``tf.train.NanLossDuringTrainingError``."""

    def __init__(self, message: str = "NaN loss during training.") -> None:
        super().__init__(message)


class NanTensorHook(SessionRunHook):
    """Stop when the loss is NaN. TF1: ``tf.train.NanTensorHook``.

    Its methods are called before those of other hooks. After a NaN this session saves no further
    checkpoint, so that the last good one stays the latest.

    Args:
        loss_tensor: a tensor of any shape; one NaN element is enough.
        fail_on_nan_loss: raise :class:`NanLossDuringTrainingError` from the run; False logs a warning
            and requests a stop.
        inf: also stop at infinity.

    Example::

        hooks = [NanTensorHook(loss)]
    """

    priority = GUARD

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True, *, inf: bool = False) -> None:
        self._loss_tensor = loss_tensor
        self._args: SessionRunArgs
        self._name: Any
        self._fail_on_nan_loss = fail_on_nan_loss
        self._inf = inf
        self._coord: Coordinator

    async def begin(self) -> None:
        tensor = named_tensor(self._loss_tensor)
        self._name = members_of(FetchMembers, tensor).name or tensor
        self._args = SessionRunArgs(tensor)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return self._args

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Check the loss.

        Raises:
            NanLossDuringTrainingError: it is NaN, and ``fail_on_nan_loss``.
        """
        loss = run_values.results
        if not self._diverged(loss):
            return
        message = f"Model diverged with loss = {'NaN' if np.isnan(loss).any() else loss}."
        at_step = "" if run_values.step is None else f" at global step {run_values.step}"
        where = f"in {self._name!r}{at_step}"
        veto_saving(self._coord, f"{message} {where}")
        if self._fail_on_nan_loss:
            logger.error(message)
            error = NanLossDuringTrainingError()
            error.add_note(f"asyncmon: {where}")
            raise error
        logger.warning(message)
        run_context.request_stop(f"{message} {where}")

    def _diverged(self, loss: Any) -> bool:
        if isinstance(loss, np.ndarray) and loss.ndim:
            return bool((~np.isfinite(loss) if self._inf else np.isnan(loss)).any())
        # NaN differs from itself, and is not less than any number
        return bool(not abs(loss) < math.inf if self._inf else loss != loss)


class StopRule(Protocol):
    """Decide after each evaluation whether to stop. Checkpoints have its ``state_dict``."""

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Return the reason for a stop, or None to continue."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that :meth:`state_dict` returned."""


class EarlyStoppingHook(SessionRunHook):
    """Request a stop when a rule returns a reason after an evaluation. Checkpoints have its state.

    Made by :func:`stop_if_no_decrease`, :func:`stop_if_no_increase`, :func:`stop_if_higher` and
    :func:`stop_if_lower`, or with a custom rule.

    Args:
        evaluations: the hook that evaluates. It must also be in the session's hooks.
        rule: the rule.

    Example::

        evaluation = EvalHook({"loss": loss}, lambda: test_feeds, every_steps=500)
        hooks = [evaluation, stop_if_no_decrease(evaluation, "loss", patience=3)]
    """

    def __init__(self, evaluations: Evaluations, rule: StopRule) -> None:
        self._evaluations = evaluations
        self._rule = rule
        self._initial_state = copy.deepcopy(rule.state_dict())
        self._coord: Coordinator | None = None
        self._reason: str | None = None
        evaluations.add_listener(self._on_evaluation)

    async def begin(self) -> None:
        """Reset the state. A restore loads that of the checkpoint."""
        self._rule.load_state_dict(self._initial_state)
        self._coord = self._reason = None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Keep the coordinator. Request a stop if the restored state has a reason.

        Raises:
            RuntimeError: the hook that evaluates is not in the session's hooks.
        """
        if not self._evaluations.is_open:
            raise RuntimeError(
                f"This hook listens to the evaluations of {self._evaluations.name!r}, and the "
                f"{type(self._evaluations).__name__} that makes them is not among the session's hooks, "
                "so that nothing would ever stop. Pass both of them."
            )
        self._coord = coord
        if self._reason is not None:
            coord.request_stop(reason=self._reason)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule, and the reason of a requested stop."""
        return {"rule": self._rule.state_dict(), "reason": self._reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of an earlier session."""
        self._rule.load_state_dict(state["rule"])
        self._reason = state["reason"]

    def _on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        reason = self._rule(step, metrics)
        if reason is not None and self._reason is None:
            self._reason = reason
            if self._coord is not None:
                self._coord.request_stop(reason=reason)


def stop_if_no_decrease(
    evaluations: Evaluations,
    metric_name: str,
    patience: int,
    min_steps: int = 0,
    *,
    min_delta: float = 0.0,
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric has not decreased for some evaluations.

    TF1: ``tf.estimator.experimental.stop_if_no_decrease_hook``, which counts steps instead.

    Args:
        evaluations: the hook that evaluates.
        metric_name: the name of the metric.
        patience: the number of consecutive evaluations without a new lowest value that stops.
        min_steps: evaluations at earlier steps do not stop.
        min_delta: the least decrease that counts.
    """
    return EarlyStoppingHook(evaluations, _NoProgress(metric_name, patience, min_steps, min_delta, -1))


def stop_if_no_increase(
    evaluations: Evaluations,
    metric_name: str,
    patience: int,
    min_steps: int = 0,
    *,
    min_delta: float = 0.0,
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric has not increased for some evaluations.

    TF1: ``tf.estimator.experimental.stop_if_no_increase_hook``. Arguments as in
    :func:`stop_if_no_decrease`.
    """
    return EarlyStoppingHook(evaluations, _NoProgress(metric_name, patience, min_steps, min_delta, 1))


def stop_if_higher(
    evaluations: Evaluations, metric_name: str, threshold: float, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric is higher than a threshold.

    TF1: ``tf.estimator.experimental.stop_if_higher_hook``.

    Args:
        evaluations: the hook that evaluates.
        metric_name: the name of the metric.
        threshold: the threshold.
        min_steps: evaluations at earlier steps do not stop.
    """
    return EarlyStoppingHook(evaluations, _Threshold(metric_name, threshold, min_steps, 1))


def stop_if_lower(
    evaluations: Evaluations, metric_name: str, threshold: float, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric is lower than a threshold.

    TF1: ``tf.estimator.experimental.stop_if_lower_hook``. Arguments as in :func:`stop_if_higher`.
    """
    return EarlyStoppingHook(evaluations, _Threshold(metric_name, threshold, min_steps, -1))


@dataclass
class _NoProgress:
    metric_name: str
    patience: int
    min_steps: int
    min_delta: float
    sign: int
    best: float = -math.inf
    """The best value of ``sign * metric``."""
    best_step: int | None = None
    without_progress: int = 0

    def __post_init__(self) -> None:
        self.patience = whole_number("patience", self.patience, least=1)

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        value = self.sign * _metric(metrics, self.metric_name)
        if value > self.best + self.min_delta:
            self.best, self.best_step, self.without_progress = value, step, 0
            return None
        self.without_progress += 1
        if self.without_progress < self.patience or step < self.min_steps:
            return None
        verb = "increase" if self.sign > 0 else "decrease"
        best = "no value yet" if self.best_step is None else f"{self.sign * self.best:g}"
        return (
            f"no {verb} of {self.metric_name!r} in {self.without_progress} evaluations up to step "
            f"{step}; the best was {best}, at step {self.best_step}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "best": self.best,
            "best_step": self.best_step,
            "without_progress": self.without_progress,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.best, self.best_step = state["best"], state["best_step"]
        self.without_progress = state["without_progress"]


@dataclass
class _Threshold:
    metric_name: str
    threshold: float
    min_steps: int
    sign: int

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        value = _metric(metrics, self.metric_name)
        if step < self.min_steps or not self.sign * (value - self.threshold) > 0:
            return None
        word = "higher" if self.sign > 0 else "lower"
        return f"{self.metric_name!r} = {value:g} at step {step}, {word} than {self.threshold:g}"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def _metric(metrics: Mapping[str, float], name: str) -> float:
    try:
        return metrics[name]
    except KeyError:
        raise KeyError(f"There is no metric {name!r}; the evaluation has {sorted(metrics)}.") from None
