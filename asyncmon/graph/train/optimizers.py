"""The optimizers, with their updates of variables and slots.

Hyperparameters are numbers, scalar tensors, or functions that return one. ``use_locking`` is without
effect: the writes of a run are one transaction.

To add an optimizer, write its update in place, register it with :func:`update_op`, and pass its slots
and hyperparameters to :class:`Optimizer` in the order of the update's arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from asyncmon.graph.core.build import colocate_with, control_dependencies, create_op, get_default_graph
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import Spec, VariableOpDef, register
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import group
from asyncmon.graph.ops.families import update_op
from asyncmon.graph.train.optimizer import Optimizer
from asyncmon.graph.variables.partitioned import flat_variables
from asyncmon.graph.variables.variable import Variable

# --- gradient descent -----------------------------------------------------------------------------
update_op("GradientDescent", lambda var, lr, grad: np.subtract(var, np.multiply(grad, lr), out=var),
    refs=1, rows=lambda var, lr, grad, at: np.subtract.at(var, at, np.multiply(grad, lr)))  # fmt: skip


class GradientDescentOptimizer(Optimizer):
    """``var -= learning_rate * grad``. TF1: ``tf.train.GradientDescentOptimizer``."""

    _sums_equal_rows = False  # np.subtract.at subtracts them one after the other

    def __init__(
        self, learning_rate: Any, use_locking: bool = False, name: str = "GradientDescent"
    ) -> None:
        super().__init__(use_locking, name, "GradientDescent", learning_rate=learning_rate)


# --- momentum -------------------------------------------------------------------------------------
def _momentum(
    var: Array, accum: Array, lr: Array, momentum: Array, grad: Array, *, use_nesterov: bool
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


update_op("Momentum", _momentum, refs=2)


class MomentumOptimizer(Optimizer):
    """``accum = momentum * accum + grad; var -= learning_rate * accum``.

    TF1: ``tf.train.MomentumOptimizer``. With ``use_nesterov``,
    ``var -= learning_rate * (grad + momentum * accum)``.
    """

    def __init__(
        self,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(
            use_locking, name, "Momentum", {"momentum": 0.0}, {"use_nesterov": use_nesterov},
            learning_rate=learning_rate, momentum=momentum,
        )  # fmt: skip


# --- Adagrad --------------------------------------------------------------------------------------
def _adagrad(var: Array, accum: Array, lr: Array, grad: Array) -> None:
    t = np.multiply(grad, grad)
    accum += t
    np.sqrt(accum, out=t)
    np.divide(grad, t, out=t)
    t *= lr
    var -= t


update_op("Adagrad", _adagrad, refs=2)


class AdagradOptimizer(Optimizer):
    """``accum += grad ** 2; var -= learning_rate * grad / sqrt(accum)``.

    TF1: ``tf.train.AdagradOptimizer``.
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
        slots = {"accumulator": initial_accumulator_value}
        super().__init__(use_locking, name, "Adagrad", slots, learning_rate=learning_rate)


# --- RMSProp --------------------------------------------------------------------------------------
def follow(mean: Array, decay: Array, value: Array, out: Array | None = None) -> None:
    """Update a running mean, ``decay * mean + (1 - decay) * value``. ``out`` may be ``value``."""
    mean *= decay
    mean += np.multiply(value, 1 - decay, out=out)


def _rmsprop(
    var: Array, ms: Array, mom: Array,
    lr: Array, rho: Array, momentum: Array, epsilon: Array, grad: Array,
) -> None:  # fmt: skip
    t = np.multiply(grad, grad)
    follow(ms, rho, t, out=t)
    np.add(ms, epsilon, out=t)
    _rmsprop_step(var, mom, t, lr, momentum, grad)


def _centered_rmsprop(
    var: Array, ms: Array, mg: Array, mom: Array,
    lr: Array, rho: Array, momentum: Array, epsilon: Array, grad: Array,
) -> None:  # fmt: skip
    follow(mg, rho, grad)
    t = np.multiply(grad, grad)
    follow(ms, rho, t, out=t)
    np.multiply(mg, mg, out=t)
    np.subtract(ms, t, out=t)
    t += epsilon
    _rmsprop_step(var, mom, t, lr, momentum, grad)


def _rmsprop_step(var: Array, mom: Array, t: Array, lr: Array, momentum: Array, grad: Array) -> None:
    """Update by ``grad / sqrt(t)`` and momentum; overwrites ``t``."""
    np.sqrt(t, out=t)
    np.divide(grad, t, out=t)
    t *= lr
    mom *= momentum
    mom += t
    var -= mom


update_op("RMSProp", _rmsprop, refs=3)
update_op("CenteredRMSProp", _centered_rmsprop, refs=4)


class RMSPropOptimizer(Optimizer):
    """``mean_square = decay * mean_square + (1 - decay) * grad ** 2``, then a step with momentum.

    ``mom = momentum * mom + learning_rate * grad / sqrt(mean_square + epsilon); var -= mom``.
    TF1: ``tf.train.RMSPropOptimizer``. With ``centered`` the gradient is divided by its variance
    instead of its second moment.
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
        update = "CenteredRMSProp" if centered else "RMSProp"
        mean = {"mg": 0.0} if centered else {}
        super().__init__(
            use_locking, name, update, {"rms": 1.0, **mean, "momentum": 0.0},
            learning_rate=learning_rate, decay=decay, momentum=momentum, epsilon=epsilon,
        )  # fmt: skip


# --- Adam -----------------------------------------------------------------------------------------
def _adam(
    var: Array, m: Array, v: Array, power1: Array, power2: Array,
    lr: Array, beta1: Array, beta2: Array, epsilon: Array, weight_decay: Array, grad: Array,
) -> None:  # fmt: skip
    follow(m, beta1, grad)
    t = np.multiply(grad, grad)
    follow(v, beta2, t, out=t)
    _adam_step(var, m, v, t, lr * np.sqrt(1 - power2) / (1 - power1), epsilon, weight_decay)


def _adam_rows(
    var: Array, m: Array, v: Array, power1: Array, power2: Array,
    lr: Array, beta1: Array, beta2: Array, epsilon: Array, weight_decay: Array, grad: Array,
    indices: Array,
) -> None:  # fmt: skip
    # as in TF1, the moments of all rows decay, and all rows are updated
    m *= beta1
    m[indices] += grad * (1 - beta1)
    v *= beta2
    v[indices] += grad * grad * (1 - beta2)
    t = np.empty_like(v)
    _adam_step(var, m, v, t, lr * np.sqrt(1 - power2) / (1 - power1), epsilon, weight_decay)


def _adam_step(
    var: Array, m: Array, v: Array, t: Array, rate: Array, epsilon: Array, weight_decay: Array
) -> None:
    """Update by ``m / sqrt(v)``; overwrites ``t``."""
    np.sqrt(v, out=t)
    t += epsilon
    np.divide(m, t, out=t)
    if weight_decay:
        var -= np.multiply(var, weight_decay)
    t *= rate
    var -= t


update_op("Adam", _adam, refs=3, rows=_adam_rows)
register(VariableOpDef("AssignMul", np.multiply, lambda ref, factor: Spec(ref.dtype, ref.shape),
    update=lambda ref, factor: np.multiply(ref, factor, out=ref)))  # fmt: skip


class AdamOptimizer(Optimizer):
    """Steps scaled by running moments of the gradient. TF1: ``tf.train.AdamOptimizer``.

    ``m = beta1 * m + (1 - beta1) * grad``, ``v = beta2 * v + (1 - beta2) * grad ** 2``,
    ``var -= learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)``.
    (``epsilon`` is "epsilon hat" of the paper.)
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
        super().__init__(
            use_locking, name, "Adam", {"m": 0.0, "v": 0.0},
            learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon, no_weight_decay=0.0,
        )  # fmt: skip

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        first = min(var_list, key=lambda var: var.name)
        for beta in ("beta1", "beta2"):
            self._non_slot(f"{beta}_power", self._value(self._hyperparameters[beta]), first)
        super()._create_slots(var_list)

    def _power(self, beta: str) -> Variable:
        return self._non_slots[get_default_graph().root, f"{beta}_power"]

    def _scalars(self, var: Variable) -> list[Tensor]:
        powers = [self._power(beta).value() for beta in ("beta1", "beta2")]
        names = ("learning_rate", "beta1", "beta2", "epsilon", self._weight_decay_of(var))
        return [*powers, *(self._tensors[name] for name in names)]

    def _weight_decay_of(self, var: Variable) -> str:
        return "no_weight_decay"

    def _finish(self, update_ops: Sequence[Operation], name_scope: str) -> Operation:
        with control_dependencies(update_ops):
            powers = []
            for beta in ("beta1", "beta2"):
                power = self._power(beta)
                with colocate_with(power):
                    factor = self._in_dtype_of(power, self._tensors[beta])
                    powers.append(create_op("AssignMul", (power, *factor)))
        return group(*update_ops, *powers, name=name_scope)


class AdamWOptimizer(AdamOptimizer):
    """Adam with decoupled weight decay: ``var -= weight_decay * var``.

    TF1: ``tf.contrib.opt.AdamWOptimizer``. The decay is not multiplied by the learning rate. If the
    rate changes, change the decay, too.
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
        self._hyperparameters["weight_decay"] = weight_decay
        self._decayed: set[str] | None = None

    def minimize(
        self, *args: Any, decay_var_list: Iterable[Variable] | None = None, **kwargs: Any
    ) -> Operation:
        """As :meth:`Optimizer.minimize`; ``decay_var_list`` are the variables to decay."""
        self._choose(decay_var_list)
        return super().minimize(*args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Variable]],
        global_step: Any = None,
        name: str | None = None,
        decay_var_list: Iterable[Variable] | None = None,
    ) -> Operation:
        """As :meth:`Optimizer.apply_gradients`; ``decay_var_list`` are the variables to decay."""
        self._choose(decay_var_list)
        return super().apply_gradients(grads_and_vars, global_step, name)

    def _choose(self, decay_var_list: Iterable[Variable] | None) -> None:
        if decay_var_list is not None:
            self._decayed = {var.op.name for var in flat_variables(decay_var_list)}

    def _weight_decay_of(self, var: Variable) -> str:
        decays = self._decayed is None or var.op.name in self._decayed
        return "weight_decay" if decays else super()._weight_decay_of(var)
