"""TF1: ``tf.contrib.layers.optimize_loss``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncmon import graph as tf
from asyncmon.summary import histogram, scalar
from asyncmon.tf1.old_names import scalar_mul

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "Momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}
_SUMMARIES = ("learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm")


def optimize_loss(
    loss: Any,
    global_step: Any,
    learning_rate: Any,
    optimizer: Any,
    gradient_noise_scale: float | None = None,
    gradient_multipliers: dict[Any, Any] | None = None,
    clip_gradients: Any = None,
    learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Any = None,
    variables: Any = None,
    name: str | None = None,
    summaries: Sequence[str] | None = None,
    colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> tf.Tensor:
    """Return the loss, whose computation includes a step of an optimizer. TF1: same name.

    Args:
        loss: a scalar.
        global_step: incremented unless ``increment_global_step`` is false; by default that of the
            graph, if there is one.
        learning_rate: a number, which is the initial value of the variable "learning_rate", a scalar
            tensor, or None.
        optimizer: "Adagrad", "Adam", "Ftrl", "Momentum" (of 0.9), "RMSProp" or "SGD"; an optimizer; or
            a class or function that takes the rate and returns one.
        gradient_noise_scale: add normal noise, multiplied by this number, to the gradients.
        gradient_multipliers: factors of gradients, by variable or by its name.
        clip_gradients: the greatest global norm, or a function of pairs of gradients and variables.
        learning_rate_decay_fn: called with the rate and the step, returns the rate.
        update_ops: operations to run first; by default those in ``GraphKeys.UPDATE_OPS``.
        variables: by default the trainable ones.
        name: the variable scope, by default "OptimizeLoss".
        summaries: some of "learning_rate", "loss", "gradients", "gradient_norm" and
            "global_gradient_norm"; by default the first two and the last.

    Raises:
        ValueError: an unknown optimizer or summary, no gradients, or a rate that is no scalar.
    """
    wanted = [_SUMMARIES[i] for i in (0, 1, 4)] if summaries is None else list(summaries)
    if unknown := [one for one in wanted if one not in _SUMMARIES]:
        raise ValueError(f"Summaries should be one of {', '.join(_SUMMARIES)}, got {unknown!r}.")
    step = tf.get_global_step() if global_step is None else global_step
    if step is None and learning_rate_decay_fn is not None:
        raise ValueError("global_step is required for learning_rate_decay_fn.")
    with tf.variable_scope(name, "OptimizeLoss"):
        first = tf.get_collection(tf.GraphKeys.UPDATE_OPS) if update_ops is None else update_ops
        with tf.control_dependencies(list(first)):
            loss = tf.identity(loss)
        rate: Any = learning_rate
        if isinstance(rate, int | float):
            rate = tf.get_variable(
                "learning_rate", [], None, tf.constant_initializer(rate), None, False
            )
        elif rate is not None and tf.convert_to_tensor(rate).shape.ndims != 0:
            raise ValueError(f"Invalid learning_rate {rate!r}: give a number or a scalar tensor.")
        if rate is not None and learning_rate_decay_fn is not None:
            rate = learning_rate_decay_fn(rate, step)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        found = [(grad, v) for grad, v in pairs if grad is not None]
        if gradient_noise_scale is not None:
            noise = [tf.truncated_normal(tf.shape(grad), dtype=grad.dtype) for grad, _ in found]
            found = [(g + gradient_noise_scale * n, v) for (g, v), n in zip(found, noise, strict=True)]
        factors = gradient_multipliers or {}
        for i, (grad, v) in enumerate(found):
            by = factors.get(v, factors.get(v.op.name))
            found[i] = grad if by is None else scalar_mul(by, grad), v
        if "global_gradient_norm" in wanted:
            scalar("global_norm/gradient_norm", tf.global_norm([grad for grad, _ in found]))
        if callable(clip_gradients):
            found = clip_gradients(found)
        elif clip_gradients is not None:
            clipped, _ = tf.clip_by_global_norm([grad for grad, _ in found], clip_gradients)
            found = [(grad, v) for grad, (_, v) in zip(clipped, found, strict=True)]
        if "loss" in wanted:
            scalar("loss", loss)
        if "learning_rate" in wanted and rate is not None:
            scalar("learning_rate", rate)
        for grad, v in found:
            dense = grad.values if isinstance(grad, tf.IndexedSlices) else grad
            if "gradients" in wanted:
                histogram(f"gradients/{v.op.name}", dense)
            if "gradient_norm" in wanted:
                scalar(f"gradient_norm/{v.op.name}", tf.global_norm([dense]))
        train = chosen.apply_gradients(found, step if increment_global_step else None, name="train")
        with tf.control_dependencies([train]):
            return tf.identity(loss)


def _optimizer(given: Any, rate: Any) -> Any:
    """Return the optimizer for an argument of :func:`optimize_loss`."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            names = ", ".join(_OPTIMIZERS)
            raise ValueError(f"Optimizer name should be one of {names}, you provided {given!r}.")
        given = _OPTIMIZERS[given]
        if rate is None:
            raise ValueError("Learning rate is required for an optimizer that is given by name.")
    found = (
        given(rate) if callable(given) and rate is not None else given() if callable(given) else given
    )
    if not isinstance(found, tf.train.Optimizer):
        raise ValueError(f"Unrecognized optimizer {given!r}: give a name, a class or an optimizer.")
    return found
