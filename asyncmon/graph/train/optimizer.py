"""The base class of optimizers: gradients of a loss, slots of variables, update ops.

TF1: ``tf.train.Optimizer``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from asyncmon.graph.core.build import (
    colocate_with,
    control_dependencies,
    convert_to_tensor,
    create_op,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType, float32
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.indexed_slices import IndexedSlices
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.shape import as_shape
from asyncmon.graph.ops.basic import cast, group
from asyncmon.graph.ops.gather import unique_rows
from asyncmon.graph.ops.variable_ops import assign, assign_add
from asyncmon.graph.variables.get_variable import make_slot
from asyncmon.graph.variables.partitioned import flat_variables
from asyncmon.graph.variables.variable import Variable, trainable_variables


class Optimizer(ABC):
    """Updates variables by the gradients of a loss. TF1: ``tf.train.Optimizer``.

    A subclass passes its update, slots and scalars to the constructor::

        super().__init__(use_locking, name, "Adagrad", {"accumulator": 0.1}, learning_rate=0.01)

    Args:
        update: the name given to :func:`~asyncmon.graph.ops.families.update_op`. A subclass without one
            overrides ``_apply_dense`` and ``_apply_sparse``.
        slots: the names and initial values of the slots of each variable, in the update's order.
        attrs: the attributes of the update op.
        **hyperparameters: the update's scalars, in its order: numbers, scalar tensors, or functions
            that return one.
    """

    GATE_NONE: ClassVar[int] = 0
    GATE_OP: ClassVar[int] = 1
    GATE_GRAPH: ClassVar[int] = 2

    # Whether equal rows of a sparse gradient are added up before the update.
    _sums_equal_rows: ClassVar[bool] = True

    @abstractmethod
    def __init__(
        self,
        use_locking: bool,
        name: str,
        update: str = "",
        slots: Mapping[str, float] | None = None,
        attrs: Mapping[str, Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        if not name:
            raise ValueError("Must specify the optimizer name")
        self._name = name
        self._update_type = update
        self._attrs = attrs
        self._hyperparameters = hyperparameters
        self._initial_slots = dict(slots or {})
        self._slots: dict[str, dict[Operation, Variable]] = {}
        self._non_slots: dict[tuple[Graph, str], Variable] = {}
        self._tensors: dict[str, Tensor] = {}  # the hyperparameters
        self._casts: dict[tuple[Tensor, DType, str], Tensor] = {}

    def get_name(self) -> str:
        """Return the name the optimizer was given."""
        return self._name

    # The three steps.

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Operation:
        """Return an operation that updates variables to reduce a loss. TF1: same name.

        Args:
            loss: a tensor, or a function without arguments that returns one.
            global_step: a variable that each step adds 1 to.
            var_list: the variables to change; by default the trainable ones.
            gate_gradients: one of ``GATE_NONE``, ``GATE_OP``, ``GATE_GRAPH``. All are equal: the writes
                of a run follow its reads.
            aggregation_method: as for :func:`gradients`.
            colocate_gradients_with_ops: as for :func:`gradients`.
            grad_loss: the incoming gradient of the loss; by default 1.
        """
        pairs = self.compute_gradients(
            loss, var_list, gate_gradients, aggregation_method, colocate_gradients_with_ops, grad_loss
        )
        if all(grad is None for grad, _ in pairs):
            raise ValueError(
                "No gradients provided for any variable, check your graph for ops that do not support "
                f"gradients, between variables {[str(v) for _, v in pairs]} and loss {loss}."
            )
        return self.apply_gradients(pairs, global_step, name)

    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Variable]]:
        """Return pairs (gradient or None, variable). Arguments as :meth:`minimize`. TF1: same name."""
        if gate_gradients not in (self.GATE_NONE, self.GATE_OP, self.GATE_GRAPH):
            raise ValueError(
                "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, "
                f"Optimizer.GATE_GRAPH.  Not {gate_gradients}"
            )
        value = convert_to_tensor(loss() if callable(loss) else loss)
        self._check_dtypes([value])
        variables = flat_variables(trainable_variables() if var_list is None else var_list)
        if not variables:
            raise ValueError("No variables to optimize.")
        for variable in variables:
            if not is_tensor_like(variable):
                raise TypeError(f"Argument is not a variable or a tensor: {variable!r}")
        grads = gradients(
            value, variables, grad_loss,
            colocate_gradients_with_ops=colocate_gradients_with_ops,
            aggregation_method=aggregation_method,
        )  # fmt: skip
        self._check_dtypes([v for g, v in zip(grads, variables, strict=True) if g is not None])
        return list(zip(grads, variables, strict=True))

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Variable]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return an operation that updates variables by gradients. TF1: same name.

        ``grads_and_vars`` are the pairs of :meth:`compute_gradients`, possibly with other gradients.
        The operation adds 1 to the variable ``global_step``.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("No variables provided.")
        for grad, variable in pairs:
            is_gradient = grad is None or is_tensor_like(grad) or np.asarray(grad).dtype.kind in "fiu"
            if not is_gradient:
                raise TypeError(
                    f"Gradient must be convertible to a Tensor or IndexedSlices, or None: {grad!r}"
                )
            if not isinstance(variable, Variable):
                raise TypeError(f"Variable must be a tf.Variable: {variable!r}")
        variables = [variable for grad, variable in pairs if grad is not None]
        if not variables:
            raise ValueError(f"No gradients provided for any variable: {[str(v) for _, v in pairs]}.")
        self._create_slots(variables)
        self._casts.clear()
        with name_scope(name, self._name) as scope:
            self._prepare()
            updates = []
            for grad, variable in pairs:
                if grad is not None:
                    with name_scope("update_" + variable.op.name), colocate_with(variable):
                        updates.append(_constrained(variable, self._update(grad, variable)))
            if global_step is None:
                train_op = self._finish(updates, scope)
            else:
                updated = self._finish(updates, "update")
                with control_dependencies([updated]), colocate_with(global_step):
                    train_op = assign_add(global_step, 1, name=scope).op
        train_ops = get_default_graph().get_collection_ref(GraphKeys.TRAIN_OP)
        if train_op not in train_ops:
            train_ops.append(train_op)
        return train_op

    def _update(self, grad: Any, variable: Variable) -> Operation:
        if not isinstance(grad, IndexedSlices):
            wanted = None if is_tensor_like(grad) else variable.dtype
            return self._apply_dense(convert_to_tensor(grad, wanted), variable).op
        values, indices = grad.values, grad.indices
        if self._sums_equal_rows:
            values, indices = unique_rows(values, indices)
        attrs = {"shape": as_shape(variable.shape)}
        indices = create_op("CheckIndices", (indices,), attrs)
        return self._apply_sparse(IndexedSlices(values, indices, grad.dense_shape), variable).op

    # State.

    def get_slot(self, var: Variable, name: str) -> Variable | None:
        """Return a slot of a variable, such as "momentum", or None. TF1: same name."""
        return self._slots.get(name, {}).get(var.op)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots, sorted. TF1: same name."""
        return sorted(self._slots)

    def variables(self) -> list[Variable]:
        """Return the optimizer's variables in the default graph, sorted by name. TF1: same name."""
        made = list(self._non_slots.values())
        made += [slot for slots in self._slots.values() for slot in slots.values()]
        graph = get_default_graph().root
        own = [variable for variable in made if variable.graph is graph]
        return sorted(own, key=lambda variable: variable.name)

    def _slot(
        self, variable: Variable, name: str, value: Any = 0.0, label: str | None = None
    ) -> Variable:
        """Return a slot of the variable; the first call creates it with ``value``, a tensor or number.

        ``label`` is the last part of the slot's name, by default the optimizer's name.
        """
        slots = self._slots.setdefault(name, {})
        if variable.op not in slots:
            slots[variable.op] = make_slot(variable, value, label or self._name)
        return slots[variable.op]

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Variable:
        """Return a slot with zeros; ``op_name`` is the last part of its name. TF1: same name."""
        return self._slot(var, slot_name, 0.0, op_name)

    def _get_or_make_slot(self, var: Variable, val: Any, slot_name: str, op_name: str) -> Variable:
        """As :meth:`_zeros_slot`, with an initial value. TF1: same name."""
        return self._slot(var, slot_name, val, op_name)

    def _non_slot(self, name: str, initial_value: Any, beside: Variable) -> Variable:
        """Return a variable of the optimizer; the first call in a graph creates it.

        It has the device of ``beside``.
        """
        key = get_default_graph().root, name
        if key not in self._non_slots:
            with colocate_with(beside):
                self._non_slots[key] = Variable(initial_value, name=name, trainable=False)
        return self._non_slots[key]

    # What a subclass may override.

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        """Create the slots of these variables."""
        for var in var_list:
            for name, value in self._initial_slots.items():
                self._slot(var, name, value)

    def _prepare(self) -> None:
        """Create the tensors of the hyperparameters; a number is float32, as in TF1."""
        for name, value in self._hyperparameters.items():
            value = self._value(value)
            self._tensors[name] = convert_to_tensor(value, preferred_dtype=float32, name=name)

    def _scalars(self, var: Variable) -> list[Tensor]:
        """Return the scalars of the update of a variable, in its order."""
        return list(self._tensors.values())

    def _apply_dense(self, grad: Tensor, var: Variable) -> Tensor | Operation:
        """Return the op that updates a variable by a gradient of its shape."""
        return create_op(f"Apply{self._update_type}", (*self._inputs(var), grad), self._attrs)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Tensor | Operation:
        """Return the op that updates rows of a variable by ``grad``, which has each row once."""
        inputs = (*self._inputs(var), grad.values, grad.indices)
        return create_op(f"SparseApply{self._update_type}", inputs, self._attrs)

    def _finish(self, update_ops: Sequence[Operation], name_scope: str) -> Operation:
        """Return the op that depends on all updates."""
        return group(*update_ops, name=name_scope)

    # Helpers.

    def _inputs(self, var: Variable) -> list[Any]:
        slots = [self._slot(var, name) for name in self._initial_slots]
        return [var, *slots, *self._in_dtype_of(var, *self._scalars(var))]

    @staticmethod
    def _value(value: Any) -> Any:
        """Return a hyperparameter; call it if it is a function."""
        return value() if callable(value) else value

    _call_if_callable = _value  # as TF1 calls it

    def _in_dtype_of(self, var: Variable, *scalars: Tensor) -> list[Tensor]:
        """Return scalars in the dtype of a variable; one cast per dtype and device."""
        of = var.dtype, var.device
        for scalar in scalars:
            if (scalar, *of) not in self._casts:
                self._casts[scalar, *of] = cast(scalar, var.dtype)
        return [self._casts[scalar, *of] for scalar in scalars]

    def _check_dtypes(self, tensors: Iterable[Any]) -> None:
        for tensor in tensors:
            if not tensor.dtype.is_floating:
                raise ValueError(
                    f"Invalid type {tensor.dtype!r} for {tensor.name}, expected: float16, "
                    "float32 or float64."
                )


def _constrained(variable: Variable, update: Operation) -> Operation:
    """Return an operation that updates the variable and applies its constraint, if any."""
    if variable.constraint is None:
        return update
    with control_dependencies([update]):
        return assign(variable, variable.constraint(variable.read_value())).op
