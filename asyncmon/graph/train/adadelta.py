"""Adadelta."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.families import update_op
from asyncmon.graph.train.optimizer import Optimizer


def _follow(mean: Array, rho: Array, value: Array) -> None:
    mean *= rho
    mean += np.multiply(np.square(value), 1 - rho)


def _adadelta(
    var: Array, accum: Array, accum_update: Array, lr: Array, rho: Array, epsilon: Array, grad: Array
) -> None:
    _follow(accum, rho, grad)
    step = np.sqrt(accum_update + epsilon)
    step /= np.sqrt(accum + epsilon)
    step *= grad
    _follow(accum_update, rho, step)
    step *= lr
    var -= step


update_op("Adadelta", _adadelta, refs=3)


class AdadeltaOptimizer(Optimizer):
    """Steps as large as earlier ones, in the direction of the gradient scaled by its running size.

    ``accum = rho * accum + (1 - rho) * grad ** 2``,
    ``step = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad``,
    ``accum_update = rho * accum_update + (1 - rho) * step ** 2``, ``var -= learning_rate * step``.
    TF1: ``tf.train.AdadeltaOptimizer``. The slots are "accum" and "accum_update".
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        rho: Any = 0.95,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adadelta",
    ) -> None:
        super().__init__(
            use_locking, name, "Adadelta", {"accum": 0.0, "accum_update": 0.0},
            learning_rate=learning_rate, rho=rho, epsilon=epsilon,
        )  # fmt: skip
