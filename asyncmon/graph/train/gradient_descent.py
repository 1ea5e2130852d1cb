"""Plain gradient descent, and with momentum.

TF1: ``tf.train.GradientDescentOptimizer``, ``MomentumOptimizer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.op import VariableOpDef, register
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.train.rules import applied_dense, applied_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.core.indexed_slices import IndexedSlices
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array
    from asyncmon.graph.variables.variable import Variable


__all__ = ["GradientDescentOptimizer", "MomentumOptimizer"]


def _descend(var: Array, lr: Array, grad: Array) -> None:
    var -= np.multiply(grad, lr)


def _descend_rows(var: Array, lr: Array, grad: Array, indices: Array) -> None:
    np.subtract.at(var, indices, np.multiply(grad, lr))


register(VariableOpDef("ApplyGradientDescent", None, applied_dense(1), update=_descend, blockwise=True))
register(VariableOpDef("SparseApplyGradientDescent", None, applied_rows(1), update=_descend_rows))


class GradientDescentOptimizer(Optimizer):
    """``var -= learning_rate * grad``. TF1: ``tf.train.GradientDescentOptimizer``.

    Args:
        learning_rate: a number, a scalar tensor, or a function that returns one.
        use_locking: accepted for the original's sake; a run's writes are always one transaction.
        name: of the operations.
    """

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate

    def _prepare(self) -> None:
        self._lr = self._hyper(self._learning_rate, "learning_rate")

    def _rows(self, grad: IndexedSlices) -> tuple[Tensor, Tensor]:
        return grad.values, grad.indices  # equal rows may be subtracted one after the other

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor:
        return create_op("ApplyGradientDescent", (var, *self._for(var, self._lr), grad))

    def _apply_sparse(self, grad: Tensor, indices: Tensor, var: Variable) -> Tensor:
        return create_op("SparseApplyGradientDescent", (var, *self._for(var, self._lr), grad, indices))


def _momentum(
    var: Array, accum: Array, lr: Array, grad: Array, momentum: Array, *, use_nesterov: bool
) -> None:
    accum *= momentum
    accum += grad
    if use_nesterov:
        step = np.multiply(accum, momentum)
        step += grad
        step *= lr
        var -= step
    else:
        var -= np.multiply(accum, lr)


def _momentum_rows(
    var: Array,
    accum: Array,
    lr: Array,
    grad: Array,
    momentum: Array,
    indices: Array,
    *,
    use_nesterov: bool,
) -> None:
    rows, sums = var[indices], accum[indices]
    _momentum(rows, sums, lr, grad, momentum, use_nesterov=use_nesterov)
    var[indices], accum[indices] = rows, sums


register(
    VariableOpDef("ApplyMomentum", None, applied_dense(2, -2), refs=2, update=_momentum, blockwise=True)
)
register(VariableOpDef("SparseApplyMomentum", None, applied_rows(2, -3), refs=2, update=_momentum_rows))


class MomentumOptimizer(Optimizer):
    """``accum = momentum * accum + grad; var -= learning_rate * accum``.

    TF1: ``tf.train.MomentumOptimizer``.

    Args:
        learning_rate: a number, a scalar tensor, or a function that returns one.
        momentum: likewise.
        use_locking: accepted for the original's sake; a run's writes are always one transaction.
        name: of the operations and slots.
        use_nesterov: look ahead: ``var -= learning_rate * (grad + momentum * accum)``.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._momentum = momentum
        self._use_nesterov = use_nesterov

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for var in var_list:
            self._slot(var, "momentum")

    def _prepare(self) -> None:
        self._lr = self._hyper(self._learning_rate, "learning_rate")
        self._decay = self._hyper(self._momentum, "momentum")

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor:
        lr, momentum = self._for(var, self._lr, self._decay)
        refs = var, self._slot(var, "momentum")
        return create_op(
            "ApplyMomentum", (*refs, lr, grad, momentum), {"use_nesterov": self._use_nesterov}
        )

    def _apply_sparse(self, grad: Tensor, indices: Tensor, var: Variable) -> Tensor:
        lr, momentum = self._for(var, self._lr, self._decay)
        refs = var, self._slot(var, "momentum")
        attrs = {"use_nesterov": self._use_nesterov}
        return create_op("SparseApplyMomentum", (*refs, lr, grad, momentum, indices), attrs)
