"""Writing at vectors of coordinates: into new tensors, and into variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, shape_tensor
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, VariableOpDef, register
from asyncmon.graph.core.rules import shape_from
from asyncmon.graph.core.shape import merge
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import cast
from asyncmon.graph.ops.gather import gather_nd, nd_index
from asyncmon.graph.ops.reduce import reduce_sum
from asyncmon.graph.ops.variable_ops import operand

_INTS = (dtypes.int32, dtypes.int64)


# --- variables ------------------------------------------------------------------------------------
def _nd_rule(ref: Spec, indices: Spec, updates: Spec) -> Spec:
    rules.check_dtype(indices.dtype, _INTS, "indices")
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


def _set(ref: Array, index: Any, updates: Array) -> None:
    ref[index] = updates


_NdCheck = "CheckCoordinates"
register(OpDef(_NdCheck, lambda indices, *, shape: (nd_index(indices, shape, 0), indices)[1],
    lambda indices, *, shape: Spec(indices.dtype, indices.shape), aliases=True))  # fmt: skip
register(VariableOpDef("ScatterNdAdd", None, _nd_rule, ZERO, update=_nd_update(np.add.at)))
register(VariableOpDef("ScatterNdSub", None, _nd_rule, ZERO, update=_nd_update(np.subtract.at)))
register(VariableOpDef("ScatterNdUpdate", None, _nd_rule, ZERO, update=_nd_update(_set)))


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

    Args:
        ref: the variable.
        indices: integers, whose last dimension holds coordinates of the first dimensions of the
            variable. InvalidArgumentError in the run for those out of range; nothing is then written.
        updates: of the dtype of the variable; equal coordinates get all of theirs.
        use_locking: without effect: a run's writes are one transaction.
        name: the node's name.
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
    """Set a variable at vectors of coordinates; see :func:`scatter_nd_add`. Of equal ones the last."""
    return _scatter_nd("ScatterNdUpdate", ref, indices, updates, name)


# --- sparse_to_dense ------------------------------------------------------------------------------
def _to_dense(
    indices: Array, sizes: Array, values: Array, default: Array, *, validate_indices: bool
) -> Array:
    result = np.full(sizes.tolist(), default, np.asarray(values).dtype)
    at: Any = _coordinates(indices, len(sizes))
    inside = nd_index(at, result.shape, 0)
    if validate_indices and len(at) > 1:
        flat: Any = np.ravel_multi_index(inside, result.shape)
        wrong = np.flatnonzero(flat[1:] <= flat[:-1])
        if wrong.size:
            i = int(wrong[0]) + 1
            how = "repeated" if flat[i] == flat[i - 1] else "out of order"
            raise InvalidArgumentError(f"indices[{i}] = {at[i].tolist()} is {how}")
    if np.ndim(values) and len(values) != len(at):
        raise InvalidArgumentError(
            f"sparse_values has {len(values)} elements, sparse_indices has {len(at)} rows"
        )
    result[inside] = values
    return result


def _coordinates(indices: Array, rank: int) -> Array:
    """Return indices, a matrix of a row each, a vector or a scalar, as a matrix."""
    if np.ndim(indices) == 2:
        return indices
    return np.reshape(indices, (-1, 1)) if rank == 1 else np.reshape(indices, (1, -1))


def _to_dense_rule(indices: Spec, sizes: Spec, values: Spec, default: Spec, **_attrs: Any) -> Spec:
    rules.check_dtype(indices.dtype, _INTS, "sparse_indices")
    rules.check_same_dtype("SparseToDense", indices, sizes, ("sparse_indices", "output_shape"))
    rules.check_same_dtype("SparseToDense", values, default, ("sparse_values", "default_value"))
    rules.with_rank(default.shape, 0)
    return Spec(values.dtype, shape_from(sizes))


def _to_dense_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    indices, _, values, default = op.inputs
    mask = create_op(op.type, (*op.inputs[:2], create_op("ZerosLike", (values,)),
        create_op("OnesLike", (default,))), op.attrs)  # fmt: skip
    at = create_op("Reshape", (indices, [-1, grad.shape.ndims or 1]))
    of_values = gather_nd(grad, at)
    if values.shape.ndims == 0:
        of_values = reduce_sum(of_values)
    return [None, None, of_values, reduce_sum(grad * mask)]


register(OpDef("SparseToDense", _to_dense, _to_dense_rule, _to_dense_gradient))


def sparse_to_dense(
    sparse_indices: Any,
    output_shape: Any,
    sparse_values: Any,
    default_value: Any = 0,
    validate_indices: bool = True,
    name: str | None = None,
) -> Tensor:
    """Return a tensor with values at some places and another one elsewhere. TF1: same name.

    Args:
        sparse_indices: coordinates, a row each; a vector where the result is one; or a scalar.
        output_shape: of the result.
        sparse_values: a value for each row, or one for all.
        default_value: elsewhere.
        validate_indices: fail in the run unless the rows are in order, each once.
        name: the node's name.

    InvalidArgumentError in the run for coordinates out of range.
    """
    at, values = convert_to_tensor(sparse_indices), convert_to_tensor(sparse_values)
    rules.check_dtype(at.dtype, _INTS, "sparse_indices")
    sizes = shape_tensor(output_shape)
    if not is_tensor_like(output_shape):
        sizes = cast(sizes, at.dtype)
    default: Any = default_value
    if type(default) is int and default == 0:
        default = b"" if values.dtype is dtypes.string else values.dtype.numpy.type(0)
    default = convert_to_tensor(default, values.dtype)
    attrs = {"validate_indices": validate_indices}
    return create_op("SparseToDense", (at, sizes, values, default), attrs, name)
