"""Hooks that stop training: at a step, at NaN, or when evaluations no longer improve."""

from __future__ import annotations

import copy
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.hooks.eval_hook import Evaluations
from asyncmon.hooks.hook_support import named_tensor, request_stop, veto_saving, whole_number
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
        num_steps: the number of steps from the first step of each session that the hook is used in; a
            recovery does not reset it. With 0 or less no step is done.
        last_step: the step to stop at.

    Raises:
        ValueError: neither or both are given.
        TypeError: the value is not a whole number.

    Example::

        hooks = [StopAtStepHook(last_step=10_000)]
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = None if num_steps is None else whole_number("num_steps", num_steps)
        self.last_step = None if last_step is None else whole_number("last_step", last_step)
        """The step to stop at; None with ``num_steps`` before a session."""
        self.stops_at_step = self.last_step
        let_idle(self, StopAtStepHook)

    async def begin(self) -> None:
        require_global_step(self)
        if self._num_steps is not None:
            self.last_step = self.stops_at_step = None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Compute the last step, once a session. Request a stop if the session is at it."""
        step = global_step_of(self, session)
        if self.last_step is None:
            assert self._num_steps is not None, "one of the two is given"
            self.last_step = self.stops_at_step = step + self._num_steps
        idle_until(self, self.last_step)
        if step >= self.last_step:
            request_stop(coord, self, self._reason(step))

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

    Made by :func:`stop_if`, or with a custom rule. With other arguments of :func:`stop_if`, a restored
    state is judged again.

    Args:
        evaluation: the hook that evaluates. It must also be in the session's hooks.
        rule: the rule.

    Example::

        evaluation = EvalHook({"loss": loss}, lambda: test_feeds, every_steps=500)
        hooks = [evaluation, stop_if(evaluation, "loss", no_decrease_in=3)]
    """

    def __init__(self, evaluation: Evaluations, rule: StopRule) -> None:
        self._evaluation = evaluation
        self._rule = rule
        self._initial_state = copy.deepcopy(rule.state_dict())
        self._coord: Coordinator | None = None
        self._reason: str | None = None
        self._last: dict[str, Any] | None = None  # the last evaluation

    async def begin(self) -> None:
        """Reset the state, which a restore may load, and listen to the evaluations."""
        self._rule.load_state_dict(self._initial_state)
        self._coord = self._reason = self._last = None
        # Before after_create_session: an evaluation of the initial state may be due in that of an
        # earlier hook.
        self._evaluation.add_listener(self._on_evaluation)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Keep the coordinator. Request a stop if the restored state has a reason.

        Raises:
            RuntimeError: the hook that evaluates is not in the session's hooks.
        """
        if not self._evaluation.is_open:
            raise RuntimeError(
                f"This hook listens to the evaluations of {self._evaluation.name!r}, and the "
                f"{type(self._evaluation).__name__} that makes them is not among the session's hooks, "
                "so that nothing would ever stop. Pass both of them."
            )
        self._coord = coord
        if self._reason is not None:
            request_stop(coord, self, self._reason)

    async def cleanup(self, error: BaseException | None) -> None:
        """Listen no more."""
        self._evaluation.remove_listener(self._on_evaluation)

    def state_dict(self) -> dict[str, Any]:
        """Return the state and the arguments of the rule, its verdict, and the last evaluation."""
        arguments = self._rule.arguments() if isinstance(self._rule, _Rule) else None
        return {
            "rule": self._rule.state_dict(), "arguments": arguments,
            "reason": self._reason, "last": self._last,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of an earlier session."""
        rule, self._reason, self._last = self._rule, state["reason"], state["last"]
        if not isinstance(rule, _Rule):
            rule.load_state_dict(state["rule"])
            return
        if rule.continues(state["arguments"]):
            rule.load_state_dict(state["rule"])
        if state["arguments"] != rule.arguments():  # the verdict is that of another rule
            last, self._reason = self._last, None
            if last is not None and rule.metric in last["metrics"]:
                self._reason = rule.judge(last["step"], last["metrics"])

    def _on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        reason, self._last = self._rule(step, metrics), {"step": step, "metrics": dict(metrics)}
        if reason is not None and self._reason is None:
            self._reason = reason
            if self._coord is not None:
                request_stop(self._coord, self, reason)


def stop_if(
    evaluation: Evaluations,
    metric: str,
    *,
    no_decrease_in: int | None = None,
    no_increase_in: int | None = None,
    above: float | None = None,
    below: float | None = None,
    min_delta: float = 0.0,
    min_steps: int = 0,
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric meets a rule. Exactly one rule is given.

    ::

        stop_if(evaluation, "loss", no_decrease_in=3)
        stop_if(evaluation, "accuracy", above=0.99, min_steps=1000)

    Args:
        evaluation: the hook that evaluates. It must also be in the session's hooks.
        metric: the name of the metric.
        no_decrease_in: stop after this number of consecutive evaluations without a new lowest value.
        no_increase_in: stop after this number of consecutive evaluations without a new highest value.
        above: stop when the metric is higher than this.
        below: stop when the metric is lower than this.
        min_delta: the least decrease or increase that counts.
        min_steps: evaluations at earlier steps do not stop.

    Raises:
        ValueError: not exactly one rule is given, the number of evaluations is not positive, or
            ``min_delta`` is given with ``above`` or ``below``.
    """
    rules = {
        "no_decrease_in": no_decrease_in, "no_increase_in": no_increase_in,
        "above": above, "below": below,
    }  # fmt: skip
    given = {name: value for name, value in rules.items() if value is not None}
    if len(given) != 1:
        raise ValueError(f"stop_if() takes exactly one of {', '.join(rules)}, got {given!r}.")
    ((name, value),) = given.items()
    sign = 1 if name in ("no_increase_in", "above") else -1
    if name in ("above", "below"):
        if min_delta:
            raise ValueError(f"min_delta={min_delta!r} has no meaning with {name}=: leave it out.")
        return EarlyStoppingHook(evaluation, _Threshold(metric, value, min_steps, sign))
    count = whole_number(name, value, least=1)
    return EarlyStoppingHook(evaluation, _NoProgress(metric, count, min_steps, sign, min_delta))


@dataclass
class _Rule(ABC):
    """A rule of :func:`stop_if`, with its arguments and without a state."""

    metric: str
    limit: float
    """The number of evaluations without progress, or the threshold."""
    min_steps: int
    sign: int
    min_delta: float = 0.0

    def arguments(self) -> dict[str, Any]:
        """Return the arguments as JSON values."""
        names = "metric", "limit", "min_steps", "sign", "min_delta"
        return {"rule": type(self).__name__, **{name: getattr(self, name) for name in names}}

    def continues(self, arguments: Mapping[str, Any] | None) -> bool:
        """Return whether the state of a rule with these arguments is one of this rule."""
        own = self.arguments()
        return arguments is not None and all(
            arguments[name] == own[name] for name in ("rule", "metric", "sign")
        )

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        return self.judge(step, metrics)

    @abstractmethod
    def judge(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Return the reason for a stop after an evaluation, which is counted already."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Return the state of the rule."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that :meth:`state_dict` returned."""


@dataclass
class _NoProgress(_Rule):
    best: float = -math.inf
    """The best value of ``sign * metric``."""
    best_step: int | None = None
    without_progress: int = 0

    def __call__(self, step: int, metrics: Mapping[str, float]) -> str | None:
        value = self.sign * _metric(metrics, self.metric)
        if value > self.best + self.min_delta:
            self.best, self.best_step, self.without_progress = value, step, 0
        else:
            self.without_progress += 1
        return self.judge(step, metrics)

    def judge(self, step: int, metrics: Mapping[str, float]) -> str | None:
        if self.without_progress < self.limit or step < self.min_steps:
            return None
        verb = "increase" if self.sign > 0 else "decrease"
        best = "no value yet" if self.best_step is None else f"{self.sign * self.best:g}"
        return (
            f"no {verb} of {self.metric!r} in {self.without_progress} evaluations up to step "
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
class _Threshold(_Rule):
    def judge(self, step: int, metrics: Mapping[str, float]) -> str | None:
        value = _metric(metrics, self.metric)
        if step < self.min_steps or not self.sign * (value - self.limit) > 0:
            return None
        word = "above" if self.sign > 0 else "below"
        return f"{self.metric!r} = {value:g} at step {step}, {word} {self.limit:g}"

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def _metric(metrics: Mapping[str, float], name: str) -> float:
    try:
        return metrics[name]
    except KeyError:
        raise KeyError(f"There is no metric {name!r}; the evaluation has {sorted(metrics)}.") from None
