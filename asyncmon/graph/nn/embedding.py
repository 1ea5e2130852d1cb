"""Rows of tables by id: embedding_lookup."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import colocate_with, convert_to_tensor, create_ops, name_scope
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.nn.clip import clip_by_norm
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.gather import gather
from asyncmon.graph.ops.join import concat
from asyncmon.graph.ops.shape_ops import shape


def embedding_lookup(
    params: Any,
    ids: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    validate_indices: bool = True,
    max_norm: Any = None,
) -> Tensor:
    """Return the rows of a table for ids. TF1: ``tf.nn.embedding_lookup``.

    The gradient with respect to a table is an :class:`IndexedSlices`, so that an update touches only
    the looked-up rows.

    Args:
        params: a table ``[rows, ...]``, or a list of tables with parts of the rows, or a partitioned
            variable, whose parts are such a list. With "div" its rows have their own numbers.
        ids: integers of any shape.
        partition_strategy: how ids are distributed over several tables: "mod" cyclically, or "div" in
            contiguous ranges. If the rows do not divide evenly, the first tables have one more.
        name: the scope of the ops.
        validate_indices: without effect: ids are always checked.
        max_norm: scale rows down to this Euclidean norm.

    Raises:
        ValueError: there is no table, or an unknown strategy.

    Errors at run time: InvalidArgumentError for an id out of range.
    """
    in_parts = isinstance(params, list | tuple) or hasattr(params, "_get_variable_list")
    tables = list(params) if in_parts else [params]
    if not tables:
        raise ValueError(f"Argument `params` is required, got {params!r}")
    if partition_strategy not in ("mod", "div"):
        raise ValueError(f"Unsupported partition strategy: {partition_strategy!r}")
    with name_scope(name, "embedding_lookup"):
        at = convert_to_tensor(ids)
        if len(tables) == 1:
            rows = _gathered(tables[0], at)
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
    """Gather the rows of each table, and reorder them by the ids."""
    total: Any = 0  # used for "div" only
    if strategy == "div":
        total = sum((t.spec.shape or [None])[0] or shape(t)[0] for t in tables)
    attrs = {"count": len(tables), "strategy": strategy}
    place, *rows = create_ops("PartitionIds", (ids, total), attrs)
    parts = [_gathered(table, at) for table, at in zip(tables, rows, strict=True)]
    return gather(concat(parts, 0), place)


def _gathered(table: Any, rows: Tensor) -> Tensor:
    """Gather rows of a table on its device."""
    with colocate_with(table) if is_tensor_like(table) else nullcontext():
        return gather(table, rows)


def _partition_ids(ids: Array, total: Array, *, count: int, strategy: str) -> tuple[Array, ...]:
    """Return the positions of the ids sorted by table, and the rows of each table."""
    if strategy == "mod":
        row, table = np.divmod(ids, count)
    else:  # the first tables have one row more if the rows do not divide evenly
        each, extra = divmod(int(total), count)
        rest = ids - extra
        table = np.maximum(ids // (each + 1), rest // max(each, 1))
        row = np.where(table < extra, ids % (each + 1), rest % max(each, 1))
        wrong = np.flatnonzero((table < 0) | (table >= count))
        if wrong.size:
            found = np.ravel(ids)[wrong[0]]
            raise InvalidArgumentError(f"ids[{wrong[0]}] = {found} is not in [0, {int(total)})")
    order = np.argsort(table, axis=None, kind="stable")
    place = np.empty(np.shape(ids), np.int64)
    place.flat[order] = np.arange(place.size)
    return place, *(np.asarray(row[table == i], ids.dtype) for i in range(count))


def _partition_ids_rule(ids: Spec, total: Spec, *, count: int, strategy: str) -> tuple[Spec, ...]:
    rules.check_dtype(ids.dtype, (dtypes.int32, dtypes.int64), "ids")
    return Spec(dtypes.int64, ids.shape), *(Spec(ids.dtype, (None,)) for _ in range(count))


register(OpDef("PartitionIds", _partition_ids, _partition_ids_rule, ZERO))
