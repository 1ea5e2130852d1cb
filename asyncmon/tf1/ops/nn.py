"""The less common functions of ``tf.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as tf
from asyncmon.graph.core import rules
from asyncmon.graph.core.op import ZERO
from asyncmon.graph.core.shape import merge_dim
from asyncmon.graph.nn.losses import need_names
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import in_single

__all__ = [
    "in_top_k", "local_response_normalization", "lrn", "relu_layer",
    "softmax_cross_entropy_with_logits", "xw_plus_b", "zero_fraction",
]  # fmt: skip


def zero_fraction(value: Any, name: str | None = None) -> tf.Tensor:
    """Return the fraction of elements that are 0, as a float32. TF1: ``tf.nn.zero_fraction``."""
    x = tf.convert_to_tensor(value)
    zeros = tf.cast(tf.equal(x, tf.convert_to_tensor(0, x.dtype)), tf.float32)
    return tf.reduce_mean(zeros, name=name or "zero_fraction")


def local_response_normalization(
    input: Any,
    depth_radius: int = 5,
    bias: float = 1,
    alpha: float = 1,
    beta: float = 0.5,
    name: str | None = None,
) -> tf.Tensor:
    """Return ``input / (bias + alpha * s) ** beta``; s sums the squares of neighbouring channels.

    TF1: ``tf.nn.local_response_normalization``, ``tf.nn.lrn``.

    Args:
        input: images, ``[batch, height, width, depth]``.
        depth_radius: the number of neighbours on either side.
        bias, alpha, beta: the numbers of the formula.
        name: the scope of the ops.
    """
    with tf.name_scope(name, "LRN") as scope:
        value = tf.convert_to_tensor(input)
        rules.check_dtype(value.dtype, rules.FLOATS, "input")
        rules.with_rank(value.spec.shape, 4)
        x = in_single(value)
        at = tf.range(tf.shape(x)[3])
        near = tf.less_equal(tf.abs(tf.expand_dims(at, 1) - at), depth_radius)
        sums = tf.tensordot(tf.square(x), tf.cast(near, x.dtype), [[3], [0]])
        scale = (sums * alpha + bias) ** -beta
        if value.dtype is x.dtype:
            return tf.multiply(x, scale, name=scope)
        return tf.cast(x * scale, value.dtype, name=scope)


lrn = local_response_normalization


def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> tf.Tensor:
    """Return ``matmul(x, weights) + biases``. TF1: ``tf.nn.xw_plus_b``."""
    product = tf.matmul(x, weights)
    return tf.nn.bias_add(
        product, tf.convert_to_tensor(biases, product.dtype), name=name or "xw_plus_b"
    )


def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> tf.Tensor:
    """Return ``relu(matmul(x, weights) + biases)``. TF1: ``tf.nn.relu_layer``."""
    return tf.nn.relu(xw_plus_b(x, weights, biases), name or "relu_layer")


def softmax_cross_entropy_with_logits(
    _sentinel: Any = None,
    labels: Any = None,
    logits: Any = None,
    dim: int = -1,
    name: str | None = None,
    axis: int | None = None,
) -> tf.Tensor:
    """As ``softmax_cross_entropy_with_logits_v2``, with no gradient into the labels.

    TF1: same name.

    Raises:
        ValueError: positional arguments, or missing labels or logits.
    """
    need_names("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    fixed = tf.stop_gradient(tf.convert_to_tensor(labels))
    along = dim if axis is None else axis
    return tf.nn.softmax_cross_entropy_with_logits_v2(fixed, logits, along, name)


def _in_top_k(predictions: Array, targets: Array, k: Array) -> Array:
    rows, classes = predictions.shape
    if not classes:
        return np.zeros(rows, np.bool_)
    valid = (targets >= 0) & (targets < classes)
    mine = predictions[np.arange(rows), np.where(valid, targets, 0)][:, None]
    better = np.count_nonzero(predictions > mine, axis=1)
    finite = np.all(np.isfinite(predictions), axis=1)
    return valid & finite & (better < k)


def _in_top_k_rule(predictions: tf.Spec, targets: tf.Spec, k: tf.Spec) -> tf.Spec:
    rules.check_dtype(predictions.dtype, (tf.float32,), "predictions")
    rules.check_dtype(targets.dtype, (tf.int32, tf.int64), "targets")
    rows, _ = rules.with_rank(predictions.shape, 2)
    (count,) = rules.with_rank(targets.shape, 1)
    return tf.Spec(tf.bool, (merge_dim(rows, count),))


tf.register(tf.OpDef("InTopKV2", _in_top_k, _in_top_k_rule, ZERO))


def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> tf.Tensor:
    """Return whether the target of each row is in its ``k`` greatest predictions. TF1: ``tf.nn``.

    All classes with the k-th greatest prediction are in. The result is false for a target out of range,
    or a row with a prediction that is not finite.
    """
    return tf.create_op("InTopKV2", (predictions, targets, k), None, name or "in_top_k")
