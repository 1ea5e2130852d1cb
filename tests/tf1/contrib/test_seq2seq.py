"""``tf.contrib.seq2seq.sequence_loss`` and ``tf.contrib.rnn``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

RNG = np.random.default_rng(8)
LOGITS = RNG.standard_normal((2, 3, 4)).astype("f")
TARGETS = np.array([[0, 3, 1], [2, 2, 0]])
WEIGHTS = np.array([[1.0, 0.5, 0.0], [1.0, 0.0, 0.0]], "f")
pytestmark = pytest.mark.usefixtures("graph")

peak = np.log(np.exp(LOGITS).sum(2))
LOSSES = (peak - np.take_along_axis(LOGITS, TARGETS[..., None], 2)[..., 0]) * WEIGHTS


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, LOSSES.sum() / WEIGHTS.sum()),
        ({"average_across_timesteps": False}, LOSSES.sum(0) / (WEIGHTS.sum(0) + 1e-12)),
        ({"average_across_batch": False}, LOSSES.sum(1) / (WEIGHTS.sum(1) + 1e-12)),
        ({"average_across_timesteps": False, "average_across_batch": False}, LOSSES),
    ],
)
def test_averages(evaluate: Callable[..., Any], options: dict[str, bool], expected: Any) -> None:
    loss = tf.contrib.seq2seq.sequence_loss(
        tf.constant(LOGITS), tf.constant(TARGETS), tf.constant(WEIGHTS), **options
    )
    assert loss.shape.as_list() == list(np.shape(expected))
    np.testing.assert_allclose(evaluate(loss), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"sum_over_timesteps": True, "sum_over_batch": True}, LOSSES.sum() / 3),
        ({"sum_over_batch": True}, LOSSES.sum(0) / [2, 1, 1]),
        ({"sum_over_timesteps": True}, LOSSES.sum(1) / [2, 1]),
    ],
)
def test_sums(evaluate: Callable[..., Any], options: dict[str, bool], expected: Any) -> None:
    off = {"average_across_timesteps": False, "average_across_batch": False}
    loss = tf.contrib.seq2seq.sequence_loss(LOGITS, TARGETS, WEIGHTS, **off, **options)
    np.testing.assert_allclose(evaluate(loss), expected, rtol=1e-5)


def test_another_loss_and_refusals(evaluate: Callable[..., Any]) -> None:
    sequence_loss = tf.contrib.seq2seq.sequence_loss

    def other(labels: Any, logits: Any) -> Any:
        return tf.cast(labels, tf.float32) + 0 * logits[:, 0]

    found = evaluate(sequence_loss(LOGITS, TARGETS, WEIGHTS, softmax_loss_function=other))
    assert np.isclose(found, (TARGETS * WEIGHTS).sum() / WEIGHTS.sum())
    for arguments, options, text in (
        ((LOGITS[0], TARGETS, WEIGHTS), {}, "Logits must be"),
        ((LOGITS, TARGETS[0], WEIGHTS), {}, "Targets must be"),
        ((LOGITS, TARGETS, WEIGHTS[0]), {}, "Weights must be"),
        ((LOGITS, TARGETS, WEIGHTS), {"sum_over_batch": True}, "cannot both be True"),
        ((LOGITS, TARGETS, WEIGHTS), {"sum_over_timesteps": True}, "cannot both be True"),
    ):
        with pytest.raises(ValueError, match=text):
            sequence_loss(*arguments, **options)


def test_the_cells_have_another_place() -> None:
    rnn = tf.contrib.rnn
    assert rnn.BasicLSTMCell is tf.nn.rnn_cell.BasicLSTMCell
    assert rnn.static_rnn is tf.nn.static_rnn
