"""Functions of TF1 that are made of a few ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon import graph as g
from asyncmon.graph import IndexedSlices

if TYPE_CHECKING:
    from asyncmon.graph import Tensor

__all__ = ["count_nonzero", "saturate_cast", "scalar_mul"]


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
