"""Metrics of predictions, from 0 to 1, that are positive above a threshold: many thresholds at once."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from asyncmon import graph as tf
from asyncmon.tf1.metrics.parts import Metric, fitted, metric_variable, of_both, published, ratio
from asyncmon.tf1.weighting import broadcast_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_VARIABLES = {
    "tp": "true_positives",
    "fn": "false_negatives",
    "tn": "true_negatives",
    "fp": "false_positives",
}
_ALL = ("tp", "fn", "tn", "fp")
_log = logging.getLogger("asyncmon")


def _counts(
    labels: Any,
    predictions: Any,
    thresholds: Sequence[float],
    weights: Any,
    which: Sequence[str] = _ALL,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Return the counts so far at each threshold, as the states and the updates of variables."""
    x = tf.convert_to_tensor(predictions)
    inside = tf.reduce_all(tf.logical_and(x >= tf.cast(0, x.dtype), x <= tf.cast(1, x.dtype)))
    with tf.control_dependencies([tf.Assert(inside, ["predictions must be in [0, 1]", x])]):
        x = tf.cast(tf.identity(x), tf.float32)
    x, y, w = fitted(x, tf.cast(labels, tf.bool), weights)
    positive = tf.reshape(tf.cast(y, tf.float32), [-1])
    each = tf.stack([positive, 1 - positive], axis=1)  # what an example counts, by its label
    if w is not None:
        spread = broadcast_weights(tf.cast(w, tf.float32), x)
        each = each * tf.reshape(spread, [-1, 1])
    edges = tf.expand_dims(tf.constant(list(thresholds), tf.float32), 1)
    above = tf.cast(tf.greater(tf.reshape(x, [1, -1]), edges), tf.float32)
    sums = {}
    if "tp" in which or "fp" in which:
        sums["tp"], sums["fp"] = tf.unstack(tf.matmul(above, each), 2, 1)
    if "fn" in which or "tn" in which:
        sums["fn"], sums["tn"] = tf.unstack(tf.matmul(1 - above, each), 2, 1)
    variables = {key: metric_variable([len(thresholds)], _VARIABLES[key]) for key in which}
    updates = [variables[key].assign_add(sums[key]) for key in which]
    return [v.value() for v in variables.values()], updates


class CountAtThresholds(Protocol):
    """The type of the functions that count at thresholds."""

    def __call__(
        self,
        labels: Any,
        predictions: Any,
        thresholds: Sequence[float],
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric: ...


def _at_thresholds(
    name: str, scope: str, which: Sequence[str], compute: Callable[..., tf.Tensor] | None, doc: str
) -> CountAtThresholds:
    """Return the function that computes a vector of some counts, or returns the one count."""

    def metric(
        labels: Any,
        predictions: Any,
        thresholds: Sequence[float],
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric:
        with tf.variable_scope(name, scope):
            states, updates = _counts(labels, predictions, thresholds, weights, which)
            if compute is None:
                value = tf.identity(states[0])
                return published(value, updates[0], metrics_collections, updates_collections)
            return of_both(compute, states, updates, metrics_collections, updates_collections)

    metric.__name__ = metric.__qualname__ = name
    metric.__doc__ = f"{doc}, for each threshold, a float32 vector. TF1: same name."
    return metric


def _share(label: str) -> Callable[..., tf.Tensor]:
    def share(part: tf.Tensor, rest: tf.Tensor, name: str) -> tf.Tensor:
        return tf.divide(part, 1e-7 + part + rest, name=f"{label}_{name}")

    return share


# fmt: off
true_positives_at_thresholds = _at_thresholds("true_positives_at_thresholds", "true_positives",
    ["tp"], None, "Return how many true labels are predicted")
true_negatives_at_thresholds = _at_thresholds("true_negatives_at_thresholds", "true_negatives",
    ["tn"], None, "Return how many false labels are not predicted")
false_positives_at_thresholds = _at_thresholds("false_positives_at_thresholds", "false_positives",
    ["fp"], None, "Return how many false labels are predicted")
false_negatives_at_thresholds = _at_thresholds("false_negatives_at_thresholds", "false_negatives",
    ["fn"], None, "Return how many true labels are not predicted")
precision_at_thresholds = _at_thresholds("precision_at_thresholds", "precision_at_thresholds",
    ["tp", "fp"], _share("precision"), "Return which part of the positive predictions is right")
recall_at_thresholds = _at_thresholds("recall_at_thresholds", "recall_at_thresholds",
    ["tp", "fn"], _share("recall"), "Return which part of the positive labels is found")
# fmt: on


def _spread(count: int, inner: Sequence[float] | None = None) -> list[float]:
    """Return thresholds from just below 0 to just above 1."""
    if inner is None:
        inner = [(i + 1) / (count - 1) for i in range(count - 2)]
    return [0.0 - 1e-7, *inner, 1.0 + 1e-7]


def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> Metric:
    """Return the area under a curve, approximated at thresholds. TF1: same name.

    Args:
        num_thresholds: how many, evenly from 0 to 1.
        curve: "ROC" (recall over the rate of false positives) or "PR" (precision over recall).
        summation_method: "trapezoidal", "careful_interpolation" (the right one for "PR"), "minoring" or
            "majoring" (the lower, or upper, step function).
        thresholds: numbers between 0 and 1 in place of ``num_thresholds``.

    Raises:
        ValueError: another curve or method.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"Curve must be either ROC or PR. Curve {curve} is unknown.")
    if summation_method not in ("trapezoidal", "careful_interpolation", *_STEPS):
        raise ValueError(
            f"Invalid summation_method: {summation_method}; it should be 'trapezoidal', "
            "'careful_interpolation', 'minoring', or 'majoring'."
        )
    careful = summation_method == "careful_interpolation"
    if curve == "PR" and summation_method == "trapezoidal":
        _log.warning(
            "Trapezoidal rule is known to produce incorrect PR-AUCs; "
            'please switch to "careful_interpolation" instead.'
        )

    def area(tp: Any, fn: Any, tn: Any, fp: Any, name: str) -> tf.Tensor:
        if curve == "PR" and careful:
            return _interpolated(tp, fp, fn)
        recall = tf.divide(tp + 1e-6, tp + fn + 1e-6)
        if curve == "ROC":
            x, y = tf.divide(fp, fp + tn + 1e-6), recall
        else:
            x, y = recall, tf.divide(tp + 1e-6, tp + fp + 1e-6)
        height = _STEPS.get(summation_method, _middle)(y[:-1], y[1:])
        return tf.reduce_sum(tf.multiply(x[:-1] - x[1:], height), name=name)

    with tf.variable_scope(name, "auc"):
        edges = _spread(num_thresholds, None if thresholds is None else sorted(thresholds))
        states, updates = _counts(labels, predictions, edges, weights)
        return of_both(area, states, updates, metrics_collections, updates_collections)


def _middle(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return (a + b) / 2.0


_STEPS: dict[str, Callable[[Any, Any], tf.Tensor]] = {"minoring": tf.minimum, "majoring": tf.maximum}


def _interpolated(tp: Any, fp: Any, fn: Any) -> tf.Tensor:
    """Return the area under precision over recall, true positives linear in all positives."""
    hits, positives = tp[:-1] - tp[1:], tp + fp
    more, fewer = positives[:-1], positives[1:]
    slope = ratio(hits, more - fewer)
    intercept = tp[1:] - tf.multiply(slope, fewer)
    some = tf.logical_and(more > 0, fewer > 0)
    growth = tf.where(some, ratio(more, fewer), tf.ones_like(fewer))
    parts = slope * (hits + intercept * tf.log(growth))
    increments = ratio(parts, tp[1:] + fn[1:])
    return tf.reduce_sum(increments, name="interpolate_pr_auc")


def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the recall at the threshold where the specificity is nearest to a number in [0, 1].

    TF1: same name.
    """
    _check_share("specificity", specificity)

    def at_nearest(tp: Any, fn: Any, tn: Any, fp: Any, name: str) -> tf.Tensor:
        at = tf.argmin(tf.abs(tf.divide(tn, tn + fp + 1e-7) - specificity), 0)
        found, lost = tf.gather(tp, at), tf.gather(fn, at)
        return tf.divide(found, found + lost + 1e-7, name=name)

    with tf.variable_scope(name, "sensitivity_at_specificity"):
        states, updates = _counts(labels, predictions, _spread(num_thresholds), weights)
        return of_both(at_nearest, states, updates, metrics_collections, updates_collections)


def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the specificity at the greatest threshold where the recall is nearest to a number.

    TF1: same name.
    """
    _check_share("sensitivity", sensitivity)

    def at_nearest(tp: Any, fn: Any, tn: Any, fp: Any, name: str) -> tf.Tensor:
        distance = tf.abs(tf.divide(tp, tp + fn + 1e-7) - sensitivity)
        nearest = tf.cast(tf.equal(distance, tf.reduce_min(distance)), tf.int64)
        at = tf.argmax(tf.cumsum(nearest), 0)
        kept, wrong = tf.gather(tn, at), tf.gather(fp, at)
        return tf.divide(kept, kept + wrong + 1e-7, name=name)

    with tf.variable_scope(name, "specificity_at_sensitivity"):
        edges = [*_spread(num_thresholds)[:-1], 1.0 - 1e-7]
        states, updates = _counts(labels, predictions, edges, weights)
        return of_both(at_nearest, states, updates, metrics_collections, updates_collections)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be in the range [0, 1]. Currently, `{name}` got {value}.")
