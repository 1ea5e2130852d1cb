"""TF1: ``tf.losses``: weighted losses, reduced to a scalar and added to a collection.

::

    tf.losses.softmax_cross_entropy(onehot_labels, logits)
    train_op = optimizer.minimize(tf.losses.get_total_loss())

Common arguments:

* ``weights``: a scalar, or a tensor of the rank of the losses, with sizes equal to theirs or 1. Other
  shapes raise ValueError, or InvalidArgumentError in the run if the static shapes are unknown.
* ``scope``: the scope of the ops.
* ``loss_collection``: the collection, or collections, of the loss; None for none.
* ``reduction``: one of :class:`Reduction`.

Labels and predictions have the same shape and are converted to float32. None for one is a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon import graph as tf
from asyncmon.graph.core.convert import renamed_argument
from asyncmon.tf1.signatures import REQUIRED as _REQUIRED
from asyncmon.tf1.signatures import function_of
from asyncmon.tf1.weighting import broadcast_weights, checked_weights, squeezed, without_last

__all__ = [
    "Reduction", "absolute_difference", "add_loss", "compute_weighted_loss", "cosine_distance",
    "get_losses", "get_regularization_loss", "get_regularization_losses", "get_total_loss",
    "hinge_loss", "huber_loss", "log_loss", "mean_pairwise_squared_error", "mean_squared_error",
    "sigmoid_cross_entropy", "softmax_cross_entropy", "sparse_softmax_cross_entropy",
]  # fmt: skip

_LOSSES = tf.GraphKeys.LOSSES
_REGULARIZATION = tf.GraphKeys.REGULARIZATION_LOSSES


class Reduction:
    """The reductions of weighted losses: none, the sum, or the sum divided.

    TF1: ``tf.losses.Reduction``. The divisor is the sum of the weights (MEAN), the number of losses
    (SUM_OVER_BATCH_SIZE) or the number of nonzero weights (SUM_BY_NONZERO_WEIGHTS).
    """

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"
    SUM_OVER_NONZERO_WEIGHTS = SUM_BY_NONZERO_WEIGHTS

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """Return all reductions. TF1: same name."""
        by_weights = (cls.SUM_OVER_NONZERO_WEIGHTS, cls.SUM_BY_NONZERO_WEIGHTS)
        return (cls.NONE, cls.SUM, cls.MEAN, cls.SUM_OVER_BATCH_SIZE, *by_weights)

    @classmethod
    def validate(cls, key: str) -> None:
        """Raise ValueError for an unknown reduction. TF1: same name."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key: Expected one of {cls.all()}, got {key!r}.")


_BY_WEIGHTS = Reduction.SUM_BY_NONZERO_WEIGHTS


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = _LOSSES,
    reduction: str = _BY_WEIGHTS,
) -> tf.Tensor:
    """Weight and reduce losses in float32, and return them in their dtype. TF1: same name."""
    Reduction.validate(reduction)
    with tf.name_scope(scope, "weighted_loss", (losses, weights)):
        values = tf.convert_to_tensor(losses)
        weight = tf.cast(checked_weights(weights, values), tf.float32)
        x = tf.cast(values, tf.float32)
        if reduction == Reduction.NONE:
            loss = tf.multiply(x, weight)
        else:
            plain = isinstance(weights, float | int) and weights == 1
            loss = tf.reduce_sum(x if plain else tf.multiply(x, weight))
            if reduction == Reduction.MEAN:
                loss = _mean(loss, tf.reduce_sum(tf.ones_like(x) * weight))
            elif reduction == Reduction.SUM_OVER_BATCH_SIZE:
                loss = _mean(loss, tf.cast(tf.size(x, name="num_elements"), x.dtype))
            elif reduction == Reduction.SUM_BY_NONZERO_WEIGHTS:
                loss = _mean(loss, _present(x, weights))
        loss = tf.cast(loss, values.dtype)
        add_loss(loss, loss_collection)
        return loss


def _mean(total: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    return tf.div_no_nan(total, count, name="value")


def _present(losses: tf.Tensor, weights: Any, per_row: bool = False) -> tf.Tensor:
    """Return the number of losses with a nonzero weight, in total or for each row."""
    if isinstance(weights, float) and weights != 0 and not per_row:
        return tf.cast(tf.size(losses, name="num_elements"), losses.dtype)
    with tf.name_scope("num_present"):
        present = tf.cast(tf.not_equal(tf.cast(weights, tf.float32), 0.0), tf.float32)
        present = broadcast_weights(present, losses)
        return tf.reduce_sum(present, _after_first(present) if per_row else None, keepdims=per_row)


def _after_first(x: tf.Tensor) -> list[int]:
    if x.shape.ndims is None:
        raise ValueError(f"mean_pairwise_squared_error needs labels of a known rank, got {x!r}.")
    return list(range(1, x.shape.ndims))


def _pair(
    labels: Any,
    predictions: Any,
    names: tuple[str, str],
    dtype: Any = tf.float32,
    squeezes: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return both in a dtype (None: that of the predictions), with compatible shapes."""
    for value, name in zip((labels, predictions), names, strict=True):
        if value is None:
            raise ValueError(f"Argument `{name}` must not be None.")
    if squeezes:
        return squeezed(labels, predictions, 1)
    x = tf.convert_to_tensor(predictions) if dtype is None else tf.cast(predictions, dtype)
    y = tf.cast(labels, x.dtype)
    x.shape.assert_is_compatible_with(y.shape)
    return y, x


_NAMES = "labels", "predictions"


def _loss(
    own_scope: str,
    names: tuple[str, str] = _NAMES,
    dtype: Any = tf.float32,
    first: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None,
    squeezes: bool = False,
    **options: Any,
) -> Callable[..., Callable[..., tf.Tensor]]:
    """Return a decorator that makes a loss from its formula of labels, predictions and options.

    ``first`` are options before the weights, ``last`` those after all other arguments. With
    ``squeezes`` labels and weights lack the last dimension of predictions, or have size 1 in its place.
    """

    def decorate(formula: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
        def loss(
            weights: Any, scope: Any, loss_collection: Any, reduction: Any, **given: Any
        ) -> tf.Tensor:
            pair = [given.pop(name) for name in names]
            with tf.name_scope(scope, own_scope) as scope:
                y, x = _pair(pair[0], pair[1], names, dtype, squeezes)
                if squeezes and not isinstance(weights, float | int):
                    weights = without_last(tf.convert_to_tensor(weights), y)
                losses = formula(y, x, **given)
                return compute_weighted_loss(losses, weights, scope, loss_collection, reduction)

        common = {"scope": None, "loss_collection": _LOSSES, "reduction": _BY_WEIGHTS}
        own = {**dict.fromkeys(names, _REQUIRED), **(first or {}), "weights": 1.0, **options}
        arguments = {**own, **common, **(last or {})}
        return function_of(formula.__name__, formula.__doc__, arguments, loss)

    return decorate


# --- the losses -----------------------------------------------------------------------------------
@_loss("absolute_difference")
def absolute_difference(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the loss ``|predictions - labels|``. TF1: same name."""
    return tf.abs(tf.subtract(x, y))


@_loss("mean_squared_error")
def mean_squared_error(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the loss ``(predictions - labels) ** 2``. TF1: same name."""
    return tf.squared_difference(x, y)


@_loss("hinge_loss", ("labels", "logits"))
def hinge_loss(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the loss ``max(0, 1 - y * logits)`` with ``y = 2 * labels - 1``. TF1: same name.

    Labels are 0 or 1.
    """
    return tf.nn.relu(1 - (2 * y - 1) * x)


@_loss("huber_loss", delta=1.0)
def huber_loss(y: tf.Tensor, x: tf.Tensor, delta: float) -> tf.Tensor:
    """Return a loss that is quadratic for errors up to ``delta``, linear beyond. TF1: same name."""
    error = tf.abs(tf.subtract(x, y))
    quadratic = tf.minimum(error, delta)
    return 0.5 * (quadratic * quadratic) + delta * tf.subtract(error, quadratic)


@_loss("log_loss", epsilon=1e-7)
def log_loss(y: tf.Tensor, x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Return the cross entropy of labels and predicted probabilities. TF1: same name.

    ``epsilon`` is added to both probabilities so that the logarithm is finite.
    """
    return -(y * tf.log(x + epsilon)) - (1 - y) * tf.log(1 - x + epsilon)


@_loss("sigmoid_cross_entropy_loss", ("multi_class_labels", "logits"), None, label_smoothing=0)
def sigmoid_cross_entropy(y: tf.Tensor, x: tf.Tensor, label_smoothing: float) -> tf.Tensor:
    """Return the cross entropy of independent probabilities and logits. TF1: same name.

    A ``label_smoothing`` above 0 moves the labels towards 1/2: ``y * (1 - s) + s / 2``.
    """
    if label_smoothing > 0:
        y = y * (1 - label_smoothing) + 0.5 * label_smoothing
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=x, name="xentropy")


@_loss("softmax_cross_entropy_loss", ("onehot_labels", "logits"), None, label_smoothing=0)
def softmax_cross_entropy(y: tf.Tensor, x: tf.Tensor, label_smoothing: float) -> tf.Tensor:
    """Return the cross entropy of rows of probabilities and logits. TF1: same name.

    No gradient flows into the labels. A ``label_smoothing`` above 0 moves them towards 1 / classes:
    ``y * (1 - s) + s / classes``. The losses, and so the weights, have the shape ``[batch]``.
    """
    if label_smoothing > 0:
        classes = tf.cast(tf.shape(y)[-1], x.dtype)
        y = y * (1.0 - label_smoothing) + label_smoothing / classes
    y = tf.stop_gradient(y, name="labels_stop_gradient")
    return tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x, name="xentropy")


@_loss("cosine_distance_loss", first={"axis": None}, last={"dim": None})
def cosine_distance(y: tf.Tensor, x: tf.Tensor, axis: int | None, dim: int | None) -> tf.Tensor:
    """Return the loss ``1 - labels . predictions`` of unit vectors along an axis. TF1: same name.

    ``dim`` is an old name of ``axis``; one of them is required. The losses have size 1 along the axis.
    """
    along = renamed_argument("dim", dim, "axis", axis)
    if along is None:
        raise ValueError("You must specify argument `axis`.")
    return 1 - tf.reduce_sum(tf.multiply(x, y), axis=(along,), keepdims=True)


@_loss("sparse_softmax_cross_entropy_loss", ("labels", "logits"), squeezes=True)
def sparse_softmax_cross_entropy(y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Return the cross entropy of classes and rows of logits. TF1: same name.

    Labels are int32 or int64. Their shape, and that of weights that are no scalar, is the shape of
    ``logits`` without the last dimension, or with size 1 in its place.
    """
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x, name="xentropy")


def mean_pairwise_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = _LOSSES,
) -> tf.Tensor:
    """Return the sum over rows of the mean of ``((p[i] - p[j]) - (y[i] - y[j])) ** 2`` over pairs.

    TF1: same name. Labels have a known rank; weights are a scalar, or a value for each row.
    """
    with tf.name_scope(scope, "mean_pairwise_squared_error") as scope:
        y, x = _pair(labels, predictions, _NAMES)
        weight = tf.cast(checked_weights(weights, y), tf.float32)
        diffs = tf.subtract(x, y)
        axis, count = _after_first(diffs), _present(diffs, weight, per_row=True)
        squares = tf.reduce_sum(tf.square(diffs), axis, keepdims=True)
        others = tf.maximum(count - 1, 0)
        total = tf.square(tf.reduce_sum(diffs, axis, keepdims=True))
        pairs = _mean(squares, others) - _mean(total, tf.maximum(count * others, 0))
        loss = tf.reduce_sum(tf.multiply(2.0 * pairs, weight))
        some = tf.reduce_sum(count) > 0
        loss = tf.where(some, loss, tf.zeros_like(loss), name="value")
        add_loss(loss, loss_collection)
        return loss


# --- the collections ------------------------------------------------------------------------------
def add_loss(loss: tf.Tensor, loss_collection: Any = _LOSSES) -> None:
    """Add a loss to one or several collections; None for none. TF1: same name."""
    if loss_collection:
        tf.add_to_collections(loss_collection, loss)


def get_losses(scope: str | None = None, loss_collection: Any = _LOSSES) -> list[Any]:
    """Return the losses of a collection whose names begin with ``scope``. TF1: same name."""
    return tf.get_collection(loss_collection, scope)


def get_regularization_losses(scope: str | None = None) -> list[Any]:
    """Return the losses of regularizers. TF1: same name."""
    return tf.get_collection(_REGULARIZATION, scope)


def get_regularization_loss(
    scope: str | None = None, name: str = "total_regularization_loss"
) -> tf.Tensor:
    """Return the sum of the losses of regularizers, 0 if there are none. TF1: same name."""
    losses = get_regularization_losses(scope)
    return tf.add_n(losses, name=name) if losses else tf.constant(0.0)


def get_total_loss(
    add_regularization_losses: bool = True, name: str = "total_loss", scope: str | None = None
) -> tf.Tensor:
    """Return the sum of all losses, including those of regularizers. TF1: same name.

    ValueError if there are none.
    """
    losses = get_losses(scope=scope)
    if add_regularization_losses:
        losses += get_regularization_losses(scope=scope)
    return tf.add_n(losses, name=name)
