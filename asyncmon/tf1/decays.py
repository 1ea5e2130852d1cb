"""Learning rates along cosines. TF1: ``tf.train.cosine_decay_restarts`` and another one."""

from __future__ import annotations

from math import log, pi
from typing import Any

from asyncmon import graph as g


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: float = 2.0,
    m_mul: float = 1.0,
    alpha: float = 0.0,
    name: str | None = None,
) -> g.Tensor:
    """Return a rate that falls along a cosine again and again. TF1: same name.

    Each period is ``t_mul`` times as long as the one before, and starts with ``m_mul`` times its rate;
    ``alpha`` is the least rate as a fraction of ``learning_rate``.
    """
    with g.name_scope(name, "SGDRDecay") as scope:
        rate, passed = _progress(learning_rate, global_step, first_decay_steps)
        if t_mul == 1.0:
            number = g.floor(passed)
            passed -= number
        else:
            number = g.floor(g.log(1 - passed * (1 - t_mul)) / log(t_mul))
            length = t_mul**number
            passed = (passed - (1 - length) / (1 - t_mul)) / length
        cosine = 0.5 * m_mul**number * (1 + g.cos(pi * passed))
        return g.multiply(rate, (1 - alpha) * cosine + alpha, scope)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: float = 1.0,
    variance_decay: float = 0.55,
    num_periods: float = 0.5,
    alpha: float = 0.0,
    beta: float = 0.001,
    name: str | None = None,
) -> g.Tensor:
    """Return ``learning_rate * ((alpha + linear + noise) * cosine + beta)``. TF1: same name.

    ``linear`` falls from 1 to 0, ``cosine`` from 1 to 0 and back ``num_periods`` times. The noise is
    normal with the variance ``initial_variance / (1 + global_step) ** variance_decay``.
    """
    with g.name_scope(name, "NoisyLinearCosineDecay") as scope:
        rate, passed = _progress(learning_rate, global_step, decay_steps)
        passed = g.minimum(passed, 1.0)
        variance = initial_variance / (1 + passed * g.cast(decay_steps, rate.dtype)) ** variance_decay
        noise = g.random_normal([], dtype=rate.dtype) * g.sqrt(variance)
        cosine = 0.5 * (1 + g.cos(2 * pi * num_periods * passed))
        return g.multiply(rate, (alpha + 1 - passed + noise) * cosine + beta, scope)


def _progress(learning_rate: Any, step: Any, steps: Any) -> tuple[g.Tensor, g.Tensor]:
    """Return the rate, and ``step / steps`` in its dtype."""
    if step is None:
        raise ValueError("A decay of the learning rate needs a global_step.")
    rate = g.convert_to_tensor(learning_rate, preferred_dtype=g.float32)
    return rate, g.cast(step, rate.dtype) / g.cast(steps, rate.dtype)
