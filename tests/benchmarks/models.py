"""The programs the engine is measured with, written once: each builder takes the library as ``tf``.

It is ``asyncmon.graph`` here and ``tensorflow.compat.v1`` in the peer; the lines are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Model:
    """What to run: ``run(step, {images: ..., labels: ...})``, after ``run(init)``."""

    step: Any
    images: Any
    labels: Any
    init: Any


def counter(tf: Any) -> Model:
    """A scalar increment: the smallest step there is."""
    step = tf.Variable(0, name="counter", trainable=False)
    return Model(tf.assign_add(step, 1), None, None, tf.global_variables_initializer())


def mlp(tf: Any, sizes: list[int]) -> Model:
    """Dense layers with relu between them, and Adam."""
    images = tf.placeholder(tf.float32, [None, sizes[0]], "images")
    labels = tf.placeholder(tf.int64, [None], "labels")
    hidden = images
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        weights = tf.get_variable(f"weights{i}", [rows, columns])
        biases = tf.get_variable(f"biases{i}", [columns], initializer=tf.zeros_initializer())
        hidden = tf.nn.bias_add(tf.matmul(hidden, weights), biases)
        if i < len(sizes) - 2:
            hidden = tf.nn.relu(hidden)
    return _trained(tf, images, labels, hidden)


def conv_net(tf: Any) -> Model:
    """Two 3x3 convolutions of 32 and 64 channels, a pool, a dense layer; images of 28x28x1."""
    images = tf.placeholder(tf.float32, [None, 28, 28, 1], "images")
    labels = tf.placeholder(tf.int64, [None], "labels")
    hidden = images
    for i, (depth, channels) in enumerate(((1, 32), (32, 64))):
        filters = tf.get_variable(f"filters{i}", [3, 3, depth, channels])
        biases = tf.get_variable(f"conv_biases{i}", [channels], initializer=tf.zeros_initializer())
        hidden = tf.nn.conv2d(hidden, filters, strides=[1, 1, 1, 1], padding="SAME")
        hidden = tf.nn.relu(tf.nn.bias_add(hidden, biases))
    hidden = tf.nn.max_pool(hidden, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    flat = tf.reshape(hidden, [-1, 14 * 14 * 64])
    weights = tf.get_variable("weights", [14 * 14 * 64, 10])
    biases = tf.get_variable("biases", [10], initializer=tf.zeros_initializer())
    return _trained(tf, images, labels, tf.nn.bias_add(tf.matmul(flat, weights), biases))


def _trained(tf: Any, images: Any, labels: Any, logits: Any) -> Model:
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses)
    step = tf.Variable(0, name="global_step", trainable=False)
    train_op = tf.train.AdamOptimizer(0.001).minimize(loss, global_step=step)
    return Model([train_op, loss], images, labels, tf.global_variables_initializer())


def tower(tf: Any, nodes: int) -> Any:
    """Return the top of about this many nodes: a scalar that is scaled, shifted, squashed in turn."""
    value = tf.placeholder_with_default(0.5, [], "start")
    scale, shift = tf.Variable(0.9, name="scale"), tf.Variable(0.1, name="shift")
    for _ in range(nodes // 3):
        value = tf.tanh(value * scale + shift)
    return value


def batch(shape: list[int]) -> tuple[Any, Any]:
    """Return images of a shape, and labels of ten classes."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal(shape).astype(np.float32)
    return images, rng.integers(0, 10, shape[0])
