"""Rows of tables by id: embedding_lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core import shape_rules as rules
from asyncmon.graph.core.build import convert_to_tensor, create_op, create_ops, name_scope
from asyncmon.graph.core.op import OpDef, Spec, register
from asyncmon.graph.nn.clip import clip_by_norm
from asyncmon.graph.ops.gather import gather

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.kernels.arrays import Array

__all__ = ["embedding_lookup"]


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: Any = None,
) -> Tensor:
    """Return the rows of a table for ids. TF1: ``tf.nn.embedding_lookup``.

    The gradient with respect to a table is an :class:`IndexedSlices`, so that a step touches only the
    rows it looked up.

    Args:
        params: a table ``[rows, ...]``, or a list of tables that share the rows.
        ids: integers of any shape.
        partition_strategy: which table of several has an id: "mod", each in turn,
            or "div", each a stretch. The tables share the rows evenly, the first ones have those left.
        name: the scope of the ops.
        validate_indices: accepted for the original's sake; ids are always checked.
        max_norm: rows of a greater Euclidean norm are scaled down to it.

    Raises:
        ValueError: no table, or an unknown strategy.

    Errors at run time: InvalidArgumentError for an id out of range.
    """
    tables = list(params) if isinstance(params, list | tuple) else [params]
    if not tables:
        raise ValueError(f"Argument `params` is required, got {params!r}")
    if partition_strategy not in ("mod", "div"):
        raise ValueError(f"Unsupported partition strategy: {partition_strategy!r}")
    with name_scope(name, "embedding_lookup"):
        at = convert_to_tensor(ids)
        if len(tables) == 1:
            rows = gather(tables[0], at)
        else:
            rows = _partitioned([convert_to_tensor(t) for t in tables], at, partition_strategy)
        if max_norm is None:
            return rows
        rank = next((len(x.shape) for x in map(convert_to_tensor, tables) if x.spec.shape), None)
        axes = range(len(at.shape), len(rows.shape)) if rank is None else range(1 - rank, 0)
        clipped: Tensor = clip_by_norm(rows, max_norm, axes=list(axes))
        return clipped


# --- several tables ---------------------------------------------------------------------------------


def _partitioned(tables: list[Tensor], ids: Tensor, strategy: str) -> Tensor:
    """Gather from each table what it has, and put the rows in the order of the ids."""
    sizes = [table.spec.shape[0] if table.spec.shape else None for table in tables]
    total: Any = 0  # in turns it does not matter
    if strategy == "div":
        known = [n for n in sizes if n is not None]
        heights = [create_op("Shape", (table,))[0] for table in tables if len(known) < len(tables)]
        total = create_op("AddN", heights) if heights else np.array(sum(known), np.int32)
    attrs = {"count": len(tables), "strategy": strategy}
    found = create_ops("PartitionIds", (ids, total), attrs)
    places, rows = found[: len(tables)], found[len(tables) :]
    parts = [gather(table, at) for table, at in zip(tables, rows, strict=True)]
    return create_op("StitchRows", (ids, *places, *parts))


def _partition_ids(ids: Array, total: Array, *, count: int, strategy: str) -> tuple[Array, ...]:
    """Return for each table which of the ids it has, and then for each which rows of it they are."""
    flat = np.reshape(ids, -1)
    if strategy == "mod":
        row, table = np.divmod(flat, count)
    else:  # the first tables have one row more where the rows do not divide evenly
        each, extra = divmod(int(total), count)
        rest = flat - extra
        table = np.maximum(flat // (each + 1), rest // max(each, 1))
        row = np.where(table < extra, flat % (each + 1), rest % max(each, 1))
        if flat.size and (table.min() < 0 or table.max() >= count):
            at = int(np.argmax((table < 0) | (table >= count)))
            raise InvalidArgumentError(f"ids[{at}] = {flat[at]} is not in [0, {int(total)})")
    places = [np.flatnonzero(table == i) for i in range(count)]
    return (*places, *(row[place].astype(flat.dtype, copy=False) for place in places))


def _partition_ids_spec(ids: Spec, total: Spec, *, count: int, strategy: str) -> tuple[Spec, ...]:
    rules.check_dtype(ids.dtype, (dtypes.int32, dtypes.int64), "ids")
    return (Spec(dtypes.int64, (None,)),) * count + (Spec(ids.dtype, (None,)),) * count


def _stitch(ids: Array, *values: Array) -> Array:
    count = len(values) // 2
    shape = values[count].shape[1:]
    result = np.empty((ids.size, *shape), values[count].dtype)
    for place, part in zip(values[:count], values[count:], strict=True):
        result[place] = part
    return result.reshape((*ids.shape, *shape))


def _stitch_spec(ids: Spec, *values: Spec) -> Spec:
    parts = values[len(values) // 2 :]
    shape = parts[0].shape
    for part in parts[1:]:
        rules.check_same_dtype("StitchRows", parts[0], part, ("params", "params"))
        shape = rules.merge(shape, part.shape)
    known = ids.shape is not None and shape is not None
    return Spec(parts[0].dtype, (*(ids.shape or ()), *(shape or ())[1:]) if known else None)


def _stitch_gradient(op: Operation, grad: Tensor) -> list[Tensor | None]:
    ids, *values = op.inputs
    places = values[: len(values) // 2]
    parts = create_ops("UnstitchRows", (grad, ids, *places))
    return [None, *[None] * len(places), *parts]


def _unstitch(grad: Array, ids: Array, *places: Array) -> tuple[Array, ...]:
    flat = grad.reshape((ids.size, *grad.shape[ids.ndim :]))
    return tuple(flat[place] for place in places)


def _unstitch_spec(grad: Spec, ids: Spec, *places: Spec) -> tuple[Spec, ...]:
    known = grad.shape is not None and ids.shape is not None
    row = (grad.shape or ())[len(ids.shape or ()) :]
    return (Spec(grad.dtype, (None, *row) if known else None),) * len(places)


def _unstitch_gradient(op: Operation, *grads: Tensor | None) -> list[Tensor | None]:
    _, ids, *places = op.inputs
    parts = [
        create_op("ZerosLike", (part,)) if grad is None else grad
        for part, grad in zip(op.outputs, grads, strict=True)
    ]
    return [create_op("StitchRows", (ids, *places, *parts)), None, *[None] * len(places)]


register(OpDef("PartitionIds", _partition_ids, _partition_ids_spec, rules.no_gradient))
register(OpDef("StitchRows", _stitch, _stitch_spec, _stitch_gradient))
register(OpDef("UnstitchRows", _unstitch, _unstitch_spec, _unstitch_gradient))
