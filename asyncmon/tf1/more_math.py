"""Functions of TF1 that are made of a few ops."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph import IndexedSlices, TensorShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph import Tensor

__all__ = [
    "accumulate_n", "broadcast_dynamic_shape", "broadcast_static_shape",
    "convert_to_tensor_or_indexed_slices", "count_nonzero", "identity_n", "log_sigmoid",
    "matrix_transpose", "saturate_cast", "scalar_mul",
]  # fmt: skip


def accumulate_n(
    inputs: Sequence[Any], shape: Any = None, tensor_dtype: Any = None, name: str | None = None
) -> Tensor:
    """Return the sum of tensors of one shape and dtype. TF1: same name.

    Args:
        inputs: one or more tensors.
        shape: what they must have.
        tensor_dtype: likewise.
        name: the op's name.

    Raises:
        TypeError: the dtype is another one.
        ValueError: there are no inputs, or shapes that are not compatible.
    """
    if not isinstance(inputs, list | tuple) or not inputs:
        raise ValueError(f"inputs must be a list of at least one tensor, got {inputs!r}.")
    tensors = [g.convert_to_tensor(x) for x in inputs]
    if tensor_dtype is not None and tensors[0].dtype != g.as_dtype(tensor_dtype):
        raise TypeError(f"tensor_dtype is {tensor_dtype}, but input is of type {tensors[0].dtype}")
    total = g.add_n(tensors, name)
    if shape is not None:
        total.set_shape(shape)
    return total


def scalar_mul(scalar: Any, x: Any, name: str | None = None) -> Any:
    """Return a tensor, or :class:`~asyncmon.graph.IndexedSlices`, times a scalar. TF1: same name.

    Raises:
        ValueError: the scalar is known to have a shape that is not [].
    """
    slices = isinstance(x, IndexedSlices)
    values = x.values if slices else g.convert_to_tensor(x)
    factor = g.convert_to_tensor(scalar, dtype=values.dtype, name="scalar")
    if factor.shape.ndims not in (None, 0):
        raise ValueError(f"Only scalar multiply works, got shape {factor.shape}")
    product = g.multiply(factor, values, name)
    return IndexedSlices(product, x.indices, x.dense_shape) if slices else product


def count_nonzero(
    input_tensor: Any = None,
    axis: Any = None,
    keepdims: bool | None = None,
    dtype: Any = g.int64,
    name: str | None = None,
    reduction_indices: Any = None,
    keep_dims: bool | None = None,
    input: Any = None,
) -> Tensor:
    """Return how many elements are not zero, false or empty, along axes. TF1: same name."""
    if input_tensor is not None and input is not None:
        raise ValueError("Cannot specify both 'input_tensor' and 'input'.")
    with g.name_scope(name, "count_nonzero", [input_tensor if input is None else input]):
        x = g.convert_to_tensor(input_tensor if input is None else input)
        zero = "" if x.dtype == g.string else False if x.dtype == g.bool else 0
        nonzero = g.cast(g.not_equal(x, g.constant(zero, x.dtype)), g.int64)
        count = g.reduce_sum(
            nonzero, axis, keepdims, reduction_indices=reduction_indices, keep_dims=keep_dims
        )
        return g.cast(count, dtype)


def log_sigmoid(x: Any, name: str | None = None) -> Tensor:
    """Return ``log(sigmoid(x))``, safe from overflow. TF1: same name."""
    with g.name_scope(name, "LogSigmoid", [x]) as scope:
        return g.negative(g.nn.softplus(-g.convert_to_tensor(x)), scope)


def identity_n(input: Sequence[Any], name: str | None = None) -> list[Tensor]:
    """Return tensors with the values of the inputs. TF1: same name."""
    with g.name_scope(name, "IdentityN", input):
        return [g.identity(x) for x in input]


def saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Tensor:
    """Return values as a dtype; those outside of its range become its ends. TF1: same name."""
    with g.name_scope(name, "saturate_cast", [value]) as scope:
        x, dtype = g.convert_to_tensor(value), g.as_dtype(dtype)
        if x.dtype.min < dtype.min:
            x = g.maximum(x, g.constant(dtype.min, x.dtype))
        if x.dtype.max > dtype.max:
            most = np.array(dtype.max, x.dtype.as_numpy_dtype)
            if int(most) > int(dtype.max):  # a float rounds it up, and out of the range
                most = np.nextafter(most, np.zeros_like(most))
            x = g.minimum(x, g.constant(most, x.dtype))
        return g.cast(x, dtype, scope)


def matrix_transpose(a: Any, name: str = "matrix_transpose", conjugate: bool = False) -> Tensor:
    """Return a tensor with its last two axes exchanged. TF1: same name.

    Raises:
        ValueError: the rank is unknown or less than 2.
    """
    x = g.convert_to_tensor(a)
    rank = x.shape.ndims
    if rank is None or rank < 2:
        raise ValueError(
            f"Argument `a` should be a (batch) matrix with rank >= 2, got shape {x.shape}."
        )
    return g.transpose(x, [*range(rank - 2), rank - 1, rank - 2], name, conjugate)


def broadcast_static_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """Return the shape that two shapes broadcast to. TF1: same name.

    Raises:
        ValueError: they do not.
    """
    x, y = TensorShape(shape_x), TensorShape(shape_y)
    if x.ndims is None or y.ndims is None:
        return TensorShape(None)
    dims: list[int | None] = []
    for a, b in zip_longest(reversed(x.as_list()), reversed(y.as_list()), fillvalue=1):
        if a not in (1, b, None) and b not in (1, None):
            raise ValueError(f"Incompatible shapes for broadcasting: {x} and {y}")
        dims.insert(0, b if a == 1 else a if b in (1, None) else b)
    return TensorShape(dims)


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """Return the shape that two shapes, integer vectors, broadcast to. TF1: same name."""
    x = g.convert_to_tensor(shape_x)
    y = g.convert_to_tensor(shape_y, dtype=x.dtype)
    rank = g.maximum(g.size(x), g.size(y))
    x, y = (
        g.concat([g.fill(g.stack([rank - g.size(s)]), g.constant(1, s.dtype)), s], 0) for s in (x, y)
    )
    fits = g.reduce_all(g.logical_or(g.equal(x, y), g.logical_or(g.equal(x, 1), g.equal(y, 1))))
    with g.control_dependencies([g.Assert(fits, ["Incompatible shapes for broadcasting", x, y])]):
        return g.where(g.equal(x, 1), y, x)


def convert_to_tensor_or_indexed_slices(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return IndexedSlices as they are, anything else as a tensor. TF1: same name."""
    return value if isinstance(value, IndexedSlices) else g.convert_to_tensor(value, dtype, name)
