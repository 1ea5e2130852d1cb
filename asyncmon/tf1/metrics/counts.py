"""Counts of right and wrong decisions, precision and recall."""

from __future__ import annotations

from typing import Any

from asyncmon import graph as tf
from asyncmon.tf1.metrics.parts import (
    LabelMetric,
    Metric,
    fitted,
    metric_variable,
    of_both,
    of_labels,
    published,
)
from asyncmon.tf1.weighting import checked_weights


def _counting(name: str, label: bool, prediction: bool) -> LabelMetric:
    """Return the function that counts the labels and predictions of these values."""

    def count(labels: Any, predictions: Any, weights: Any, scope: str | None, *keys: Any) -> Metric:
        with tf.variable_scope(scope, name):
            x, y, w = fitted(tf.cast(predictions, tf.bool), tf.cast(labels, tf.bool), weights)
            x, y = (v if is_true else tf.logical_not(v) for v, is_true in ((x, prediction), (y, label)))
            found = tf.cast(tf.logical_and(y, x), tf.float32)
            if w is not None:
                found = tf.multiply(found, tf.cast(checked_weights(w, found), tf.float32))
            total = metric_variable([], "count")
            update = total.assign_add(tf.reduce_sum(found))
            return published(tf.identity(total), update, *keys)

    doc = (
        f"Return how many predictions are {prediction} of labels that are {label}, cast to bool; a "
        "float32, the sum of the weights if there are any."
    )
    return of_labels(name, count, doc)


true_positives = _counting("true_positives", label=True, prediction=True)
true_negatives = _counting("true_negatives", label=False, prediction=False)
false_positives = _counting("false_positives", label=False, prediction=True)
false_negatives = _counting("false_negatives", label=True, prediction=False)


def _share(part: tf.Tensor, rest: tf.Tensor, name: str) -> tf.Tensor:
    whole = part + rest
    zero = tf.zeros_like(whole)
    return tf.where(tf.greater(whole, 0), tf.divide(part, whole), zero, name=name)


def _share_of(name: str, count: LabelMetric, doc: str) -> LabelMetric:
    """Return the function that divides the true positives by themselves and another count."""

    def share(labels: Any, predictions: Any, weights: Any, scope: str | None, *keys: Any) -> Metric:
        with tf.variable_scope(scope, name):
            x, y, w = fitted(tf.cast(predictions, tf.bool), tf.cast(labels, tf.bool), weights)
            states, updates = zip(true_positives(y, x, w), count(y, x, w), strict=True)
            return of_both(_share, states, updates, *keys)

    return of_labels(name, share, f"Return which part of the positive {doc}, 0 without any.")


precision = _share_of("precision", false_positives, "predictions is right")
recall = _share_of("recall", false_negatives, "labels is found")
