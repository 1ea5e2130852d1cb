"""Shapes of labels, predictions and weights, for losses, metrics and ``tf.confusion_matrix``."""

from __future__ import annotations

from typing import Any

from asyncmon import graph as tf

__all__ = ["confusion_matrix"]

_PREFIX = "weights can not be broadcast to values."


def checked_weights(weights: Any, values: Any) -> tf.Tensor:
    """Check that weights are a scalar, or have the rank of values and sizes equal to theirs or 1.

    ValueError for other shapes, or InvalidArgumentError in the run if the static shapes are unknown.
    """
    w, x = tf.convert_to_tensor(weights), tf.convert_to_tensor(values)
    if w.shape.ndims == 0:
        return w
    found = f"values.shape={x.shape}. weights.shape={w.shape}."
    if w.shape.ndims is None or x.shape.ndims is None:
        valid = tf.cond(
            tf.equal(tf.rank(w), tf.rank(x)), lambda: _dims_fit(w, x), lambda: tf.equal(tf.rank(w), 0)
        )
    elif w.shape.ndims != x.shape.ndims:
        ranks = f"values.rank={x.shape.ndims}. weights.rank={w.shape.ndims}."
        raise ValueError(f"{_PREFIX} {ranks} {found} Received weights={w}, values={x}")
    elif not (w.shape.is_fully_defined() and x.shape.is_fully_defined()):
        valid = _dims_fit(w, x)
    else:
        for i, (size, wanted) in enumerate(zip(w.shape.as_list(), x.shape.as_list(), strict=True)):
            if size not in (1, wanted):
                raise ValueError(f"{_PREFIX} Mismatch at dim {i}. {found}")
        return w
    data = [_PREFIX, "weights.shape=", tf.shape(w), "values.shape=", tf.shape(x)]
    with tf.control_dependencies([tf.Assert(valid, data, name="assert_broadcastable")]):
        return tf.identity(w)


def _dims_fit(weights: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    sizes = tf.shape(weights)
    return tf.reduce_all(tf.logical_or(tf.equal(sizes, 1), tf.equal(sizes, tf.shape(values))))


def broadcast_weights(weights: Any, values: Any) -> tf.Tensor:
    """Broadcast weights to the shape of values. Errors as in :func:`checked_weights`."""
    w, x = checked_weights(weights, values), tf.convert_to_tensor(values)
    if w.shape.is_fully_defined() and x.shape.is_fully_defined() and w.shape == x.shape:
        return w
    return tf.multiply(w, tf.ones_like(x, dtype=w.dtype), name="broadcast_weights")


def squeezed(labels: Any, predictions: Any, more: int = 0) -> tuple[tf.Tensor, tf.Tensor]:
    """Drop a last dimension of size 1 so that ``predictions.rank == labels.rank + more``."""
    y, x = tf.convert_to_tensor(labels), tf.convert_to_tensor(predictions)
    return without_last(y, x, 1 - more), without_last(x, y, more + 1)


def without_last(x: tf.Tensor, other: tf.Tensor, more: int = 1) -> tf.Tensor:
    """Drop the last dimension of ``x``, of size 1, if it has ``more`` dimensions than ``other``."""
    rank, than = x.shape.ndims, other.shape.ndims
    if rank is not None and (rank == 0 or x.shape.as_list()[-1] not in (None, 1)):
        return x
    if rank is not None and than is not None:
        return tf.squeeze(x, [-1]) if rank - than == more else x
    squeezed_x = tf.equal(tf.rank(x) - tf.rank(other), more)
    result: tf.Tensor = tf.cond(squeezed_x, lambda: tf.squeeze(x, [-1]), lambda: x)
    return result


def weights_of_rank(weights: Any, values: tf.Tensor) -> tf.Tensor:
    """Drop or add a last dimension of size 1 so that weights have the rank of values."""
    w = without_last(tf.convert_to_tensor(weights), values)
    if w.shape.ndims is not None and values.shape.ndims is not None:
        return tf.expand_dims(w, -1) if 0 < w.shape.ndims == values.shape.ndims - 1 else w
    short = tf.logical_and(tf.equal(tf.rank(values) - tf.rank(w), 1), tf.greater(tf.rank(w), 0))
    result: tf.Tensor = tf.cond(short, lambda: tf.expand_dims(w, -1), lambda: w)
    return result


def confusion_matrix(
    labels: Any,
    predictions: Any,
    num_classes: Any = None,
    dtype: Any = tf.int32,
    name: str | None = None,
    weights: Any = None,
) -> tf.Tensor:
    """Return how often (or with which weights) each label met each prediction. TF1: same name.

    The row is the label, the column the prediction. ``num_classes`` is by default the greatest one
    plus 1; the run raises InvalidArgumentError for numbers out of range.
    """
    with tf.name_scope(name, "confusion_matrix", [labels, predictions, weights]) as scope:
        y, x = squeezed(labels, predictions)
        at = tf.stack([tf.cast(y, tf.int64), tf.cast(x, tf.int64)], 1)
        known = [one.spec.value.max(initial=-1) for one in (y, x) if one.spec.value is not None]
        if num_classes is None and len(known) == 2:
            num_classes = 1 + max(known)  # a static shape
        count = tf.reduce_max(at) + 1 if num_classes is None else tf.cast(num_classes, tf.int64)
        each = tf.ones_like(x, dtype) if weights is None else tf.cast(weights, dtype)
        return tf.scatter_nd(at, each, tf.stack([count, count]), name=scope)
