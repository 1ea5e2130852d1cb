"""Sums of the rows of a tensor that have equal indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import create_ops
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.gather import sum_rows

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array


def _unique_rows(values: Array, indices: Array) -> tuple[Array, Array]:
    flat = np.reshape(indices, -1)
    distinct, position = np.unique(flat, return_inverse=True)
    if len(distinct) == len(flat):
        return np.reshape(values, (len(flat), *values.shape[np.ndim(indices) :])), flat
    return sum_rows(values, position.reshape(np.shape(indices)), len(distinct)), distinct


def _unique_rule(values: Spec, indices: Spec) -> tuple[Spec, Spec]:
    if values.shape is None or indices.shape is None:
        return Spec(values.dtype, None), Spec(indices.dtype, (None,))
    rules.merge(values.shape[: len(indices.shape)], indices.shape)
    return Spec(values.dtype, (None, *values.shape[len(indices.shape) :])), Spec(indices.dtype, (None,))


register(OpDef("UniqueRows", _unique_rows, _unique_rule, aliases=True))


def unique_rows(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient with those of equal indices added up, and their indices."""
    rows, kept = create_ops("UniqueRows", (values, indices))
    return rows, kept
