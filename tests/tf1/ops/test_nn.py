"""The less common functions of ``tf.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

RNG = np.random.default_rng(8)
LOGITS = RNG.normal(size=(4, 3))
LABELS = RNG.dirichlet(np.ones(3), 4)
nn = tf.nn


def test_the_whole_of_it(ops: Any) -> None:
    x, w, b = RNG.normal(size=(4, 3)), RNG.normal(size=(3, 2)), RNG.normal(size=2)
    ops.agree(nn.xw_plus_b, x @ w + b, x, w, b)
    ops.agree(nn.relu_layer, np.maximum(x @ w + b, 0), x, w, b)
    ops.differentiate(nn.relu_layer, x, w, b, max_elements=4)
    assert nn.relu_layer(tf.constant(x), w, b, name="layer").name == "layer:0"


def test_the_first_form_holds_labels_fixed(ops: Any) -> None:
    x, y = tf.constant(LOGITS), tf.constant(LABELS)
    loss = nn.softmax_cross_entropy_with_logits(labels=y, logits=x)
    grads = tf.gradients(loss, [x, y])
    assert grads[1] is None
    expected = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True) - LABELS
    np.testing.assert_allclose(ops.evaluate(grads[0]), expected, rtol=1e-9)


def test_labels_and_logits_must_be_named_and_given() -> None:
    x = tf.constant(LOGITS)
    with pytest.raises(ValueError, match="with named arguments"):
        nn.softmax_cross_entropy_with_logits(x, x)
    with pytest.raises(ValueError, match="Both labels and logits must be provided"):
        nn.softmax_cross_entropy_with_logits(logits=x)


def test_zero_fraction(ops: Any) -> None:
    assert ops.compute(nn.zero_fraction, np.array([0, 1, 0, 2])) == 0.5
