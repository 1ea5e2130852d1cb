"""Constants, placeholders, identity, groups, casts."""

from __future__ import annotations

import builtins
from math import prod
from typing import Any

import numpy as np

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_op,
    create_operation,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.convert import const, is_tensor_like, to_array
from asyncmon.graph.core.dtypes import DType, as_dtype
from asyncmon.graph.core.nest import flatten
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import SAME, ZERO, OpDef, Spec, register
from asyncmon.graph.core.shape import Shape, TensorShape, as_shape, is_compatible
from asyncmon.graph.numerics.arrays import Array


def constant(
    value: Any, dtype: Any = None, shape: Any = None, name: str = "Const", verify_shape: bool = False
) -> Tensor:
    """Return a constant tensor. TF1: ``tf.constant``.

    Args:
        value: a number, string, array or nested list.
        dtype: by default float32 or int32 for Python numbers, an array's own dtype.
        shape: the shape to fill; the last element is repeated for missing ones.
        verify_shape: reject a value that does not already have ``shape``.

    Raises:
        TypeError: the dtype cannot hold the value, or ``verify_shape`` fails.
        ValueError: more elements than ``shape`` has.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    array = to_array(value, wanted)
    if shape is not None:
        dims = tuple_of_ints(shape, "A fully defined shape is needed")
        if verify_shape and array.shape != dims and 0 not in dims:
            raise TypeError(f"Expected Tensor's shape: {dims}, got {array.shape}.")
        array = filled(array, dims)
    return const(get_default_graph(), array, wanted, name)


def tuple_of_ints(shape: Any, error: str) -> builtins.tuple[int, ...]:
    """Return a completely known shape. ValueError if a dimension is unknown."""
    dims = as_shape(shape)
    if dims is None or None in dims:
        raise ValueError(f"{error}, got {shape!r}.")
    return builtins.tuple(d for d in dims if d is not None)


def filled(array: np.ndarray[Any, Any], dims: builtins.tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Fill a shape with an array; its last element, or zero, is repeated at the end."""
    needed = prod(dims)
    if not needed or not array.size:
        return np.full(dims, b"" if array.dtype == object else 0, array.dtype)
    if needed < array.size:
        raise ValueError(f"Too many elements provided. Needed at most {needed}, got {array.size}.")
    return np.pad(array.reshape(-1), (0, needed - array.size), "edge").reshape(dims)


def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Tensor:
    """Return a tensor whose value must be fed. TF1: ``tf.placeholder``.

    ``shape`` is the static shape of the values: None, or a sequence with None for any size.
    """
    attrs = {"dtype": as_dtype(dtype), "shape": as_shape(shape)}
    return create_op("Placeholder", (), attrs, name)


def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """Return a tensor of ``shape`` that is ``input`` unless it is fed. TF1: same name."""
    return create_op("PlaceholderWithDefault", (input,), {"shape": as_shape(shape)}, name)


def identity(input: Any, name: str | None = None) -> Tensor:
    """Return a tensor with the same value. TF1: ``tf.identity``.

    The identity of a variable is its value after the control dependencies.
    """
    return create_op("Identity", (input,), None, name)


def stop_gradient(input: Any, name: str | None = None) -> Tensor:
    """Return a tensor with the same value and no gradient. TF1: ``tf.stop_gradient``."""
    return create_op("StopGradient", (input,), None, name)


def no_op(name: str | None = None) -> Operation:
    """Return an operation without effect, for its control dependencies. TF1: ``tf.no_op``."""
    return create_operation("NoOp", (), None, name)


def group(*inputs: Any, name: str | None = None) -> Operation:
    """Return an operation that runs after all inputs. TF1: ``tf.group``.

    The inputs are tensors, operations, variables, None (skipped), or nested lists of these.
    """
    with control_dependencies([item for item in flatten(inputs) if item is not None]):
        return no_op(name or "group_deps")


def tuple(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """Return the tensors, each computed only after all of them. TF1: ``tf.tuple``."""
    present = [item for item in tensors if item is not None]
    if not any(is_tensor_like(item) for item in present):
        raise ValueError(f"Must have at least one Tensor. Received: {tensors!r}")
    with name_scope(name, "tuple"):
        gate = group(*present, *(control_inputs or ()), name="group_deps")
        with control_dependencies([gate]):
            return [
                identity(convert_to_tensor(item), "control_dependency")
                if is_tensor_like(item)
                else item and gate
                for item in tensors
            ]


def _default_spec(x: Spec, *, shape: Shape) -> Spec:
    if not is_compatible(x.shape, shape):
        raise ValueError(f"A default of shape {TensorShape(x.shape)} does not fit {TensorShape(shape)}")
    return Spec(x.dtype, shape)


def _same(x: Any, **_attrs: object) -> Any:
    return x


def _same_spec(x: Spec) -> Spec:
    return Spec(x.dtype, x.shape, x.value, x.dims)


register(OpDef("Placeholder", None, lambda *, dtype, shape: Spec(dtype, shape)))
register(OpDef("PlaceholderWithDefault", _same, _default_spec, SAME, aliases=True, stateful=True))
register(OpDef("Identity", _same, _same_spec, SAME, aliases=True))
register(OpDef("StopGradient", _same, _same_spec, ZERO, aliases=True))
register(OpDef("NoOp", None, lambda: ()))


# --- dtype ----------------------------------------------------------------------------------------
def _cast(x: Array, *, dtype: DType, out: Array | None = None) -> Any:
    if np.iscomplexobj(x) and not dtype.is_complex and dtype is not dtypes.bool:
        x = np.real(x)  # as TF1 does, silently; numpy warns
    if out is None:
        return np.asarray(x).astype(dtype.numpy)
    np.copyto(out, x, casting="unsafe")
    return out


def _cast_rule(x: Spec, *, dtype: DType) -> Spec:
    if dtypes.string in (x.dtype, dtype) and x.dtype is not dtype:
        raise TypeError(
            f"Cast from {x.dtype.name} to {dtype.name} is not supported; use py_func to convert text."
        )
    holds_dims = dtype in (dtypes.int32, dtypes.int64)  # the smaller integers wrap around
    return Spec(dtype, x.shape, dims=x.known_dims() if holds_dims else None)


def _cast_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    source = op.inputs[0].dtype
    if not (source.is_floating and op.attrs["dtype"].is_floating):
        return [None]
    return [create_op("Cast", (grad,), {"dtype": source})]


register(OpDef("Cast", _cast, _cast_rule, _cast_gradient, out=True))


def cast(x: Any, dtype: Any, name: str | None = None) -> Tensor:
    """Convert the elements to another dtype; floats are truncated to integers. TF1: ``tf.cast``.

    A tensor of this dtype is returned unchanged.
    """
    wanted = as_dtype(dtype)
    tensor = convert_to_tensor(x)
    if tensor.dtype is wanted:
        return tensor
    return create_op("Cast", (tensor,), {"dtype": wanted}, name)


def in_single(x: Any) -> Tensor:
    """Cast float16 to float32, for intermediate results; return any other tensor unchanged."""
    tensor = convert_to_tensor(x)
    return cast(tensor, dtypes.float32) if tensor.dtype is dtypes.float16 else tensor
