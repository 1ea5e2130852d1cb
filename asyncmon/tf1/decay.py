"""TF1: ``tf.train.cosine_decay_restarts``; the other decays are the engine's."""

from __future__ import annotations

from math import log, pi
from typing import Any

from asyncmon import graph as g

__all__ = ["cosine_decay_restarts"]


# fmt: off
def cosine_decay_restarts(
    learning_rate: Any, global_step: Any, first_decay_steps: Any, t_mul: float = 2.0,
    m_mul: float = 1.0, alpha: float = 0.0, name: str | None = None,
) -> g.Tensor:
    """Return a rate that falls along a cosine again and again. TF1: same name.

    Each period is ``t_mul`` times as long as the last one, and starts with ``m_mul`` times its rate;
    ``alpha`` is the least rate as a fraction of ``learning_rate``.
    """
    if global_step is None:
        raise ValueError("global_step is required for cosine_decay_restarts.")
    with g.name_scope(name, "SGDRDecay") as scope:
        rate = g.convert_to_tensor(learning_rate, preferred_dtype=g.float32)
        passed = g.cast(global_step, rate.dtype) / g.cast(first_decay_steps, rate.dtype)
        if t_mul == 1.0:
            number = g.floor(passed)
            passed -= number
        else:
            number = g.floor(g.log(1 - passed * (1 - t_mul)) / log(t_mul))
            length = t_mul**number
            passed = (passed - (1 - length) / (1 - t_mul)) / length
        cosine = 0.5 * m_mul**number * (1 + g.cos(pi * passed))
        return g.multiply(rate, (1 - alpha) * cosine + alpha, scope)
# fmt: on
