"""The less common functions of ``tf.nn``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

RNG = np.random.default_rng(8)
LOGITS = RNG.normal(size=(4, 3))
LABELS = RNG.dirichlet(np.ones(3), 4)
SCORES = np.array([[0.1, 0.9, 0.5, 0.3], [0.8, 0.2, 0.7, 0.4]], "f")
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


def test_in_top_k(ops: Any) -> None:
    def run(s: Any, t: Any) -> Any:
        return tf.nn.in_top_k(s, t, 2)

    ops.agree(run, np.array([True, False]), SCORES, np.array([2, 3]))
    ops.agree(run, np.array([False, False]), SCORES, np.array([-1, 4]))
    ties = np.array([[1.0, 1.0, 0.0]], np.float32)
    assert ops.compute(lambda s: tf.nn.in_top_k(s, [1], 1), ties)[0]
    bad = np.array([[np.nan, 1.0, 0.0], [np.inf, 1.0, 0.0]], np.float32)
    assert ops.compute(lambda s: tf.nn.in_top_k(s, [1, 1], 3), bad).tolist() == [False, False]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_in_top_k_says_no_for_a_row_that_is_not_finite(ops: Any, value: float) -> None:
    scores = np.array([[1, value, 3], [1, 2, 3]], "f")
    for target in range(3):
        found = ops.compute(lambda s, t=target: tf.nn.in_top_k(s, [t, t], 3), scores)
        assert found.tolist() == [False, True]


def test_in_top_k_of_no_classes(ops: Any) -> None:
    found = ops.compute(lambda s: tf.nn.in_top_k(s, [0, 0], 1), np.zeros((2, 0), "f"))
    assert found.tolist() == [False, False]


def test_in_top_k_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="must be equal, but are 2 and 1"):
        tf.nn.in_top_k(tf.ones([2, 3]), [1], 1)
    with pytest.raises(TypeError, match="'predictions'"):
        tf.nn.in_top_k(tf.ones([2, 3], tf.float64), [1, 1], 1)
