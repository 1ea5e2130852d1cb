"""TF1: ``tensorflow.python.training.moving_averages``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.train import averages

if TYPE_CHECKING:
    from asyncmon import graph as tf


def assign_moving_average(
    variable: tf.Variable, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> tf.Tensor:
    """Return an average after its move to ``decay * variable + (1 - decay) * value``. TF1: same name.

    By default it is corrected for having begun at zero, with the help of two variables, ``biased`` and
    ``local_step``, made beside it.
    """
    return averages.assign_moving_average(variable, value, decay, zero_debias, name)
