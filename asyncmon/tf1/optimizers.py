"""The optimizers Adadelta and FTRL: see :mod:`asyncmon.graph.train.optimizers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncmon.graph import Variable
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.families import update_op
from asyncmon.graph.train import Optimizer
from asyncmon.graph.train.optimizers import follow

__all__ = ["AdadeltaOptimizer", "FtrlOptimizer"]


# --- Adadelta -------------------------------------------------------------------------------------
def _adadelta(
    var: Array, accum: Array, accum_update: Array, lr: Array, rho: Array, epsilon: Array, grad: Array
) -> None:
    follow(accum, rho, np.square(grad))
    step = np.sqrt(accum_update + epsilon)
    step /= np.sqrt(accum + epsilon)
    step *= grad
    follow(accum_update, rho, np.square(step))
    step *= lr
    var -= step


update_op("Adadelta", _adadelta, refs=3)


class AdadeltaOptimizer(Optimizer):
    """Scales gradients by running means of the squares of earlier steps and gradients.

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


# --- FTRL -----------------------------------------------------------------------------------------
def _ftrl(
    var: Array, accum: Array, linear: Array,
    lr: Array, power: Array, l1: Array, l2: Array, shrinkage: Array, grad: Array,
) -> None:  # fmt: skip
    before = _root(accum, power)
    accum += np.square(grad)
    after = _root(accum, power)
    linear += grad
    if shrinkage:
        linear += np.multiply(var, 2 * shrinkage)
    linear -= (after - before) / lr * var
    towards = np.sign(linear)
    towards *= l1
    towards -= linear
    after /= lr
    after += 2 * l2
    var[...] = np.where(np.abs(linear) > l1, towards / after, 0)


def _root(accum: Array, power: Array) -> Any:
    return np.sqrt(accum) if power == -0.5 else np.power(accum, -power)


update_op("Ftrl", _ftrl, refs=3)


class FtrlOptimizer(Optimizer):
    """Follow the regularized leader, with l1 and l2 penalties. TF1: ``tf.train.FtrlOptimizer``.

    ``linear += grad + 2 * l2_shrinkage * var - (new_accum ** -p - accum ** -p) / learning_rate * var``,
    where ``new_accum = accum + grad ** 2`` and p is ``learning_rate_power``. Then ``var`` is 0 where
    ``|linear| <= l1`` and ``(sign(linear) * l1 - linear) / (new_accum ** -p / learning_rate + 2 * l2)``
    elsewhere. The slots are "accum" and "linear".

    Args:
        learning_rate: the learning rate.
        learning_rate_power: 0 or less; 0 is a fixed rate.
        initial_accumulator_value: the initial value of "accum"; 0 or more.
        l1_regularization_strength: 0 or more.
        l2_regularization_strength: 0 or more.
        name: the name of the operations and slots.
        accum_name: the last part of the names of the "accum" slots; ``name`` by default.
        linear_name: likewise of "linear".
        l2_shrinkage_regularization_strength: 0 or more; an l2 penalty that does not depend on "accum".
        beta: 0 or more; adds ``beta / (2 * learning_rate)`` to ``l2_regularization_strength``.

    Raises:
        ValueError: a number out of its range.
    """

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: Any = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Any = 0.0,
        beta: float | None = None,
    ) -> None:
        for argument, value in (
            ("initial_accumulator_value", initial_accumulator_value),
            ("l1_regularization_strength", l1_regularization_strength),
            ("l2_regularization_strength", l2_regularization_strength),
            ("l2_shrinkage_regularization_strength", l2_shrinkage_regularization_strength),
        ):
            if isinstance(value, int | float) and value < 0:
                raise ValueError(f"{argument} {value} needs to be positive or zero")
        if isinstance(learning_rate_power, int | float) and learning_rate_power > 0:
            raise ValueError(f"learning_rate_power {learning_rate_power} needs to be negative or zero")
        l2 = l2_regularization_strength
        if beta:
            l2 = l2 + beta / (2.0 * self._value(learning_rate))
        super().__init__(
            use_locking, name, "Ftrl", {"accum": initial_accumulator_value, "linear": 0.0},
            learning_rate=learning_rate, learning_rate_power=learning_rate_power,
            l1=l1_regularization_strength, l2=l2, l2_shrinkage=l2_shrinkage_regularization_strength,
        )  # fmt: skip
        self._labels = {"accum": accum_name, "linear": linear_name}

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for var in var_list:
            for slot, label in self._labels.items():
                self._slot(var, slot, self._initial_slots[slot], label)
