"""Means of values and of errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon import graph as tf
from asyncmon.tf1.metrics.parts import (
    LabelMetric,
    Metric,
    fitted,
    metric_variable,
    of_both,
    of_labels,
    published,
    ratio,
)
from asyncmon.tf1.weighting import broadcast_weights, squeezed, weights_of_rank

if TYPE_CHECKING:
    from collections.abc import Callable


def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the weighted mean of all values, a float32; 0 before the first. TF1: same name."""
    with tf.variable_scope(name, "mean"):
        x = tf.cast(values, tf.float32)
        total, count = metric_variable([], "total"), metric_variable([], "count")
        if weights is None:
            number = tf.cast(tf.size(x), tf.float32)
        else:
            w = broadcast_weights(tf.cast(weights_of_rank(weights, x), tf.float32), x)
            x, number = tf.multiply(x, w), tf.reduce_sum(w)
        updates = [total.assign_add(tf.reduce_sum(x)), count.assign_add(number)]
        states = [total.value(), count.value()]
        return of_both(ratio, states, updates, metrics_collections, updates_collections)


def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of tensors of one known shape, element by element. TF1: same name."""
    with tf.variable_scope(name, "mean"):
        x = tf.cast(values, tf.float32)
        if not x.shape.is_fully_defined():
            raise ValueError(f"mean_tensor needs values of a known shape, got {x.shape}.")
        total = metric_variable(x.shape, "total_tensor")
        count = metric_variable(x.shape, "count_tensor")
        number = tf.ones_like(x)
        if weights is not None:
            number = broadcast_weights(tf.cast(weights_of_rank(weights, x), tf.float32), x)
            x = tf.multiply(x, number)
        updates = [total.assign_add(x), count.assign_add(number)]
        states = [total.value(), count.value()]
        return of_both(ratio, states, updates, metrics_collections, updates_collections)


def _mean_of(name: str, compute: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], doc: str) -> LabelMetric:
    """Return the function whose mean is of ``compute(predictions, labels)``."""

    def metric(
        labels: Any, predictions: Any, weights: Any, scope: str | None, metrics: Any, updates: Any
    ) -> Metric:
        x, y, w = fitted(predictions, labels, weights)
        return mean(compute(x, y), w, metrics, updates, scope or name)

    return of_labels(name, metric, doc)


def _hits(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    if x.dtype is not y.dtype:
        x = tf.cast(x, y.dtype)
    return tf.cast(tf.equal(x, y), tf.float32)


accuracy = _mean_of(
    "accuracy", _hits, "Return how often predictions, cast to the dtype of labels, equal them."
)
mean_absolute_error = _mean_of(
    "mean_absolute_error", lambda x, y: tf.abs(x - y), "Return the mean of ``|predictions - labels|``."
)
mean_squared_error = _mean_of(
    "mean_squared_error",
    lambda x, y: tf.squared_difference(y, x),
    "Return the mean of ``(labels - predictions) ** 2``.",
)


def _root(labels: Any, predictions: Any, weights: Any, scope: str | None, *keys: Any) -> Metric:
    name = scope or "root_mean_squared_error"
    value, update = mean_squared_error(labels, predictions, weights, name=name)
    return published(tf.sqrt(value), tf.sqrt(update), *keys)


root_mean_squared_error = of_labels(
    "root_mean_squared_error", _root, "Return the root of :func:`mean_squared_error`."
)


def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of ``|labels - predictions| / normalizer``, 0 where that is 0. TF1: same name."""
    x, y, w = fitted(predictions, labels, weights)
    x, unit = squeezed(x, normalizer)
    x.shape.assert_is_compatible_with(unit.shape)
    errors = tf.where(tf.equal(unit, 0.0), tf.zeros_like(y), tf.divide(tf.abs(y - x), unit))
    name = name or "mean_relative_error"
    return mean(errors, w, metrics_collections, updates_collections, name)


def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean of ``1 - labels . predictions`` of unit vectors along ``dim``. TF1: same name."""
    x, y, w = fitted(predictions, labels, weights)
    products = tf.reduce_sum(tf.multiply(x, y), [dim], keepdims=True)
    value, update = mean(products, w, name=name or "mean_cosine_distance")
    distances = tf.subtract(1.0, value), tf.subtract(1.0, update)
    return published(*distances, metrics_collections, updates_collections)


def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the fraction of values below a threshold. TF1: same name."""
    below = tf.cast(tf.less(values, threshold), tf.float32)
    name = name or "percentage_below_threshold"
    return mean(below, weights, metrics_collections, updates_collections, name)
