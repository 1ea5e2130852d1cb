"""Variables that belong to another variable, named after it: ``w/Adam``, ``w/Adam_1``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import control_dependencies, create_ops
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.ops.basic import constant
from asyncmon.graph.ops.create import fill
from asyncmon.graph.ops.gather import sum_rows
from asyncmon.graph.variables.scope import get_variable_scope
from asyncmon.graph.variables.variable import Variable

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["make_slot", "unique_rows"]


def make_slot(
    primary: Variable, initial_value: Any, name: str, shape: list[int] | None = None
) -> Variable:
    """Return a new variable beside ``primary``, called ``primary/name``, made unique.

    Args:
        primary: the variable (or, for moving averages, tensor) it belongs to.
        initial_value: a number that fills the shape of ``primary``, or a tensor.
        name: the last part of the name.
        shape: where ``initial_value`` is a number; that of ``primary`` by default.
    """
    graph = primary.graph
    outer = get_variable_scope().name
    full_name = f"{outer}/{primary.op.name}/{name}" if outer else f"{primary.op.name}/{name}"
    with graph.name_scope(None), control_dependencies(None):
        if isinstance(initial_value, int | float):
            known = primary.shape.dims if shape is None else shape
            if known is None or None in known:
                raise ValueError(
                    f"A slot needs a fully known shape, {primary.name} has {primary.shape}."
                )
            initial_value = partial(
                _full, known if shape is None else shape, initial_value, primary.dtype
            )
        return Variable(initial_value, trainable=False, name=full_name)


def _full(shape: Any, value: float, dtype: Any) -> Tensor:
    return fill(shape, constant(value, dtype))


def _unique_rows(values: Array, indices: Array) -> tuple[Array, Array]:
    flat = np.reshape(indices, -1)
    kept, position = np.unique(flat, return_inverse=True)
    if len(kept) == len(flat):
        return np.reshape(values, (len(flat), *values.shape[np.ndim(indices) :])), flat
    return sum_rows(values, position.reshape(np.shape(indices)), len(kept)), kept


def _unique_rows_spec(values: Spec, indices: Spec) -> tuple[Spec, Spec]:
    if values.shape is None or indices.shape is None:
        return Spec(values.dtype, None), Spec(indices.dtype, (None,))
    rules.merge(values.shape[: len(indices.shape)], indices.shape)
    return Spec(values.dtype, (None, *values.shape[len(indices.shape) :])), Spec(indices.dtype, (None,))


register(OpDef("UniqueRows", _unique_rows, _unique_rows_spec, aliases=True))


def unique_rows(values: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    """Return the rows of a sparse gradient with those of equal indices added up, and their indices."""
    rows, kept = create_ops("UniqueRows", (values, indices))
    return rows, kept
