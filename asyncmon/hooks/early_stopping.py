"""Stop when evaluations no longer improve."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from asyncmon.hooks.eval_hook import Evaluations
from asyncmon.hooks.hook_support import whole_number
from asyncmon.runtime import Coordinator, Session, SessionRunHook


class StopRule(Protocol):
    """Decides after each evaluation. ``state_dict`` and ``load_state_dict`` carry it over restarts."""

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Return why to stop, or None to go on."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state that :meth:`state_dict` returned."""


class EarlyStoppingHook(SessionRunHook):
    """Request a stop when a rule decides so after an evaluation. Checkpoints have its state.

    Made by :func:`stop_if_no_decrease`, :func:`stop_if_no_increase`, :func:`stop_if_higher` and
    :func:`stop_if_lower`, or with a rule of one's own.

    Args:
        evaluations: the hook that evaluates; it has to be among the session's hooks, too.
        rule: decides.

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
        """Forget an earlier session. A restore brings back the state in the checkpoint."""
        self._rule.load_state_dict(self._initial_state)
        self._coord = self._reason = None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Keep the coordinator, for the stop; request one that was reached before the restore.

        Raises:
            RuntimeError: the hook that evaluates is not among the session's hooks.
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
        """Return the state of the rule, and the reason of the stop if there was one."""
        return {"rule": self._rule.state_dict(), "reason": self._reason}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state of an earlier run."""
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
    """Return a hook that stops when a metric has not decreased in some evaluations.

    TF1: ``tf.estimator.experimental.stop_if_no_decrease_hook``, with patience by evaluations.

    Args:
        evaluations: the hook that evaluates.
        metric_name: which of its metrics.
        patience: stop after this many evaluations in a row without a new lowest value.
        min_steps: evaluations at earlier steps do not stop.
        min_delta: how much lower than the lowest one a value has to be.
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
    """Return a hook that stops when a metric has not increased in some evaluations.

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
        metric_name: which of its metrics.
        threshold: the value to exceed.
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
    """Of the metric times the sign: higher is better."""
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
        key = "without_progress" if "without_progress" in state else "in_vain"  # of earlier versions
        self.without_progress = state[key]


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
