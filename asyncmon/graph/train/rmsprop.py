"""Steps scaled by a running mean of squared gradients. TF1: ``tf.train.RMSPropOptimizer``."""

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


__all__ = ["RMSPropOptimizer"]


def _step(
    var: Array, mom: Array, spread: Array, lr: Array, momentum: Array, epsilon: Array, grad: Array
) -> None:
    """Finish an update; ``spread``, a temporary, is what the gradient is scaled by the root of."""
    spread += epsilon
    np.sqrt(spread, out=spread)
    np.divide(grad, spread, out=spread)
    spread *= lr
    mom *= momentum
    mom += spread
    var -= mom


def _rmsprop(
    var: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
) -> None:
    t = np.multiply(grad, grad)
    t *= 1 - rho
    ms *= rho
    ms += t
    np.copyto(t, ms)
    _step(var, mom, t, lr, momentum, epsilon, grad)


def _centered(
    var: Array,
    mg: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
) -> None:
    mg *= rho
    mg += np.multiply(grad, 1 - rho)
    t = np.multiply(grad, grad)
    t *= 1 - rho
    ms *= rho
    ms += t
    np.multiply(mg, mg, out=t)
    np.subtract(ms, t, out=t)
    _step(var, mom, t, lr, momentum, epsilon, grad)


def _rmsprop_rows(
    var: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
    indices: Array,
) -> None:
    rows = [ref[indices] for ref in (var, ms, mom)]
    _rmsprop(rows[0], rows[1], rows[2], lr, rho, momentum, epsilon, grad)
    var[indices], ms[indices], mom[indices] = rows


def _centered_rows(
    var: Array,
    mg: Array,
    ms: Array,
    mom: Array,
    lr: Array,
    rho: Array,
    momentum: Array,
    epsilon: Array,
    grad: Array,
    indices: Array,
) -> None:
    rows = [ref[indices] for ref in (var, mg, ms, mom)]
    _centered(rows[0], rows[1], rows[2], rows[3], lr, rho, momentum, epsilon, grad)
    var[indices], mg[indices], ms[indices], mom[indices] = rows


for _name, _refs, _update in (("ApplyRMSProp", 3, _rmsprop), ("ApplyCenteredRMSProp", 4, _centered)):
    register(
        VariableOpDef(_name, None, applied_dense(_refs), refs=_refs, update=_update, blockwise=True)
    )
register(VariableOpDef("SparseApplyRMSProp", None, applied_rows(3), refs=3, update=_rmsprop_rows))
register(
    VariableOpDef("SparseApplyCenteredRMSProp", None, applied_rows(4), refs=4, update=_centered_rows)
)


class RMSPropOptimizer(Optimizer):
    """``mean_square = decay * mean_square + (1 - decay) * grad ** 2``, then a step with momentum.

    ``mom = momentum * mom + learning_rate * grad / sqrt(mean_square + epsilon); var -= mom``.
    TF1: ``tf.train.RMSPropOptimizer``.

    Args:
        learning_rate: a number, a scalar tensor, or a function that returns one.
        decay: likewise; of the running mean.
        momentum: likewise.
        epsilon: likewise; keeps the divisor from zero.
        use_locking: accepted for the original's sake; a run's writes are always one transaction.
        centered: scale by the variance of the gradient rather than by its second moment.
        name: of the operations and slots.
    """

    def __init__(
        self,
        learning_rate: Any,
        decay: Any = 0.9,
        momentum: Any = 0.0,
        epsilon: Any = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._rho = decay
        self._momentum = momentum
        self._epsilon = epsilon
        self._centered = centered

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for var in var_list:
            self._slot(var, "rms", 1.0)
            if self._centered:
                self._slot(var, "mg")
            self._slot(var, "momentum")

    def _prepare(self) -> None:
        self._hypers = (
            self._hyper(self._learning_rate, "learning_rate"),
            self._hyper(self._rho, "decay"),
            self._hyper(self._momentum, "momentum"),
            self._hyper(self._epsilon, "epsilon"),
        )

    def _inputs(self, var: Variable) -> list[Any]:
        names = ("mg", "rms", "momentum") if self._centered else ("rms", "momentum")
        return [var, *(self._slot(var, name) for name in names), *self._for(var, *self._hypers)]

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor:
        op_type = "ApplyCenteredRMSProp" if self._centered else "ApplyRMSProp"
        return create_op(op_type, (*self._inputs(var), grad))

    def _apply_sparse(self, grad: Tensor, indices: Tensor, var: Variable) -> Tensor:
        op_type = "SparseApplyCenteredRMSProp" if self._centered else "SparseApplyRMSProp"
        return create_op(op_type, (*self._inputs(var), grad, indices))
