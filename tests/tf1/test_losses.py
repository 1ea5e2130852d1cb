"""``tf.losses``: values against numpy, reductions, weights, collections, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError

Evaluate = Callable[..., Any]

RNG = np.random.default_rng(17)
LABELS = (RNG.random((4, 3)) > 0.5).astype("f")
VALUES = RNG.random((4, 3)).astype("f")
COLUMN = np.array([[1.0], [0.0], [2.0], [0.5]], "f")
CLASSES = np.array([0, 2, 1, 1])
Reduction = tf.losses.Reduction
pytestmark = pytest.mark.usefixtures("graph")


def _huber(y: Any, x: Any) -> Any:
    error = np.abs(x - y)
    return np.where(error <= 0.3, 0.5 * error**2, 0.3 * error - 0.5 * 0.3**2)


def _sigmoid(y: Any, x: Any) -> Any:
    y = y * 0.9 + 0.05
    return np.logaddexp(0, x) - y * x


# name -> the arguments it takes beside, and the losses by numpy
LOSSES: dict[str, tuple[dict[str, Any], Any]] = {
    "absolute_difference": ({}, lambda y, x: np.abs(x - y)),
    "hinge_loss": ({}, lambda y, x: np.maximum(0, 1 - (2 * y - 1) * x)),
    "huber_loss": ({"delta": 0.3}, _huber),
    "log_loss": ({}, lambda y, x: -y * np.log(x + 1e-7) - (1 - y) * np.log(1 - x + 1e-7)),
    "mean_squared_error": ({}, lambda y, x: (x - y) ** 2),
    "cosine_distance": ({"axis": 1}, lambda y, x: 1 - (x * y).sum(1, keepdims=True)),
    "sigmoid_cross_entropy": ({"label_smoothing": 0.1}, _sigmoid),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("weights", [1.0, 2, 0.0, COLUMN], ids=["1", "2", "0", "column"])
def test_a_loss_is_weighted_and_reduced(evaluate: Evaluate, name: str, weights: Any) -> None:
    arguments, reference = LOSSES[name]
    function = getattr(tf.losses, name)
    losses = reference(LABELS.astype("d"), VALUES.astype("d"))
    weighted, spread = losses * weights, np.broadcast_to(weights, losses.shape)
    wanted = {
        Reduction.NONE: weighted,
        Reduction.SUM: weighted.sum(),
        Reduction.MEAN: weighted.sum() / max(spread.sum(), 1e-9),
        Reduction.SUM_OVER_BATCH_SIZE: weighted.mean(),
        Reduction.SUM_BY_NONZERO_WEIGHTS: weighted.sum() / max(np.count_nonzero(spread), 1),
    }
    found = evaluate(
        {r: function(LABELS, VALUES, weights=weights, reduction=r, **arguments) for r in wanted}
    )
    for reduction, value in wanted.items():
        assert found[reduction].dtype == np.float32
        np.testing.assert_allclose(found[reduction], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_weights_that_are_known_in_the_run_are_checked_there(evaluate: Evaluate, name: str) -> None:
    arguments, reference = LOSSES[name]
    function = getattr(tf.losses, name)
    for shape, column in [([None, 3], [None, 1]), (None, None)]:
        y, x = (tf.placeholder(tf.float32, shape) for _ in range(2))
        w = tf.placeholder(tf.float32, column)
        loss = function(y, x, weights=w, **arguments)
        losses = reference(LABELS, VALUES)
        present = np.count_nonzero(np.broadcast_to(COLUMN, losses.shape))
        feeds = {y: LABELS, x: VALUES, w: COLUMN}
        np.testing.assert_allclose(
            evaluate(loss, feeds=[feeds]), (losses * COLUMN).sum() / present, 1e-5
        )
        with pytest.raises(InvalidArgumentError, match=r"can not be broadcast|must be equal"):
            evaluate(loss, feeds=[{**feeds, w: COLUMN[:2]}])
    with pytest.raises(InvalidArgumentError, match=r"assertion failed: .*weights can not be broadcast"):
        evaluate(loss, feeds=[{**feeds, w: np.ones(losses.shape[1], "f")}])


def test_weights_that_do_not_fit_are_refused() -> None:
    for weights in (np.ones(4, "f"), np.ones((2, 1), "f"), None):
        with pytest.raises(ValueError, match=r"weights can not be broadcast|None values"):
            tf.losses.mean_squared_error(LABELS, VALUES, weights=weights)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="`labels` must not be None"):
        tf.losses.log_loss(None, VALUES)
    with pytest.raises(ValueError, match="`logits` must not be None"):
        tf.losses.softmax_cross_entropy(LABELS, None)
    with pytest.raises(ValueError, match="incompatible"):
        tf.losses.huber_loss(LABELS, VALUES[:3])
    with pytest.raises(ValueError, match="Invalid Reduction Key"):
        tf.losses.hinge_loss(LABELS, VALUES, reduction="mean")
    with pytest.raises(ValueError, match="must specify argument `axis`"):
        tf.losses.cosine_distance(LABELS, VALUES)
    with pytest.raises(ValueError, match="both 'axis' and 'dim'"):
        tf.losses.cosine_distance(LABELS, VALUES, axis=1, dim=1)


def _log_softmax(x: Any) -> Any:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("smoothing", [0, 0.2])
def test_softmax_cross_entropy(evaluate: Evaluate, smoothing: float) -> None:
    onehot = np.eye(3, dtype="f")[CLASSES]
    logits = tf.constant(4 * VALUES)
    loss = tf.losses.softmax_cross_entropy(onehot, logits, COLUMN[:, 0], label_smoothing=smoothing)
    losses = -((onehot * (1 - smoothing) + smoothing / 3) * _log_softmax(4 * VALUES)).sum(1)
    value, grad = evaluate([loss, tf.gradients(loss, logits)[0]])
    assert value == pytest.approx((losses * COLUMN[:, 0]).sum() / 3, rel=1e-5)
    by_logits = np.exp(_log_softmax(4 * VALUES)) - onehot * (1 - smoothing) - smoothing / 3
    np.testing.assert_allclose(grad, by_logits * COLUMN / 3, 1e-4, 1e-6)


def test_sparse_labels_may_have_a_last_dimension_of_one(evaluate: Evaluate) -> None:
    wanted = (-_log_softmax(VALUES)[range(4), CLASSES] * COLUMN[:, 0]).sum() / 3
    for labels, weights in [(CLASSES, COLUMN[:, 0]), (CLASSES[:, None], COLUMN)]:
        loss = tf.losses.sparse_softmax_cross_entropy(labels, VALUES, weights)
        assert evaluate(loss) == pytest.approx(wanted, rel=1e-5)
        y, w = tf.placeholder(tf.int32), tf.placeholder(tf.float32)
        later = tf.losses.sparse_softmax_cross_entropy(y, VALUES, w)
        assert evaluate(later, feeds=[{y: labels, w: weights}]) == pytest.approx(wanted, rel=1e-5)


def test_mean_pairwise_squared_error(evaluate: Evaluate) -> None:
    diffs = VALUES - LABELS
    pairs = [(row[:, None] - row) ** 2 for row in diffs]
    wanted = sum(w * p.sum() / (3 * 2) for w, p in zip(COLUMN[:, 0], pairs, strict=True))
    found = tf.losses.mean_pairwise_squared_error(LABELS, VALUES, COLUMN)
    none = tf.losses.mean_pairwise_squared_error(LABELS, VALUES, 0.0)
    np.testing.assert_allclose(evaluate([found, none]), [wanted, 0.0], 1e-4)
    with pytest.raises(ValueError, match="known rank"):
        tf.losses.mean_pairwise_squared_error(tf.placeholder(tf.float32), VALUES)


def test_a_loss_keeps_the_dtype_of_the_losses(evaluate: Evaluate) -> None:
    assert tf.losses.softmax_cross_entropy(np.eye(3), np.eye(3)).dtype is tf.float64
    assert tf.losses.mean_squared_error([1, 2], [3, 4]).dtype is tf.float32
    assert evaluate(tf.losses.compute_weighted_loss(np.array([1, 2, 3]), 2.0)) == 4


def test_no_losses_are_no_loss(evaluate: Evaluate) -> None:
    for reduction in Reduction.all()[1:]:
        assert evaluate(tf.losses.compute_weighted_loss(np.zeros((0, 2)), reduction=reduction)) == 0


def test_losses_are_collected_and_named() -> None:
    with tf.name_scope("tower"):
        first = tf.losses.mean_squared_error(LABELS, VALUES)
    second = tf.losses.hinge_loss(LABELS, VALUES, scope="mine", loss_collection=["mine", "other"])
    third = tf.losses.log_loss(LABELS, VALUES, loss_collection=None, reduction=Reduction.SUM)
    assert [first.name, second.name, third.name] == [
        "tower/mean_squared_error/value:0",
        "mine/value:0",
        "log_loss/Sum:0",
    ]
    assert tf.losses.get_losses() == [first] == tf.losses.get_losses("tower")
    assert tf.losses.get_losses(loss_collection="other") == [second]
    assert tf.losses.get_losses("mine") == []


def test_the_total_loss_has_the_losses_of_regularizers(evaluate: Evaluate) -> None:
    assert evaluate(tf.losses.get_regularization_loss()) == 0
    with pytest.raises(ValueError, match="at least one"):
        tf.losses.get_total_loss()
    for scope, size in [("a", 3), ("b", 2)]:
        with tf.variable_scope(scope, regularizer=tf.reduce_sum):
            tf.get_variable("v", initializer=tf.ones([size]))
    tf.losses.add_loss(tf.constant(10.0))
    assert len(tf.losses.get_regularization_losses()) == 2
    totals = [
        tf.losses.get_total_loss(),
        tf.losses.get_total_loss(False),
        tf.losses.get_regularization_loss("b"),
    ]
    assert [t.op.name for t in totals[:2]] == ["total_loss", "total_loss_1"]
    assert evaluate(totals) == [15, 10, 2]


def test_a_lost_name_says_what_is_near() -> None:
    with pytest.raises(AttributeError, match="did you mean 'hinge_loss'"):
        _ = tf.losses.hinge_los
