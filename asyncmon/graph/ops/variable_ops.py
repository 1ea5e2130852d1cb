"""The ops that read and write variables: ``tf.assign``, ``tf.scatter_add``, ``tf.count_up_to`` etc."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from asyncmon.errors import OutOfRangeError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_op,
    graph_of,
    name_scope,
)
from asyncmon.graph.core.convert import is_tensor_like, static_int, to_tensor
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import SAME, ZERO, OpDef, Spec, VariableOpDef, register
from asyncmon.graph.core.rules import like_first
from asyncmon.graph.core.shape import TensorShape, as_shape, is_compatible, merge
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
def _indices_rule(indices: Spec, *, size: int) -> Spec:
    if not indices.dtype.is_integer:
        raise TypeError(f"Indices must be integers, got {indices.dtype.name}")
    return Spec(indices.dtype, indices.shape)


def _scatter_rule(ref: Spec, indices: Spec, updates: Spec) -> Spec:
    if ref.shape is not None and indices.shape is not None and updates.shape != ():
        expected = indices.shape + ref.shape[1:]
        if not is_compatible(expected, updates.shape):
            raise ValueError(
                f"Updates must have shape {TensorShape(expected)} (of the indices, then of a row), "
                f"but have {TensorShape(updates.shape)}"
            )
    return like_first(ref)


register(OpDef("CheckIndices", lambda indices, *, size: check_inside(indices, size), _indices_rule,
    aliases=True))  # fmt: skip
register(VariableOpDef("ScatterAdd", None, _scatter_rule, ZERO, update=np.add.at))
register(VariableOpDef("ScatterSub", None, _scatter_rule, ZERO, update=np.subtract.at))
register(VariableOpDef("ScatterUpdate", None, _scatter_rule, ZERO, update=operator.setitem))


def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Add to rows of a variable; updates of equal indices add up. TF1: ``tf.scatter_add``.

    Args:
        ref: the variable, of shape ``[n, ...]``.
        indices: integers of any shape; InvalidArgumentError in the run unless all are in [0, n).
        updates: a tensor of the shape of ``indices`` followed by that of a row, or a scalar.
    """
    return scatter("ScatterAdd", ref, indices, updates, name)


def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Subtract from rows of a variable. TF1: ``tf.scatter_sub``. See :func:`scatter_add`."""
    return scatter("ScatterSub", ref, indices, updates, name)


def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Set rows of a variable; the last update of equal indices wins. TF1: ``tf.scatter_update``."""
    return scatter("ScatterUpdate", ref, indices, updates, name)


def scatter(type: str, ref: Any, indices: Any, updates: Any, name: str | None) -> Tensor:
    shape = as_shape(ref.get_shape())
    if not shape or shape[0] is None:
        raise ValueError(f"Variable {ref.name!r} of shape {ref.get_shape()} has no rows to scatter to.")
    at = to_tensor(graph_of((ref,)), indices)
    rows = create_op("CheckIndices", (at,), {"size": int(shape[0])})
    return create_op(type, (ref, rows, operand(type, ref, updates)), None, name)


# --- scattering by coordinates ----------------------------------------------------------------------
def _nd_rule(ref: Spec, indices: Spec, updates: Spec) -> Spec:
    rules.check_dtype(indices.dtype, _INDEX_TYPES, "indices")
    rules.check_same_dtype("ScatterNd", ref, updates, ("ref", "updates"))
    at = rules.with_rank_at_least(indices.shape, 1)
    if ref.shape is not None and at is not None and at[-1] is not None:
        if at[-1] > len(ref.shape):
            raise ValueError(
                f"indices.shape[-1] must be <= the rank of the tensor, got {rules.text(at)} "
                f"and {rules.text(ref.shape)}"
            )
        merge((*at[:-1], *ref.shape[at[-1] :]), updates.shape)
    return Spec(ref.dtype, ref.shape)


def _nd_update(write: Callable[[Array, Any, Array], Any]) -> Callable[..., None]:
    def update(ref: Array, indices: Array, updates: Array) -> None:
        write(ref, nd_index(indices, ref.shape, 0) or ..., updates)

    return update


_NdCheck = "CheckCoordinates"
register(OpDef(_NdCheck, lambda indices, *, shape: (nd_index(indices, shape, 0), indices)[1],
    lambda indices, *, shape: Spec(indices.dtype, indices.shape), aliases=True))  # fmt: skip
register(VariableOpDef("ScatterNdAdd", None, _nd_rule, ZERO, update=_nd_update(np.add.at)))
register(VariableOpDef("ScatterNdSub", None, _nd_rule, ZERO, update=_nd_update(np.subtract.at)))
register(VariableOpDef("ScatterNdUpdate", None, _nd_rule, ZERO, update=_nd_update(operator.setitem)))


def _scatter_nd(op_type: str, ref: Any, indices: Any, updates: Any, name: str | None) -> Tensor:
    sizes = ref.get_shape()
    if not sizes.is_fully_defined():
        raise ValueError(f"Variable {ref.name!r} of shape {sizes} needs a known one to scatter to.")
    attrs = {"shape": tuple(sizes.as_list())}
    at = create_op(_NdCheck, (convert_to_tensor(indices),), attrs)
    return create_op(op_type, (ref, at, operand(op_type, ref, updates)), None, name)


def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Add to elements or slices of a variable at vectors of coordinates. TF1: same name.

    The last dimension of ``indices`` has coordinates of the first dimensions of the variable; updates
    of equal ones add up. InvalidArgumentError in the run, before any write, if some are out of range.
    """
    return _scatter_nd("ScatterNdAdd", ref, indices, updates, name)


def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Tensor:
    """Subtract from a variable at vectors of coordinates; see :func:`scatter_nd_add`."""
    return _scatter_nd("ScatterNdSub", ref, indices, updates, name)


def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Tensor:
    """Set a variable at coordinates, see :func:`scatter_nd_add`; the last of equal ones wins."""
    return _scatter_nd("ScatterNdUpdate", ref, indices, updates, name)


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
