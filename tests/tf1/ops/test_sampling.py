"""Classes that are drawn, and the losses over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

RNG = np.random.default_rng(22)
nn = tf.nn
WEIGHTS, BIASES = RNG.normal(size=(10, 4)), RNG.normal(size=10)
INPUTS = RNG.normal(size=(3, 4))
LABELS = np.array([[1, 2], [4, 5], [9, 0]])
DRAWN = np.array([1, 3, 5, 4])
TRUE_EXPECTED, DRAWN_EXPECTED = np.linspace(0.1, 0.9, 6).reshape(3, 2), np.array([0.5, 0.2, 0.3, 0.7])
PROBABILITIES = np.log(np.arange(2, 12) / np.arange(1, 11)) / np.log(11)
draw = nn.log_uniform_candidate_sampler


def test_classes_are_drawn_by_their_probability(ops: Any) -> None:
    found = draw(LABELS, 2, 20000, False, 10, seed=1)
    assert [t.shape.as_list() for t in found] == [[20000], [3, 2], [20000]]
    drawn, of_true, of_drawn = ops.evaluate(list(found))
    assert (drawn.dtype, of_true.dtype, of_drawn.dtype) == (np.int64, np.float32, np.float32)
    np.testing.assert_allclose(np.bincount(drawn, minlength=10) / 20000, PROBABILITIES, atol=0.015)
    np.testing.assert_allclose(of_true, 20000 * PROBABILITIES[LABELS], rtol=1e-5)
    np.testing.assert_allclose(of_drawn, 20000 * PROBABILITIES[drawn], rtol=1e-5)


def test_unique_classes_are_expected_at_most_once(ops: Any) -> None:
    drawn, of_true, of_drawn = ops.evaluate(list(draw(LABELS, 2, 10, True, 10)))
    assert sorted(drawn) == list(range(10))
    assert (of_true <= 1).all()
    by_class = dict(zip(drawn.tolist(), of_drawn.tolist(), strict=True))
    np.testing.assert_allclose(of_true, np.vectorize(by_class.get)(LABELS))
    few = ops.evaluate(draw(LABELS, 2, 3, True, 1000).sampled_candidates)
    assert len(set(few.tolist())) == 3


def test_the_sampler_refuses_what_cannot_be_drawn() -> None:
    for count, most in [(11, 10), (0, 10), (1, 0)]:
        with pytest.raises(ValueError, match="unique candidates at most range_max"):
            draw(LABELS, 2, count, True, most)
    with pytest.raises(ValueError, match="must be equal"):
        draw(LABELS, 1, 3, True, 10)


def _logits(remove: bool) -> tuple[Any, Any]:
    true = (INPUTS[:, None] * WEIGHTS[LABELS]).sum(2) + BIASES[LABELS] - np.log(TRUE_EXPECTED)
    drawn = INPUTS @ WEIGHTS[DRAWN].T + BIASES[DRAWN] - np.log(DRAWN_EXPECTED)
    if remove:
        drawn = np.where((LABELS[:, :, None] == DRAWN).any(1), -1e30, drawn)
    return true, drawn


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("parts", [1, 2])
def test_losses(ops: Any, remove: bool, parts: int) -> None:
    true, drawn = _logits(remove)
    both = np.concatenate([true, drawn], 1)
    total = np.log(np.exp(both).sum(1, keepdims=True))
    wanted = {
        "nce_loss": np.logaddexp(0, -true).sum(1) / 2
        + np.logaddexp(0, true).sum(1) / 2
        + np.logaddexp(0, drawn).sum(1),
        "sampled_softmax_loss": (total - true).mean(1),
    }
    given = DRAWN, TRUE_EXPECTED, DRAWN_EXPECTED
    for name, losses in wanted.items():

        def run(w: Any, b: Any, x: Any, name: str = name) -> Any:
            tables = (w, b) if parts == 1 else ([w[:5], w[5:]], [b[:5], b[5:]])
            return getattr(nn, name)(
                *tables, LABELS, x, 4, 10, 2, tuple(map(tf.constant, given)), remove, "div"
            )

        np.testing.assert_allclose(ops.compute(run, WEIGHTS, BIASES, INPUTS), losses, rtol=1e-5)
        if not remove:
            ops.differentiate(run, WEIGHTS, BIASES, INPUTS, order=1, known=True, max_elements=3)


@pytest.mark.parametrize("name", ["nce_loss", "sampled_softmax_loss"])
def test_classes_are_drawn_where_none_are_given(ops: Any, name: str) -> None:
    table = tf.get_variable("table", initializer=tf.constant(WEIGHTS, tf.float32))
    x = tf.constant(INPUTS, tf.float32)
    loss = getattr(nn, name)(table, tf.zeros([10]), LABELS[:, :1], x, 4, 10)
    assert loss.shape == (3,)
    (grad,) = tf.gradients(loss, table)
    assert isinstance(grad, tf.IndexedSlices)
    value, slices = ops.evaluate([loss, grad])
    assert np.isfinite(value).all()
    assert len(slices.indices) == 3 + 4


def test_sampled_losses_look_up_the_parts(ops: Any) -> None:
    halves = tf.fixed_size_partitioner(2)
    w = tf.get_variable("w", [10, 4], initializer=tf.ones_initializer(), partitioner=halves)
    b = tf.get_variable("b", [10], initializer=tf.zeros_initializer(), partitioner=halves)
    labels, inputs = tf.ones([4, 1], tf.int64), tf.ones([4, 4])
    parts, whole = (
        nn.sampled_softmax_loss(*variables, labels, inputs, 3, 10, partition_strategy="div", seed=1)
        for variables in ((w, b), (w.as_tensor(), b.as_tensor()))
    )
    found = ops.evaluate([parts, whole])
    np.testing.assert_allclose(found[0], found[1])
