"""Metrics of each class, averaged over the classes."""

from __future__ import annotations

from typing import Any

from asyncmon import graph as tf
from asyncmon.tf1.confusion import confusion_matrix
from asyncmon.tf1.metrics.parts import Metric, metric_variable, published, ratio


def _flat(values: Any) -> tf.Tensor:
    x = tf.convert_to_tensor(values)
    return x if x.shape.ndims == 1 else tf.reshape(x, [-1])


def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over classes of how often a label is predicted. TF1: same name.

    The update is the accuracy of each class, ``[num_classes]``. A class without labels counts as 0.

    Errors at run time: InvalidArgumentError for a label outside of ``[0, num_classes)``.
    """
    with tf.variable_scope(name, "mean_accuracy"):
        y, x = _flat(tf.cast(labels, tf.int64)), _flat(predictions)
        x.shape.assert_is_compatible_with(y.shape)
        total, count = (metric_variable([num_classes], which) for which in ("total", "count"))
        hits, ones = tf.cast(tf.equal(tf.cast(x, tf.int64), y), tf.float32), tf.ones_like(y, tf.float32)
        if weights is not None:
            w = tf.cast(weights, tf.float32)
            w = w if w.shape.ndims == 0 else _flat(w)
            hits, ones = hits * w, ones * w
        updates = tf.scatter_add(count, y, hits), tf.scatter_add(total, y, ones)
        value = tf.reduce_mean(ratio(count.value(), total.value()), name="mean_accuracy")
        update = ratio(*updates, name="update_op")
        return published(value, update, metrics_collections, updates_collections)


def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> Metric:
    """Return the mean over classes of intersection by union of labels and predictions.

    TF1: same name. The update is the confusion matrix, ``[num_classes, num_classes]``, float64. Classes
    that are neither labels nor predictions do not count.

    Errors at run time: InvalidArgumentError for a class outside of ``[0, num_classes)``.
    """
    with tf.variable_scope(name, "mean_iou"):
        y, x = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
        x.shape.assert_is_compatible_with(y.shape)
        total = metric_variable([num_classes] * 2, "total_confusion_matrix", tf.float64)
        w = None if weights is None else _flat(weights)
        batch = confusion_matrix(_flat(y), _flat(x), num_classes, tf.float64, weights=w)
        update = total.assign_add(batch)
        sums = [tf.cast(tf.reduce_sum(total, axis), tf.float32) for axis in (0, 1)]
        diagonal = tf.reduce_sum(total * tf.eye(num_classes, dtype=tf.float64), 0)
        both = tf.cast(diagonal, tf.float32)
        union = sums[0] + sums[1] - both
        count = tf.reduce_sum(tf.cast(tf.not_equal(union, 0), tf.float32))
        shares = tf.divide(both, tf.where(union > 0, union, tf.ones_like(union)))
        value = ratio(tf.reduce_sum(shares, name="mean_iou"), count)
        return published(value, update, metrics_collections, updates_collections)
