"""Adam, and Adam with decoupled weight decay.

TF1: ``tf.train.AdamOptimizer``, ``tf.contrib.opt.AdamWOptimizer``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.build import control_dependencies, create_op
from asyncmon.graph.core.op import Spec, VariableOpDef, register
from asyncmon.graph.ops.basic import group
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.train.rules import applied_dense, applied_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array
    from asyncmon.graph.variables.variable import Variable


__all__ = ["AdamOptimizer", "AdamWOptimizer"]


def _adam(
    var: Array,
    m: Array,
    v: Array,
    beta1_power: Array,
    beta2_power: Array,
    lr: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    weight_decay: Array,
    grad: Array,
) -> None:
    m *= beta1
    m += np.multiply(grad, 1 - beta1)
    t = np.multiply(grad, grad)
    t *= 1 - beta2
    v *= beta2
    v += t
    np.sqrt(v, out=t)
    t += epsilon
    np.divide(m, t, out=t)
    if weight_decay:
        var -= np.multiply(var, weight_decay)
    t *= lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    var -= t


def _adam_rows(
    var: Array,
    m: Array,
    v: Array,
    beta1_power: Array,
    beta2_power: Array,
    lr: Array,
    beta1: Array,
    beta2: Array,
    epsilon: Array,
    weight_decay: Array,
    grad: Array,
    indices: Array,
) -> None:
    """As the original: the moments of all rows decay, and all rows move."""
    m *= beta1
    m[indices] += grad * (1 - beta1)
    v *= beta2
    v[indices] += grad * grad * (1 - beta2)
    step = np.sqrt(v)
    step += epsilon
    np.divide(m, step, out=step)
    step *= lr * np.sqrt(1 - beta2_power) / (1 - beta1_power)
    if weight_decay:
        var -= np.multiply(var, weight_decay)
    var -= step


def _scale(ref: Array, by: Array) -> None:
    ref *= by


def _scaled(ref: Spec, by: Spec) -> Spec:
    return Spec(ref.dtype, ref.shape)


register(VariableOpDef("ApplyAdam", None, applied_dense(3), refs=3, update=_adam, blockwise=True))
register(VariableOpDef("SparseApplyAdam", None, applied_rows(3), refs=3, update=_adam_rows))
register(VariableOpDef("AssignMul", np.multiply, _scaled, update=_scale))


class AdamOptimizer(Optimizer):
    """Steps scaled by running moments of the gradient. TF1: ``tf.train.AdamOptimizer``.

    ``m = beta1 * m + (1 - beta1) * grad``, ``v = beta2 * v + (1 - beta2) * grad ** 2``,
    ``var -= learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)``.

    Args:
        learning_rate: a number, a scalar tensor, or a function that returns one.
        beta1: likewise; the decay of the first moment.
        beta2: likewise; the decay of the second moment.
        epsilon: likewise; keeps the divisor from zero ("epsilon hat" of the paper).
        use_locking: accepted for the original's sake; a run's writes are always one transaction.
        name: of the operations and slots.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        super().__init__(use_locking, name)
        self._learning_rate = learning_rate
        self._beta1 = beta1
        self._beta2 = beta2
        self._epsilon = epsilon

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        self._non_slot("beta1_power", self._value(self._beta1))
        self._non_slot("beta2_power", self._value(self._beta2))
        for var in var_list:
            self._slot(var, "m")
            self._slot(var, "v")

    def _prepare(self) -> None:
        self._lr = self._hyper(self._learning_rate, "learning_rate")
        self._b1 = self._hyper(self._beta1, "beta1")
        self._b2 = self._hyper(self._beta2, "beta2")
        self._eps = self._hyper(self._epsilon, "epsilon")
        self._no_decay = self._hyper(0.0, "no_weight_decay")

    def _decay_of(self, var: Variable) -> Tensor:
        return self._no_decay

    def _inputs(self, var: Variable) -> list[Any]:
        powers = (self._non_slots["beta1_power"].value(), self._non_slots["beta2_power"].value())
        hypers = (*powers, self._lr, self._b1, self._b2, self._eps, self._decay_of(var))
        return [var, self._slot(var, "m"), self._slot(var, "v"), *self._for(var, *hypers)]

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor:
        return create_op("ApplyAdam", (*self._inputs(var), grad))

    def _apply_sparse(self, grad: Tensor, indices: Tensor, var: Variable) -> Tensor:
        return create_op("SparseApplyAdam", (*self._inputs(var), grad, indices))

    def _finish(self, update_ops: Sequence[Operation], name_scope: str) -> Operation:
        with control_dependencies(update_ops):
            powers = [
                create_op("AssignMul", (self._non_slots[name], *self._for(self._non_slots[name], beta)))
                for name, beta in (("beta1_power", self._b1), ("beta2_power", self._b2))
            ]
        return group(*update_ops, *powers, name=name_scope)


class AdamWOptimizer(AdamOptimizer):
    """Adam that also shrinks the weights themselves: ``var -= weight_decay * var``.

    TF1: ``tf.contrib.opt.AdamWOptimizer``. The decay is not scaled by the learning rate; where that
    changes, change the decay along with it.

    Args:
        weight_decay: a number, a scalar tensor, or a function that returns one.
        learning_rate: as for :class:`AdamOptimizer`, like the rest.
        beta1: likewise.
        beta2: likewise.
        epsilon: likewise.
        use_locking: likewise.
        name: likewise.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, use_locking, name)
        self._weight_decay = weight_decay
        self._decay_only: set[str] | None = None

    def minimize(
        self, *args: Any, decay_var_list: Iterable[Variable] | None = None, **kwargs: Any
    ) -> Operation:
        """As :meth:`Optimizer.minimize`; ``decay_var_list`` are the variables to shrink."""
        self._choose(decay_var_list)
        return super().minimize(*args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Variable]],
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Iterable[Variable] | None = None,
    ) -> Operation:
        """As :meth:`Optimizer.apply_gradients`; ``decay_var_list`` are the variables to shrink."""
        self._choose(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _choose(self, decay_var_list: Iterable[Variable] | None) -> None:
        if decay_var_list is not None:
            self._decay_only = {var.op.name for var in decay_var_list}

    def _prepare(self) -> None:
        super()._prepare()
        self._decay = self._hyper(self._weight_decay, "weight_decay")

    def _decay_of(self, var: Variable) -> Tensor:
        if self._decay_only is not None and var.op.name not in self._decay_only:
            return self._no_decay
        return self._decay
