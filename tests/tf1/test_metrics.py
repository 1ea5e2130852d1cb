"""``tf.metrics``: values over batches against numpy, variables, collections, and refusals."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError

Evaluate = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("graph")
RNG = np.random.default_rng(18)
LABELS = (RNG.random((2, 6, 3)) > 0.5).astype("f")
VALUES = RNG.random((2, 6, 3)).astype("f")
WEIGHTS = RNG.random((6, 1)).astype("f")
CLASSES, GUESSES = RNG.integers(0, 4, (2, 2, 6))


def over_batches(evaluate: Evaluate, metric: Any, labels: Any, values: Any, **arguments: Any) -> Any:
    """Return the values of a metric after each batch, and the result of its last update."""
    y, x = tf.placeholder(labels.dtype, labels[0].shape), tf.placeholder(values.dtype, values[0].shape)
    value, update = metric(y, x, **arguments)
    feeds = [{y: a, x: b} for a, b in zip(labels, values, strict=True)]
    with_update = evaluate(update, update, feeds=feeds)
    return evaluate(update, update, value, feeds=feeds), with_update


def _mean_of(errors: Any) -> Callable[..., Any]:
    return lambda y, x, w: (errors(y, x) * w).sum() / (w * np.ones_like(errors(y, x))).sum()


def _counts(y: Any, x: Any, w: Any) -> dict[str, Any]:
    y, x = y > 0, x > 0
    pairs = {"tp": y & x, "fp": ~y & x, "fn": y & ~x, "tn": ~y & ~x}
    return {key: (found * w).sum() for key, found in pairs.items()}


MEANS: dict[str, Any] = {
    "accuracy": _mean_of(lambda y, x: x == y),
    "mean_absolute_error": _mean_of(lambda y, x: abs(x - y)),
    "mean_squared_error": _mean_of(lambda y, x: (x - y) ** 2),
}
COUNTS: dict[str, Any] = {
    "true_positives": lambda c: c["tp"],
    "false_positives": lambda c: c["fp"],
    "true_negatives": lambda c: c["tn"],
    "false_negatives": lambda c: c["fn"],
    "precision": lambda c: c["tp"] / (c["tp"] + c["fp"]),
    "recall": lambda c: c["tp"] / (c["tp"] + c["fn"]),
}


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("weights", [None, 2.0, WEIGHTS], ids=["none", "scalar", "column"])
def test_means_over_batches(evaluate: Evaluate, name: str, weights: Any) -> None:
    metric = getattr(tf.metrics, name)
    labels, values = (CLASSES, GUESSES) if name == "accuracy" else (LABELS, VALUES)
    if name == "accuracy":
        labels, values = labels[..., None], values[..., None]
    found = over_batches(evaluate, metric, labels, values, weights=weights)
    wanted = MEANS[name](labels, values, 1.0 if weights is None else weights)
    np.testing.assert_allclose(found, [wanted, wanted], 1e-5)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("weights", [None, 2.0, VALUES[1]], ids=["none", "scalar", "full"])
def test_counts_over_batches(evaluate: Evaluate, name: str, weights: Any) -> None:
    metric, decisions = getattr(tf.metrics, name), (VALUES > 0.5).astype("f")
    found = over_batches(evaluate, metric, LABELS, decisions, weights=weights)
    wanted = COUNTS[name](_counts(LABELS, decisions, 1.0 if weights is None else weights))
    np.testing.assert_allclose(found, [wanted, wanted], 1e-5)


def _areas(y: Any, x: Any, edges: Any) -> dict[tuple[str, str], float]:
    counts = [_counts(y, x > edge, 1.0) for edge in edges]
    tp, fp, fn, tn = (np.array([c[key] for c in counts], float) for key in ("tp", "fp", "fn", "tn"))
    recall, rate = (tp + 1e-6) / (tp + fn + 1e-6), fp / (fp + tn + 1e-6)
    curves = {"ROC": (rate, recall), "PR": (recall, (tp + 1e-6) / (tp + fp + 1e-6))}
    areas = {}
    for curve, (a, b) in curves.items():
        steps = a[:-1] - a[1:]
        areas[curve, "trapezoidal"] = (steps * (b[:-1] + b[1:]) / 2).sum()
        areas[curve, "minoring"] = (steps * np.minimum(b[:-1], b[1:])).sum()
        areas[curve, "majoring"] = (steps * np.maximum(b[:-1], b[1:])).sum()
    areas["ROC", "careful_interpolation"] = areas["ROC", "trapezoidal"]
    return areas


EDGES = [-1e-7, *(np.arange(1, 199) / 199), 1 + 1e-7]


@pytest.mark.parametrize(("key", "wanted"), _areas(LABELS, VALUES, EDGES).items())
def test_areas_under_curves(evaluate: Evaluate, key: tuple[str, str], wanted: float) -> None:
    curve, method = key
    found = over_batches(evaluate, tf.metrics.auc, LABELS, VALUES, curve=curve, summation_method=method)
    np.testing.assert_allclose(found, [wanted, wanted], 1e-4)


def test_careful_interpolation_lies_between_the_step_functions(evaluate: Evaluate) -> None:
    areas = [
        over_batches(evaluate, tf.metrics.auc, LABELS, VALUES, curve="PR", summation_method=method)[0]
        for method in ("minoring", "careful_interpolation", "majoring")
    ]
    assert areas == sorted(areas)
    assert areas[0] < areas[2]
    perfect = over_batches(
        evaluate, tf.metrics.auc, LABELS, LABELS, curve="PR", summation_method="careful_interpolation"
    )
    np.testing.assert_allclose(perfect, [1, 1], 1e-6)


def test_auc_takes_thresholds_and_refuses_other_words(evaluate: Evaluate) -> None:
    found, _ = over_batches(evaluate, tf.metrics.auc, LABELS, VALUES, thresholds=[0.7, 0.2])
    edges = [-1e-7, 0.2, 0.7, 1 + 1e-7]
    assert found == pytest.approx(_areas(LABELS, VALUES, edges)["ROC", "trapezoidal"], rel=1e-4)
    with pytest.raises(ValueError, match="either ROC or PR"):
        tf.metrics.auc(LABELS, VALUES, curve="roc")
    with pytest.raises(ValueError, match="Invalid summation_method"):
        tf.metrics.auc(LABELS, VALUES, summation_method="left")
    with pytest.raises(InvalidArgumentError, match=r"must be in \[0, 1\]"):
        evaluate(tf.metrics.auc(LABELS, 3 * VALUES)[1])


def test_means_of_values(evaluate: Evaluate) -> None:
    x, w = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    value, update = tf.metrics.mean(x, w)
    feeds = [{x: VALUES[0], w: WEIGHTS}, {x: VALUES[1], w: 2.0}]
    weights = np.stack([WEIGHTS * np.ones((1, 3)), np.full((6, 3), 2.0)])
    wanted = (VALUES * weights).sum() / weights.sum()
    assert evaluate(update, update, value, feeds=feeds) == pytest.approx(wanted, rel=1e-5)
    assert evaluate(value) == 0


def test_the_value_in_the_run_of_an_update_is_that_before(evaluate: Evaluate) -> None:
    for metric in (tf.metrics.mean([2.0]), tf.metrics.true_positives([1.0], [1.0])):
        before, after = evaluate(list(metric))
        assert before == 0 < after


def test_variables_are_local_and_named_and_results_are_collected() -> None:
    value, update = tf.metrics.mean([1.0], metrics_collections=["m"], updates_collections="u")
    tf.metrics.precision([1.0], [1.0])
    tf.metrics.mean([1.0], name="mine")
    tf.metrics.auc([True], [0.5])
    names = [v.name for v in tf.local_variables()]
    assert names == [
        "mean/total:0",
        "mean/count:0",
        "precision/true_positives/count:0",
        "precision/false_positives/count:0",
        "mine/total:0",
        "mine/count:0",
        *(f"auc/{n}:0" for n in ("true_positives", "false_negatives")),
        *(f"auc/{n}:0" for n in ("true_negatives", "false_positives")),
    ]
    assert [v.name for v in tf.get_collection(tf.GraphKeys.METRIC_VARIABLES)] == names
    assert tf.global_variables() == []
    assert [value.name, update.name] == ["mean/value:0", "mean/update_op:0"]
    assert (tf.get_collection("m"), tf.get_collection("u")) == ([value], [update])


def test_weights_and_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="incompatible"):
        tf.metrics.accuracy(LABELS[0], VALUES[0, :2])
    for metric in (tf.metrics.mean_squared_error, tf.metrics.true_positives, tf.metrics.auc):
        with pytest.raises(ValueError, match="weights can not be broadcast"):
            metric(LABELS[0], VALUES[0], weights=np.ones((2, 3), "f"))


def test_a_last_dimension_of_one_is_dropped(evaluate: Evaluate) -> None:
    for labels, values, weights in [((6, 1), (6,), (6,)), ((6,), (6, 1), (6, 1)), ((6,), (6,), (6, 1))]:
        metric = tf.metrics.accuracy(
            CLASSES[0].reshape(labels), GUESSES[0].reshape(values), WEIGHTS.reshape(weights)
        )
        wanted = ((CLASSES[0] == GUESSES[0]) * WEIGHTS[:, 0]).sum() / WEIGHTS.sum()
        assert evaluate(metric[1]) == pytest.approx(wanted, rel=1e-5)


def test_predictions_take_the_dtype_of_labels(evaluate: Evaluate) -> None:
    assert evaluate(tf.metrics.accuracy([1, 2], [1.0, 2.5])[1]) == 1


def test_a_lost_name_says_what_is_near() -> None:
    with pytest.raises(AttributeError, match="did you mean 'accuracy'"):
        _ = tf.metrics.acuracy
    with pytest.raises(AttributeError, match=r"tf\.metrics\.mean of the errors"):
        _ = tf.metrics.mean_relative_error


@pytest.mark.parametrize("name", ["accuracy", "precision", "mean_iou", "recall_at_thresholds"])
def test_metrics_can_be_pickled(name: str) -> None:
    metric = getattr(tf.metrics, name)
    assert pickle.loads(pickle.dumps(metric)) is metric
