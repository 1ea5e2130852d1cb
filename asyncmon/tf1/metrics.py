"""TF1: ``tf.metrics``: metrics over many batches, accumulated in local variables.

::

    accuracy, update = tf.metrics.accuracy(labels, predictions)
    await sess.run(tf.local_variables_initializer())
    async for batch in batches:
        await sess.run(update, {images: batch})
    print(await sess.run(accuracy))

Each function returns the value over all batches so far, and an update op or tensor that adds a batch.
In a run that fetches both, the value does not include the new batch.

Common arguments:

* ``weights``: a scalar, or a tensor of the rank of the values, with sizes equal to theirs or 1.
* ``metrics_collections``, ``updates_collections``: collections for the value, and for the update.
* ``name``: the scope of the ops and of the variables. The variables are initially zero and in
  ``GraphKeys.LOCAL_VARIABLES`` and ``GraphKeys.METRIC_VARIABLES``.

Incompatible shapes raise ValueError, or InvalidArgumentError in the run if the static shapes are
unknown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from asyncmon import graph as tf
from asyncmon.tf1.signatures import REQUIRED as _REQUIRED
from asyncmon.tf1.signatures import function_of
from asyncmon.tf1.weighting import (
    broadcast_weights,
    checked_weights,
    confusion_matrix,
    squeezed,
    weights_of_rank,
)

__all__ = [
    "accuracy", "auc", "false_negatives", "false_negatives_at_thresholds", "false_positives",
    "false_positives_at_thresholds", "mean", "mean_absolute_error", "mean_iou",
    "mean_squared_error", "precision", "precision_at_thresholds", "recall", "recall_at_thresholds",
    "root_mean_squared_error", "true_negatives", "true_negatives_at_thresholds", "true_positives",
    "true_positives_at_thresholds",
]  # fmt: skip

_log = logging.getLogger("asyncmon")

Metric = tuple[Any, Any]
"""The value and the update."""


def _of_labels(
    name: str, doc: str, compute: Callable[..., Metric], *required: str
) -> Callable[..., Metric]:
    """Return the metric of labels, predictions and other arguments that ``compute`` returns."""
    first = dict.fromkeys(("labels", "predictions", *required), _REQUIRED)
    rest = dict.fromkeys(("weights", "metrics_collections", "updates_collections", "name"))
    return function_of(name, f"{doc} TF1: same name.", {**first, **rest}, compute)


def _variable(shape: Any, name: str, dtype: tf.DType = tf.float32) -> tf.Variable:
    keys = [tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES]
    return tf.Variable(lambda: tf.zeros(shape, dtype), False, keys, name=name)


def _fitted(predictions: Any, labels: Any, weights: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Return the three with compatible ranks: a last dimension of size 1 is dropped or added."""
    y, x = squeezed(labels, predictions)
    x.shape.assert_is_compatible_with(y.shape)
    return x, y, None if weights is None else weights_of_rank(weights, x)


def _ratio(part: Any, whole: Any, name: str | None = None) -> tf.Tensor:
    """Return a quotient, or 0 if the divisor is not positive."""
    return tf.div_no_nan(part, tf.maximum(whole, 0), name=name)


def _published(value: Any, update: Any, metrics_collections: Any, updates_collections: Any) -> Metric:
    """Add both to their collections and return them."""
    if metrics_collections:
        tf.add_to_collections(metrics_collections, value)
    if updates_collections:
        tf.add_to_collections(updates_collections, update)
    return value, update


def _of_both(compute: Callable[..., tf.Tensor], states: Any, updates: Any, **keys: Any) -> Metric:
    """Return ``compute(*states, name=...)`` for the variables, and for their updates."""
    return _published(compute(*states, name="value"), compute(*updates, name="update_op"), **keys)


# --- means ----------------------------------------------------------------------------------------
def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the weighted mean of all values, a float32; initially 0. TF1: same name."""
    with tf.variable_scope(name, "mean"):
        x = tf.cast(values, tf.float32)
        total, count = _variable([], "total"), _variable([], "count")
        if weights is None:
            number = tf.cast(tf.size(x), tf.float32)
        else:
            w = broadcast_weights(tf.cast(weights_of_rank(weights, x), tf.float32), x)
            x, number = tf.multiply(x, w), tf.reduce_sum(w)
        updates = [total.assign_add(tf.reduce_sum(x)), count.assign_add(number)]
        states = [total.value(), count.value()]
        keys = {"metrics_collections": metrics_collections, "updates_collections": updates_collections}
        return _of_both(_ratio, states, updates, **keys)


def _mean_of(own: str, compute: Callable[..., tf.Tensor], doc: str) -> Callable[..., Metric]:
    """Return the metric that is the mean of ``compute(predictions, labels)``."""

    def metric(labels: Any, predictions: Any, weights: Any, name: Any, **keys: Any) -> Metric:
        x, y, w = _fitted(predictions, labels, weights)
        return mean(compute(x, y), w, name=name or own, **keys)

    return _of_labels(own, doc, metric)


accuracy = _mean_of(
    "accuracy",
    lambda x, y: tf.cast(tf.equal(tf.cast(x, y.dtype), y), tf.float32),
    "Return how often predictions, cast to the dtype of labels, equal them.",
)
mean_absolute_error = _mean_of(
    "mean_absolute_error", lambda x, y: tf.abs(x - y), "Return the mean of ``|predictions - labels|``."
)
mean_squared_error = _mean_of(
    "mean_squared_error",
    lambda x, y: tf.squared_difference(y, x),
    "Return the mean of ``(labels - predictions) ** 2``.",
)


def _root(labels: Any, predictions: Any, weights: Any, name: Any, **keys: Any) -> Metric:
    pair = mean_squared_error(labels, predictions, weights, name=name or "root_mean_squared_error")
    return _published(*map(tf.sqrt, pair), **keys)


root_mean_squared_error = _of_labels(
    "root_mean_squared_error", "Return the root of the mean of ``(labels - predictions) ** 2``.", _root
)


# --- classes --------------------------------------------------------------------------------------
# fmt: off
def _mean_iou(
    labels: Any, predictions: Any, num_classes: int, weights: Any, name: Any, **keys: Any
) -> Metric:
    with tf.variable_scope(name, "mean_iou"):
        y, x = (tf.reshape(tf.cast(value, tf.int64), [-1]) for value in (labels, predictions))
        w = None if weights is None else tf.reshape(weights, [-1])
        total = _variable([num_classes] * 2, "total_confusion_matrix", tf.float64)
        update = total.assign_add(confusion_matrix(y, x, num_classes, tf.float64, weights=w))
        matrix = tf.cast(total, tf.float32)
        hits = tf.reduce_sum(matrix * tf.eye(num_classes), 0)
        union = tf.reduce_sum(matrix, 0) + tf.reduce_sum(matrix, 1) - hits
        found = tf.reduce_sum(tf.cast(tf.not_equal(union, 0), tf.float32))
        return _published(_ratio(tf.reduce_sum(_ratio(hits, union)), found), update, **keys)


mean_iou = _of_labels("mean_iou", "Return the mean over classes of intersection divided by union; the "
    "update is the confusion matrix.", _mean_iou, "num_classes")
# fmt: on


# --- counts of decisions --------------------------------------------------------------------------
def _counting(own: str, label: bool, prediction: bool) -> Callable[..., Metric]:
    """Return the metric that counts pairs with this label and this prediction."""

    def count(labels: Any, predictions: Any, weights: Any, name: Any, **keys: Any) -> Metric:
        with tf.variable_scope(name, own):
            x, y, w = _fitted(tf.cast(predictions, tf.bool), tf.cast(labels, tf.bool), weights)
            x, y = (v if is_true else tf.logical_not(v) for v, is_true in ((x, prediction), (y, label)))
            found = tf.cast(tf.logical_and(y, x), tf.float32)
            if w is not None:
                found = tf.multiply(found, tf.cast(checked_weights(w, found), tf.float32))
            total = _variable([], "count")
            update = total.assign_add(tf.reduce_sum(found))
            return _published(tf.identity(total), update, **keys)

    doc = f"Return how many predictions are {prediction} of labels that are {label}, cast to bool."
    return _of_labels(own, doc, count)


true_positives = _counting("true_positives", label=True, prediction=True)
true_negatives = _counting("true_negatives", label=False, prediction=False)
false_positives = _counting("false_positives", label=False, prediction=True)
false_negatives = _counting("false_negatives", label=True, prediction=False)


def _share_of(own: str, count: Callable[..., Metric], doc: str) -> Callable[..., Metric]:
    """Return the metric: true positives divided by the sum of them and another count."""

    def share(labels: Any, predictions: Any, weights: Any, name: Any, **keys: Any) -> Metric:
        with tf.variable_scope(name, own):
            given = labels, predictions, weights
            states, updates = zip(true_positives(*given), count(*given), strict=True)
            return _of_both(
                lambda hits, rest, name: _ratio(hits, hits + rest, name), states, updates, **keys
            )

    return _of_labels(own, f"Return which part of the positive {doc}, 0 without any.", share)


precision = _share_of("precision", false_positives, "predictions is right")
recall = _share_of("recall", false_negatives, "labels is found")


# --- the area under a curve -----------------------------------------------------------------------
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
    """Return the approximate area under the ROC or PR curve of predictions in [0, 1].

    TF1: same name. The run raises InvalidArgumentError for other predictions.

    Args:
        num_thresholds: the number of thresholds, evenly spaced from 0 to 1.
        curve: "ROC" (recall over the rate of false positives) or "PR" (precision over recall).
        summation_method: "trapezoidal", "careful_interpolation" (the right one for "PR"), "minoring" or
            "majoring" (the lower, or upper, step function).
        thresholds: the thresholds, between 0 and 1, instead of ``num_thresholds``.

    Raises:
        ValueError: an unknown curve or method.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"Curve must be either ROC or PR. Curve {curve} is unknown.")
    careful = summation_method == "careful_interpolation"
    if not careful and summation_method not in _HEIGHTS:
        raise ValueError(
            f"Invalid summation_method: {summation_method}; it should be 'trapezoidal', "
            "'careful_interpolation', 'minoring', or 'majoring'."
        )
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
        height = _HEIGHTS["trapezoidal" if careful else summation_method](y[:-1], y[1:])
        return tf.reduce_sum(tf.multiply(x[:-1] - x[1:], height), name=name)

    with tf.variable_scope(name, "auc"):
        count = num_thresholds - 1
        inner = [i / count for i in range(1, count)] if thresholds is None else sorted(thresholds)
        states, updates = _counts(labels, predictions, [-1e-7, *inner, 1 + 1e-7], weights)
        keys = {"metrics_collections": metrics_collections, "updates_collections": updates_collections}
        return _of_both(area, states, updates, **keys)


_HEIGHTS: dict[str, Callable[[Any, Any], tf.Tensor]] = {
    "trapezoidal": lambda a, b: (a + b) / 2.0,
    "minoring": tf.minimum,
    "majoring": tf.maximum,
}


def _counts(labels: Any, predictions: Any, edges: list[float], weights: Any) -> tuple[Any, Any]:
    """Return the variables with the four counts at each threshold, and their updates."""
    x = tf.convert_to_tensor(predictions)
    inside = tf.reduce_all(tf.logical_and(x >= tf.cast(0, x.dtype), x <= tf.cast(1, x.dtype)))
    with tf.control_dependencies([tf.Assert(inside, ["predictions must be in [0, 1]", x])]):
        x = tf.cast(tf.identity(x), tf.float32)
    x, y, w = _fitted(x, tf.cast(labels, tf.bool), weights)
    positive = tf.reshape(tf.cast(y, tf.float32), [-1])
    each = tf.stack([positive, 1 - positive], axis=1)  # the label and its inverse
    if w is not None:
        each = each * tf.reshape(broadcast_weights(tf.cast(w, tf.float32), x), [-1, 1])
    above = tf.greater(tf.reshape(x, [1, -1]), tf.expand_dims(tf.constant(edges, tf.float32), 1))
    above = tf.cast(above, tf.float32)
    tp, fp = tf.unstack(tf.matmul(above, each), 2, 1)
    fn, tn = tf.unstack(tf.matmul(1 - above, each), 2, 1)
    names = ("true_positives", "false_negatives", "true_negatives", "false_positives")
    variables = [_variable([len(edges)], name) for name in names]
    updates = [v.assign_add(sums) for v, sums in zip(variables, (tp, fn, tn, fp), strict=True)]
    return [v.value() for v in variables], updates


# --- counts at thresholds -------------------------------------------------------------------------
def _at_thresholds(what: str, compute: Callable[..., Any]) -> Callable[..., Metric]:
    """Return the metric that ``compute`` returns for the counts of :func:`_counts`."""

    def metric(
        labels: Any, predictions: Any, thresholds: Any, weights: Any, name: Any, **keys: Any
    ) -> Metric:
        with tf.variable_scope(name, f"{what}_at_thresholds"):
            counts = _counts(labels, predictions, list(thresholds), weights)
            return _published(*(compute(*four) for four in counts), **keys)

    doc = f"Return the {what.replace('_', ' ')} for each threshold of predictions in [0, 1]."
    return _of_labels(f"{what}_at_thresholds", doc, metric, "thresholds")


true_positives_at_thresholds = _at_thresholds("true_positives", lambda tp, *_: tp)
false_negatives_at_thresholds = _at_thresholds("false_negatives", lambda _, fn, *__: fn)
true_negatives_at_thresholds = _at_thresholds("true_negatives", lambda *four: four[2])
false_positives_at_thresholds = _at_thresholds("false_positives", lambda *four: four[3])
precision_at_thresholds = _at_thresholds("precision", lambda tp, fn, tn, fp: tp / (tp + fp + 1e-7))
recall_at_thresholds = _at_thresholds("recall", lambda tp, fn, *_: tp / (tp + fn + 1e-7))


def _interpolated(tp: Any, fp: Any, fn: Any) -> tf.Tensor:
    """Return the area under the PR curve, with true positives interpolated linearly."""
    hits, positives = tp[:-1] - tp[1:], tp + fp
    more, fewer = positives[:-1], positives[1:]
    slope = _ratio(hits, more - fewer)
    intercept = tp[1:] - tf.multiply(slope, fewer)
    some = tf.logical_and(more > 0, fewer > 0)
    growth = tf.where(some, _ratio(more, fewer), tf.ones_like(fewer))
    parts = slope * (hits + intercept * tf.log(growth))
    return tf.reduce_sum(_ratio(parts, tp[1:] + fn[1:]), name="interpolate_pr_auc")
