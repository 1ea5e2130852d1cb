"""Learning rates that fall along a cosine. See :mod:`.decay`."""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Any

from asyncmon.graph.construction.build import convert_to_tensor, name_scope
from asyncmon.graph.construction.convert import is_tensor_like
from asyncmon.graph.ops.arithmetic import minimum, multiply
from asyncmon.graph.ops.functions import cos, floor, log, sqrt
from asyncmon.graph.ops.random_ops import random_normal
from asyncmon.graph.ops.shape_ops import cast
from asyncmon.graph.train.decay import start

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor


def _lowered(progress: Tensor) -> Tensor:
    """Return half a cosine, from 1 to 0."""
    return (cos(progress * pi) + 1) * 0.5


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: Any = 0.0, name: str | None = None
) -> Tensor:
    """Return the rate lowered along half a cosine to ``alpha`` times itself at ``decay_steps``.

    TF1: same name.
    """
    with name_scope(name, "CosineDecay") as scope:
        rate, progress = start("cosine_decay", learning_rate, global_step, decay_steps)
        return multiply(rate, _lowered(minimum(progress, 1.0)) * (1 - alpha) + alpha, scope)


def cosine_decay_restarts(
    learning_rate: Any,
    global_step: Any,
    first_decay_steps: Any,
    t_mul: Any = 2.0,
    m_mul: Any = 1.0,
    alpha: Any = 0.0,
    name: str | None = None,
) -> Tensor:
    """Return :func:`cosine_decay` started anew whenever it has ended. TF1: same name.

    Each period has ``t_mul`` (1 or more) times the steps of the one before, and begins ``m_mul`` times
    as high.
    """
    with name_scope(name, "SGDRDecay") as scope:
        rate, progress = start("cosine_decay_restarts", learning_rate, global_step, first_decay_steps)
        longer, lower, least = (cast(v, rate.dtype) for v in (t_mul, m_mul, alpha))
        if not is_tensor_like(t_mul) and t_mul == 1:
            period = floor(progress)
            progress = progress - period
        else:
            period = floor(log(1 - progress * (1 - longer)) / log(longer))
            times = longer**period
            progress = (progress - (1 - times) / (1 - longer)) / times
        return multiply(rate, _lowered(progress) * lower**period * (1 - least) + least, scope)


def linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    num_periods: float = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """Return ``(alpha + line) * cosine + beta`` times the rate, a line to 0 at ``decay_steps``.

    TF1: same name. The cosine has ``num_periods`` periods up to there.
    """
    with name_scope(name, "LinearCosineDecay") as scope:
        rate, progress = start("linear_cosine_decay", learning_rate, global_step, decay_steps)
        progress = minimum(progress, 1.0)
        wave = _lowered(progress * (2.0 * num_periods))
        return multiply(rate, (1 - progress + alpha) * wave + beta, scope)


def noisy_linear_cosine_decay(
    learning_rate: Any,
    global_step: Any,
    decay_steps: Any,
    initial_variance: Any = 1.0,
    variance_decay: Any = 0.55,
    num_periods: float = 0.5,
    alpha: Any = 0.0,
    beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:
    """Return :func:`linear_cosine_decay` with noise added to the line. TF1: same name.

    Its variance is ``initial_variance / (1 + global_step) ** variance_decay``.
    """
    with name_scope(name, "NoisyLinearCosineDecay") as scope:
        rate, progress = start("noisy_linear_cosine_decay", learning_rate, global_step, decay_steps)
        progress = minimum(progress, 1.0)
        step = progress * cast(decay_steps, rate.dtype)
        variance = initial_variance / (step + 1) ** convert_to_tensor(variance_decay, rate.dtype)
        noise = random_normal([], dtype=rate.dtype) * sqrt(variance)
        wave = _lowered(progress * (2.0 * num_periods))
        return multiply(rate, (1 - progress + noise + alpha) * wave + beta, scope)
