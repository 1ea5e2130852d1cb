"""TF1: ``tf.contrib.layers.optimize_loss``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from asyncmon import graph as tf
from asyncmon.summary import scalar
from asyncmon.tf1.old_names import scalar_mul

_OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "Adagrad": tf.train.AdagradOptimizer,
    "Adam": tf.train.AdamOptimizer,
    "Ftrl": tf.train.FtrlOptimizer,
    "Momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
    "RMSProp": tf.train.RMSPropOptimizer,
    "SGD": tf.train.GradientDescentOptimizer,
}
_SUMMARIES = ("learning_rate", "loss", "global_gradient_norm")


# fmt: off
def optimize_loss(
    loss: Any, global_step: Any, learning_rate: Any, optimizer: Any,
    gradient_noise_scale: float | None = None, gradient_multipliers: Any = None,
    clip_gradients: Any = None, learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Any = None, variables: Any = None, name: str | None = None,
    summaries: Sequence[str] | None = None, colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> tf.Tensor:
    """Return the loss, whose computation includes a step of an optimizer. TF1: same name.

    Args:
        global_step: by default that of the graph, if there is one; it is incremented.
        learning_rate: the initial value of the variable "learning_rate", a scalar tensor, or None.
        optimizer: "Adagrad", "Adam", "Ftrl", "Momentum" (of 0.9), "RMSProp" or "SGD"; an optimizer; or
            a class or function that takes the rate and returns one.
        gradient_noise_scale: the factor of normal noise on the gradients.
        gradient_multipliers: factors of gradients, by variable or by its name.
        clip_gradients: the greatest global norm, or a function of pairs of gradients and variables.
        learning_rate_decay_fn: called with the rate and the step, returns the rate.
        update_ops: operations to run first; by default those in ``GraphKeys.UPDATE_OPS``.
        summaries: some of "learning_rate", "loss", "global_gradient_norm"; by default all of them.

    ValueError for an unknown optimizer or summary, or a rate that is no scalar.
    """
    wanted = _SUMMARIES if summaries is None else summaries
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
            start = tf.constant_initializer(rate)
            rate = tf.get_variable("learning_rate", [], initializer=start, trainable=False)
        elif rate is not None and tf.convert_to_tensor(rate).shape.ndims != 0:
            raise ValueError(f"Invalid learning_rate {rate!r}: give a number or a scalar tensor.")
        if rate is not None and learning_rate_decay_fn is not None:
            rate = learning_rate_decay_fn(rate, step)
        chosen = _optimizer(optimizer, rate)
        pairs = chosen.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        found, factors = [], gradient_multipliers or {}
        for grad, v in pairs:
            if grad is None:
                continue
            if gradient_noise_scale is not None:
                noise = tf.truncated_normal(tf.shape(grad), dtype=grad.dtype)
                grad = grad + gradient_noise_scale * noise
            by = factors.get(v, factors.get(v.op.name))
            found.append((grad if by is None else scalar_mul(by, grad), v))
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
        train = chosen.apply_gradients(found, step if increment_global_step else None, name="train")
        with tf.control_dependencies([train]):
            return tf.identity(loss)
# fmt: on


def _optimizer(given: Any, rate: Any) -> Any:
    """Return the optimizer for an argument of :func:`optimize_loss`."""
    if isinstance(given, str):
        if given not in _OPTIMIZERS:
            names = ", ".join(_OPTIMIZERS)
            raise ValueError(f"Optimizer name should be one of {names}, you provided {given!r}.")
        if rate is None:
            raise ValueError("Learning rate is required for an optimizer that is given by name.")
        given = _OPTIMIZERS[given]
    if callable(given):
        given = given() if rate is None else given(rate)
    if not isinstance(given, tf.train.Optimizer):
        raise ValueError(f"Unrecognized optimizer {given!r}: give a name, a class or an optimizer.")
    return given
