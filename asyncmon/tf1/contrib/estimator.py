"""TF1: ``tf.contrib.estimator``: its hooks, with an evaluation in place of the estimator.

They are also those of ``tf.estimator.experimental``.
"""

from __future__ import annotations

from typing import Any

from asyncmon.hooks import EarlyStoppingHook, EvalHook, stop_if

__all__ = [
    "InMemoryEvaluatorHook", "stop_if_higher_hook", "stop_if_lower_hook", "stop_if_no_decrease_hook",
    "stop_if_no_increase_hook",
]  # fmt: skip


def InMemoryEvaluatorHook(  # TF1's name
    program: Any,
    metrics: Any,
    feeds: Any = None,
    steps: int | None = None,
    name: str = "eval",
    every_n_iter: int = 100,
) -> EvalHook:
    """Return a hook that evaluates another program with the state of this one. TF1: same name.

    It evaluates before the first step, every ``every_n_iter`` global steps and at a successful end.
    Training pauses during each evaluation. ``steps`` is the largest number of batches. See
    :class:`~asyncmon.hooks.EvalHook`.
    """
    return EvalHook(
        metrics, feeds, every_n_iter, program=program, batches=steps, name=name,
        concurrent=False, at_start=True, at_end=True,
    )  # fmt: skip


def stop_if_no_decrease_hook(
    evaluation: Any, metric_name: str, max_evaluations_without_decrease: int, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric has not decreased for some evaluations.

    TF1: same name, which counts steps. See :func:`~asyncmon.hooks.stop_if`.
    """
    return stop_if(
        evaluation, metric_name, no_decrease_in=max_evaluations_without_decrease, min_steps=min_steps
    )


def stop_if_no_increase_hook(
    evaluation: Any, metric_name: str, max_evaluations_without_increase: int, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric has not increased for some evaluations.

    TF1: same name, which counts steps. See :func:`~asyncmon.hooks.stop_if`.
    """
    return stop_if(
        evaluation, metric_name, no_increase_in=max_evaluations_without_increase, min_steps=min_steps
    )


def stop_if_higher_hook(
    evaluation: Any, metric_name: str, threshold: float, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric is higher than a threshold. TF1: same name."""
    return stop_if(evaluation, metric_name, above=threshold, min_steps=min_steps)


def stop_if_lower_hook(
    evaluation: Any, metric_name: str, threshold: float, min_steps: int = 0
) -> EarlyStoppingHook:
    """Return a hook that stops when a metric is lower than a threshold. TF1: same name."""
    return stop_if(evaluation, metric_name, below=threshold, min_steps=min_steps)
