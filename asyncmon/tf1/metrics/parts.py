"""What all metrics are made of: a local variable, arguments that fit, and the collections to join."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asyncmon import graph as tf
from asyncmon.tf1.weighting import squeezed, weights_of_rank

if TYPE_CHECKING:
    from collections.abc import Callable

Metric = tuple[Any, Any]
"""The value and the update."""


def metric_variable(shape: Any, name: str, dtype: tf.DType = tf.float32) -> tf.Variable:
    """Return a local variable, zeros at first."""
    keys = [tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES]
    return tf.Variable(lambda: tf.zeros(shape, dtype), False, keys, name=name)


def fitted(predictions: Any, labels: Any, weights: Any) -> tuple[tf.Tensor, tf.Tensor, Any]:
    """Return the three with last dimensions of 1 dropped, or given to weights, to fit each other.

    Raises:
        ValueError: the shapes of predictions and labels differ.
    """
    y, x = squeezed(labels, predictions)
    x.shape.assert_is_compatible_with(y.shape)
    return x, y, None if weights is None else weights_of_rank(weights, x)


def ratio(part: Any, whole: Any, name: str | None = None) -> tf.Tensor:
    """Return a quotient, 0 where the divisor is not positive."""
    return tf.div_no_nan(part, tf.maximum(whole, 0), name=name)


def published(value: Any, update: Any, metrics: Any, updates: Any) -> Metric:
    """Add both to their collections and return them."""
    if metrics:
        tf.add_to_collections(metrics, value)
    if updates:
        tf.add_to_collections(updates, update)
    return value, update


def of_both(
    compute: Callable[..., tf.Tensor], states: Any, updates: Any, to_metrics: Any, to_updates: Any
) -> Metric:
    """Return the metric that ``compute(*states, name=...)`` makes of variables and of their updates."""
    value = compute(*states, name="value")
    return published(value, compute(*updates, name="update_op"), to_metrics, to_updates)


class LabelMetric(Protocol):
    """The type of the functions of labels and predictions without arguments of their own."""

    def __call__(
        self,
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric: ...


def of_labels(name: str, compute: Callable[..., Metric], doc: str) -> LabelMetric:
    """Return the function ``compute(labels, predictions, weights, scope, *collections)`` by a name."""

    def metric(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> Metric:
        return compute(labels, predictions, weights, name, metrics_collections, updates_collections)

    metric.__name__ = metric.__qualname__ = name
    metric.__module__ = compute.__module__
    metric.__doc__ = f"{doc} TF1: same name."
    return metric
