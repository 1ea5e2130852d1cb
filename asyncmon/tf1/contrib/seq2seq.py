"""TF1: ``tf.contrib.seq2seq``: the loss of sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon import graph as tf

__all__ = ["sequence_loss"]


def sequence_loss(
    logits: Any,
    targets: Any,
    weights: Any,
    average_across_timesteps: bool = True,
    average_across_batch: bool = True,
    sum_over_timesteps: bool = False,
    sum_over_batch: bool = False,
    softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> tf.Tensor:
    """Return the weighted cross entropy of sequences of logits. TF1: same name.

    An average divides by the sum of the weights, a sum by the number of nonzero weights.

    Args:
        logits: of shape ``[batch, time, classes]``.
        targets: int classes of shape ``[batch, time]``.
        weights: of shape ``[batch, time]``; 0 after the end of a sequence.
        sum_over_timesteps, sum_over_batch: sum instead of averaging.
        softmax_loss_function: called as ``f(labels=, logits=)`` on classes ``[batch * time]`` and
            logits ``[batch * time, classes]``; by default ``sparse_softmax_cross_entropy_with_logits``.

    Returns:
        A scalar, ``[time]``, ``[batch]`` or ``[batch, time]``: the axes that are not reduced.

    Raises:
        ValueError: a rank is wrong, or both a sum and an average are requested.
    """
    x, classes, share = map(tf.convert_to_tensor, (logits, targets, weights))
    for tensor, rank, what in (
        (x, 3, "Logits must be a [batch_size x sequence_length x logits]"),
        (classes, 2, "Targets must be a [batch_size x sequence_length]"),
        (share, 2, "Weights must be a [batch_size x sequence_length]"),
    ):
        if tensor.shape.ndims != rank:
            raise ValueError(f"{what} tensor, got {tensor!r}")
    if average_across_timesteps and sum_over_timesteps:
        raise ValueError("average_across_timesteps and sum_over_timesteps cannot both be True.")
    if average_across_batch and sum_over_batch:
        raise ValueError("average_across_batch and sum_over_batch cannot both be True.")
    averages = average_across_batch, average_across_timesteps
    sums = sum_over_batch, sum_over_timesteps
    with tf.name_scope(name, "sequence_loss", [x, classes, share]):
        loss = softmax_loss_function or tf.nn.sparse_softmax_cross_entropy_with_logits
        flat = tf.reshape(x, [-1, tf.shape(x)[2]])
        losses = loss(labels=tf.reshape(classes, [-1]), logits=flat) * tf.reshape(share, [-1])
        losses = tf.reshape(losses, tf.shape(x)[:2])
        losses.set_shape(x.shape[:2].merge_with(classes.shape))
        axes = [axis for axis, wanted in enumerate(averages if any(averages) else sums) if wanted]
        if not axes:
            return losses
        total = tf.reduce_sum(losses, axes)
        if not any(averages):
            return tf.div_no_nan(
                total, tf.reduce_sum(tf.cast(tf.not_equal(share, 0), total.dtype), axes)
            )
        result: tf.Tensor = total / (tf.reduce_sum(share, axes) + 1e-12)
        return result
