"""Counts of right and wrong decisions, precision and recall."""

from __future__ import annotations

from typing import Any, Protocol

from asyncmon import graph as tf
from asyncmon.tf1.metrics.parts import Metric, fitted, metric_variable, of_both, published
from asyncmon.tf1.weighting import checked_weights


class Count(Protocol):
    """The type of the functions that count."""

    def __call__(
        self,
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric: ...


def _counting(name: str, label: bool, prediction: bool) -> Count:
    """Return the function that counts the labels and predictions of these values."""
    default = name

    def count(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric:
        with tf.variable_scope(name, default):
            x, y, w = fitted(tf.cast(predictions, tf.bool), tf.cast(labels, tf.bool), weights)
            x, y = (v if is_true else tf.logical_not(v) for v, is_true in ((x, prediction), (y, label)))
            found = tf.cast(tf.logical_and(y, x), tf.float32)
            if w is not None:
                found = tf.multiply(found, tf.cast(checked_weights(w, found), tf.float32))
            total = metric_variable([], "count")
            update = total.assign_add(tf.reduce_sum(found))
            return published(tf.identity(total), update, metrics_collections, updates_collections)

    count.__name__ = count.__qualname__ = name
    count.__doc__ = (
        f"Return how many predictions are {prediction} of labels that are {label}, cast to bool; a "
        "float32, the sum of the weights if there are any. TF1: same name."
    )
    return count


true_positives = _counting("true_positives", label=True, prediction=True)
true_negatives = _counting("true_negatives", label=False, prediction=False)
false_positives = _counting("false_positives", label=False, prediction=True)
false_negatives = _counting("false_negatives", label=True, prediction=False)


def _share(part: tf.Tensor, rest: tf.Tensor, name: str) -> tf.Tensor:
    whole = part + rest
    zero = tf.zeros_like(whole)
    return tf.where(tf.greater(whole, 0), tf.divide(part, whole), zero, name=name)


def _share_of(count: Count, labels: Any, predictions: Any, weights: Any, *keys: Any) -> Metric:
    """Return the true positives by themselves and another count, in the scope that is open."""
    x, y, w = fitted(tf.cast(predictions, tf.bool), tf.cast(labels, tf.bool), weights)
    states, updates = zip(true_positives(y, x, w), count(y, x, w), strict=True)
    return of_both(_share, states, updates, *keys)


def precision(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return which part of the positive predictions is right, 0 without any. TF1: same name."""
    with tf.variable_scope(name, "precision"):
        keys = metrics_collections, updates_collections
        return _share_of(false_positives, labels, predictions, weights, *keys)


def recall(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return which part of the positive labels is found, 0 without any. TF1: same name."""
    with tf.variable_scope(name, "recall"):
        keys = metrics_collections, updates_collections
        return _share_of(false_negatives, labels, predictions, weights, *keys)
