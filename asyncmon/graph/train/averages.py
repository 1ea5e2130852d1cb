"""Moving averages of variables and tensors. TF1: ``tf.train.ExponentialMovingAverage``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from asyncmon.graph.core.build import control_dependencies, convert_to_tensor, create_op, name_scope
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import VariableOpDef, register
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import cast, group
from asyncmon.graph.ops.elementwise import minimum
from asyncmon.graph.ops.families import update_rule
from asyncmon.graph.variables.get_variable import make_slot
from asyncmon.graph.variables.variable import (
    Variable,
    global_variables,
    moving_average_variables,
    trainable_variables,
)


def _follow(average: Array, decay: Array, value: Array) -> None:
    step = np.subtract(value, average)
    step *= 1 - decay
    average += step


def _follow_unbiased(average: Array, biased: Array, count: Array, decay: Array, value: Array) -> None:
    """Correct the bias towards zero, as Adam does for its moments."""
    _follow(biased, decay, value)
    count += 1
    np.divide(biased, 1 - np.power(decay, count), out=average)


register(VariableOpDef("AssignMovingAverage", None, update_rule(1), update=_follow, blockwise=True))
register(VariableOpDef("AssignUnbiasedAverage", None,
    lambda average, biased, count, decay, value: update_rule(2)(average, biased, decay, value),
    refs=3, update=_follow_unbiased))  # fmt: skip


def assign_moving_average(
    variable: Variable, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Tensor:
    """Update an average to ``decay * average + (1 - decay) * value`` and return it.

    TF1: same name, in ``tensorflow.python.training.moving_averages``. ``zero_debias`` corrects the
    bias of an average that started at zero; it adds the variables ``biased`` and ``local_step``.
    """
    target = convert_to_tensor(value, variable.dtype)
    weight = cast(convert_to_tensor(decay, preferred_dtype=variable.dtype), variable.dtype)
    update, refs = "AssignMovingAverage", [variable]
    if zero_debias:
        update = "AssignUnbiasedAverage"
        refs += [make_slot(variable, 0.0, "biased"), make_slot(variable, 0.0, "local_step", shape=[])]
    return create_op(update, (*refs, weight, target), None, name or "AssignMovingAvg")


def _key(value: Any) -> Tensor:
    """Return the key of a variable or tensor: its tensor, as names are unique in one graph only."""
    tensor: Tensor = getattr(value, "_as_graph_element", lambda: value)()
    return tensor


def _by_save_name(variables: Iterable[Variable]) -> dict[str, list[Variable]]:
    found: dict[str, list[Variable]] = {}
    for variable in dict.fromkeys(variables):
        found.setdefault(variable.save_name, []).append(variable)
    return found


class ExponentialMovingAverage:
    """Averages of variables and tensors: ``average = decay * average + (1 - decay) * value``.

    TF1: ``tf.train.ExponentialMovingAverage``.

    Args:
        decay: the weight of the old average; close to 1 for slow averages.
        num_updates: a step count, a tensor or a variable. It limits the decay to
            ``(1 + num_updates) / (10 + num_updates)``, so that averages move fast at first.
        zero_debias: correct the bias of averages of tensors, which start at zero.
        name: the last part of the names of the averages.

    Example::

        averages = train.ExponentialMovingAverage(0.999)
        with control_dependencies([train_op]):
            step = averages.apply([w, b])
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        self.name = name
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._averages: dict[Tensor, Variable] = {}

    def apply(self, var_list: Iterable[Any] | None = None) -> Operation:
        """Create averages and return an operation that updates them. TF1: same name.

        The average of a variable starts at its initial value, that of a tensor at zero. Later calls
        may name the same or other ones. The default is all trainable variables.
        """
        values = list(trainable_variables() if var_list is None else var_list)
        for value in values:
            if not value.dtype.is_floating:
                raise TypeError(f"The variables must be half, float, or double: {value.name}")
            if _key(value) not in self._averages:
                self._averages[_key(value)] = self._make(value)
        with name_scope(self.name) as scope:
            decay = convert_to_tensor(self._decay, preferred_dtype="float32", name="decay")
            if self._num_updates is not None:
                count = cast(self._num_updates, decay.dtype)
                decay = minimum(decay, (count + 1) / (count + 10))
            updates = [
                assign_moving_average(
                    self._averages[_key(value)],
                    value,
                    decay,
                    zero_debias=self._zero_debias and not isinstance(value, Variable),
                )
                for value in values
            ]
            return group(*updates, name=scope)

    def _make(self, value: Any) -> Variable:
        if not isinstance(value, Variable):
            return make_slot(value, 0.0, self.name)
        value.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, value)
        with control_dependencies(None):
            return make_slot(value, value.initialized_value(), self.name)

    def average(self, var: Any) -> Variable | None:
        """Return the average of a variable or tensor, or None. TF1: same name."""
        return self._averages.get(_key(var))

    def average_name(self, var: Any) -> str:
        """Return the name of the average of a variable or tensor, existing or not. TF1: same name."""
        if _key(var) in self._averages:
            return self._averages[_key(var)].op.name
        name: str = var.graph.unique_name(f"{var.op.name}/{self.name}", mark_as_used=False)
        return name

    def variables_to_restore(self, moving_avg_variables: Iterable[Any] | None = None) -> dict[str, Any]:
        """Return the variables to restore, by the names in the checkpoint. TF1: same name.

        The variables given are restored from their averages, for an evaluation. The default is the
        trainable variables and the arguments of :meth:`apply`. The parts of a variable are a list.
        """
        if moving_avg_variables is None:
            moving_avg_variables = [*trainable_variables(), *moving_average_variables()]
        averaged = _by_save_name(moving_avg_variables)
        names = {self._saved_name(found[0]): found for found in averaged.values()}
        for name, found in _by_save_name(global_variables()).items():
            if name not in averaged and name not in names:
                names[name] = found
        return {
            name: found[0] if found[0]._save_slice_info is None else found
            for name, found in names.items()
        }

    def _saved_name(self, variable: Variable) -> str:
        """Return the name of an average in checkpoints."""
        if _key(variable) in self._averages:
            return self._averages[_key(variable)].save_name
        name = self.average_name(variable)
        return name.replace(variable.op.name, variable.save_name, 1)
