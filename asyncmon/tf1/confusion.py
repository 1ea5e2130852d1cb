"""TF1: ``tf.confusion_matrix``."""

from __future__ import annotations

from typing import Any

from asyncmon import graph as tf
from asyncmon.tf1.weighting import squeezed


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = tf.int32,
    name: str | None = None,
    weights: Any = None,
) -> tf.Tensor:
    """Return how often each class, a row, is predicted as each class, a column. TF1: same name.

    Args:
        labels: vector of classes.
        predictions: likewise.
        num_classes: by default the greatest of either, and 1.
        dtype: of the result, ``[num_classes, num_classes]``.
        name: the scope of the ops.
        weights: vector of what each pair counts; 1 by default.

    Errors at run time: InvalidArgumentError for a class outside of ``[0, num_classes)``.
    """
    with tf.name_scope(name, "confusion_matrix"):
        pair = squeezed(labels, predictions)
        y, x = (tf.cast(v, tf.int64) for v in pair)
        y, x = (
            _checked(v, v >= 0, f"`{w}` contains negative values")
            for v, w in ((y, "labels"), (x, "predictions"))
        )
        if num_classes is None:
            num_classes = tf.maximum(tf.reduce_max(x), tf.reduce_max(y)) + 1
        else:
            y, x = (
                _checked(v, v < tf.cast(num_classes, tf.int64), f"`{w}` out of bound")
                for v, w in ((y, "labels"), (x, "predictions"))
            )
        if weights is None:
            counts = tf.ones_like(x, dtype)
        else:
            counts = tf.convert_to_tensor(weights)
            x.shape.assert_is_compatible_with(counts.shape)
            counts = tf.cast(counts, dtype)
        size = tf.cast(num_classes, tf.int64)
        return tf.scatter_nd(tf.stack([y, x], axis=1), counts, tf.stack([size, size]))


def _checked(classes: tf.Tensor, valid: tf.Tensor, message: str) -> tf.Tensor:
    with tf.control_dependencies([tf.Assert(tf.reduce_all(valid), [message, classes])]):
        return tf.identity(classes)
