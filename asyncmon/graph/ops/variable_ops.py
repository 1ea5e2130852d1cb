"""The ops that read and write variables: ``tf.assign``, ``tf.scatter_add``, ``tf.count_up_to`` etc."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncmon.errors import OutOfRangeError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import (
    control_dependencies,
    create_op,
    graph_of,
    name_scope,
)
from asyncmon.graph.core.convert import is_tensor_like, static_int, to_tensor
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import SAME, ZERO, OpDef, Spec, VariableOpDef, register
from asyncmon.graph.core.rules import like_first
from asyncmon.graph.core.shape import TensorShape, as_shape, is_compatible, merge
from asyncmon.graph.core.signatures import named
from asyncmon.graph.numerics.arrays import Array, check_inside, nd_index
from asyncmon.graph.ops.basic import identity

_INDEX_TYPES = (dtypes.int32, dtypes.int64)


# --- reading ----------------------------------------------------------------------------------------
def _report(*initialized: Any, names: tuple[str, ...]) -> Array:
    missing = [name.encode() for name, ok in zip(names, initialized, strict=True) if not ok]
    return np.array(missing, dtype=object)


register(VariableOpDef("VariableV2", None,
    lambda *, variable, dtype, shape, container="": Spec(dtype, shape),
    refs=0, changes=False))  # fmt: skip
register(VariableOpDef("ReadVariable", None, like_first, SAME, changes=False))
register(VariableOpDef("InitializedValue", lambda value, initial: initial if value is None else value,
    lambda ref, initial: Spec(ref.dtype, initial.shape if ref.shape is None else ref.shape),
    changes=False, aliases=True))  # fmt: skip
register(VariableOpDef("IsVariableInitialized", lambda value: np.bool_(value is not None),
    lambda ref: Spec(dtypes.bool, ()), changes=False))  # fmt: skip
register(OpDef("ReportUninitializedVariables", _report,
    lambda *initialized, names: Spec(dtypes.string, (None,)), stateful=True))  # fmt: skip


def is_variable_initialized(variable: Any, name: str | None = None) -> Tensor:
    """Return a bool scalar: true if the variable is initialised. TF1: same name."""
    return create_op("IsVariableInitialized", (variable,), None, name)


# --- assigning --------------------------------------------------------------------------------------
def _assign_rule(ref: Spec, value: Spec, *, validate_shape: bool = True) -> Spec:
    if not is_compatible(ref.shape, value.shape):
        hint = "" if validate_shape else " (make it with validate_shape=False if it is to change)"
        raise ValueError(
            f"Shapes must be equal: the variable has {TensorShape(ref.shape)}{hint}, "
            f"the value {TensorShape(value.shape)}"
        )
    return Spec(ref.dtype, value.shape if ref.shape is None else ref.shape)


register(VariableOpDef("Assign", lambda ref, value, *, validate_shape: value, _assign_rule,
    aliases=True, initializes=True))  # fmt: skip
register(VariableOpDef("AssignAdd", np.add, _assign_rule, update=operator.iadd, blockwise=True))
register(VariableOpDef("AssignSub", np.subtract, _assign_rule, update=operator.isub, blockwise=True))


def assign(
    ref: Any,
    value: Any,
    validate_shape: bool | None = None,
    use_locking: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Return a tensor that sets a variable, and is its new value. TF1: ``tf.assign``.

    ``validate_shape=False`` allows another shape, if the variable was created with it.
    """
    attrs = {"validate_shape": validate_shape is None or validate_shape}
    return create_op("Assign", (ref, operand("Assign", ref, value)), attrs, name)


def assign_add(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Return a tensor that adds to a variable, and is its new value. TF1: ``tf.assign_add``."""
    return create_op("AssignAdd", (ref, operand("AssignAdd", ref, value)), None, name)


def assign_sub(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Tensor:
    """Return a tensor that subtracts from a variable. TF1: ``tf.assign_sub``."""
    return create_op("AssignSub", (ref, operand("AssignSub", ref, value)), None, name)


def operand(type: str, ref: Any, value: Any) -> Tensor:
    """Convert the value of a write to a tensor of the variable's dtype and graph."""
    graph = graph_of((ref,))
    if is_tensor_like(value) and value.dtype is not ref.dtype:
        raise TypeError(
            f"Input 'value' of {type!r} Op has type {value.dtype.name} that does not match type "
            f"{ref.dtype.name} of argument 'ref'; cast() it."
        )
    return to_tensor(graph, value, ref.dtype)


# --- parts ------------------------------------------------------------------------------------------
def assign_part(ref: Any, part: Operation, value: Any, name: str | None = None) -> Tensor:
    """Return a tensor that sets a part of a variable, given by its slice, and is the new value."""
    inputs = (ref, operand("StridedSliceAssign", ref, value), *part.inputs[1:])
    return create_op("StridedSliceAssign", inputs, part.attrs, name)


# --- scattering -------------------------------------------------------------------------------------
def _check_rule(indices: Spec, *, shape: tuple[int, ...]) -> Spec:
    rules.check_dtype(indices.dtype, _INDEX_TYPES, "indices")
    return Spec(indices.dtype, indices.shape)


register(OpDef("CheckIndices", lambda indices, *, shape: check_inside(indices, shape[0]), _check_rule,
    aliases=True))  # fmt: skip
register(OpDef("CheckCoordinates", lambda indices, *, shape: (nd_index(indices, shape, 0), indices)[1],
    _check_rule, aliases=True))  # fmt: skip


def _writer(op_type: str, write: Callable[[Array, Any, Array], Any], doc: str) -> Callable[..., Tensor]:
    """Register an op that writes parts of a variable, and return its public function."""
    by_coordinates = "Nd" in op_type
    check = "CheckCoordinates" if by_coordinates else "CheckIndices"

    def rule(ref: Spec, indices: Spec, updates: Spec) -> Spec:
        at: Any = indices.shape
        depth: int | None = 1
        if by_coordinates and at is not None:
            *at, depth = rules.with_rank_at_least(at, 1) or at
        if ref.shape is not None and at is not None and depth is not None:
            rules.with_rank_at_least(ref.shape, depth)
            if updates.shape != ():
                merge((*at, *ref.shape[depth:]), updates.shape)
        return like_first(ref)

    def update(ref: Array, indices: Array, updates: Array) -> None:
        write(ref, (nd_index(indices, ref.shape, 0) or ...) if by_coordinates else indices, updates)

    def scatter(
        ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        shape = as_shape(ref.get_shape())
        if not shape or None in (shape if by_coordinates else shape[:1]):
            raise ValueError(f"Variable {ref.name!r} of shape {ref.get_shape()} has no known rows.")
        at = create_op(check, (to_tensor(graph_of((ref,)), indices),), {"shape": shape})
        return create_op(op_type, (ref, at, operand(op_type, ref, updates)), None, name)

    register(VariableOpDef(op_type, None, rule, ZERO, update=update))
    label = re.sub("(?!^)([A-Z])", r"_\1", op_type).lower()
    return named(scatter, label, f"{doc} TF1: ``tf.{label}``.\n\n{_WHERE[by_coordinates]}", __name__)


_WHERE = (
    """The ``indices`` are integers of any shape, of rows of the variable. The ``updates`` have their
    shape followed by that of a row, or are a scalar. InvalidArgumentError in the run, before any write,
    if an index is out of range.""",
    """The last dimension of ``indices`` has coordinates of the first dimensions of the variable.
    InvalidArgumentError in the run, before any write, if some are out of range.""",
)

# fmt: off
scatter_add = _writer("ScatterAdd", np.add.at,
    "Add to rows of a variable; updates of equal indices add up.")
scatter_sub = _writer("ScatterSub", np.subtract.at, "Subtract from rows of a variable.")
scatter_update = _writer("ScatterUpdate", operator.setitem,
    "Set rows of a variable; the last update of equal indices wins.")
scatter_nd_add = _writer("ScatterNdAdd", np.add.at,
    "Add to elements or slices of a variable; updates of equal coordinates add up.")
scatter_nd_sub = _writer("ScatterNdSub", np.subtract.at,
    "Subtract from elements or slices of a variable.")
scatter_nd_update = _writer("ScatterNdUpdate", operator.setitem,
    "Set elements or slices of a variable; the last update of equal coordinates wins.")
# fmt: on


# --- counting up ----------------------------------------------------------------------------------
def _below(value: Array, *, limit: int) -> Array:
    if value >= limit:
        raise OutOfRangeError(f"Reached limit of {limit}")
    return value


def _below_rule(value: Spec, *, limit: int) -> Spec:
    rules.check_dtype(value.dtype, _INDEX_TYPES, "ref")
    rules.with_rank(value.shape, 0)
    return Spec(value.dtype, value.shape)


register(OpDef("CheckLimit", _below, _below_rule, ZERO, aliases=True, stateful=True))


def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Increment an integer variable and return its previous value. TF1: ``tf.count_up_to``.

    OutOfRangeError in the run, before any write, if the value is ``limit``.
    """
    with name_scope(name, "CountUpTo"):
        value = create_op("CheckLimit", (ref,), {"limit": static_int(limit, "limit")})
        with control_dependencies([value]):
            added = assign_add(ref, 1)
        with control_dependencies([added]):
            return identity(value)
