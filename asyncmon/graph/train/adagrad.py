"""Steps scaled by the root of the sum of all squared gradients. TF1: ``tf.train.AdagradOptimizer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.op import VariableOpDef, register
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.train.rules import applied_dense, applied_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array
    from asyncmon.graph.variables.variable import Variable


__all__ = ["AdagradOptimizer"]


def _adagrad(var: Array, accum: Array, lr: Array, grad: Array) -> None:
    t = np.multiply(grad, grad)
    accum += t
    np.sqrt(accum, out=t)
    np.divide(grad, t, out=t)
    t *= lr
    var -= t


def _adagrad_rows(var: Array, accum: Array, lr: Array, grad: Array, indices: Array) -> None:
    rows, sums = var[indices], accum[indices]
    _adagrad(rows, sums, lr, grad)
    var[indices], accum[indices] = rows, sums


register(VariableOpDef("ApplyAdagrad", None, applied_dense(2), refs=2, update=_adagrad, blockwise=True))
register(VariableOpDef("SparseApplyAdagrad", None, applied_rows(2), refs=2, update=_adagrad_rows))


class AdagradOptimizer(Optimizer):
    """``accum += grad ** 2; var -= learning_rate * grad / sqrt(accum)``.

    TF1: ``tf.train.AdagradOptimizer``.

    Args:
        learning_rate: a number, a scalar tensor, or a function that returns one.
        initial_accumulator_value: positive.
        use_locking: accepted for the original's sake; a run's writes are always one transaction.
        name: of the operations and slots.

    Raises:
        ValueError: ``initial_accumulator_value`` is not positive.
    """

    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None:
        if initial_accumulator_value <= 0.0:
            raise ValueError(f"initial_accumulator_value must be positive: {initial_accumulator_value}")
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._initial_accumulator_value = initial_accumulator_value

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for var in var_list:
            self._slot(var, "accumulator", self._initial_accumulator_value)

    def _prepare(self) -> None:
        self._lr = self._hyper(self._learning_rate, "learning_rate")

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor:
        refs = var, self._slot(var, "accumulator")
        return create_op("ApplyAdagrad", (*refs, *self._for(var, self._lr), grad))

    def _apply_sparse(self, grad: Tensor, indices: Tensor, var: Variable) -> Tensor:
        refs = var, self._slot(var, "accumulator")
        return create_op("SparseApplyAdagrad", (*refs, *self._for(var, self._lr), grad, indices))
