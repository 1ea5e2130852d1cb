"""Rows of tables by id: embedding_lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.build import convert_to_tensor, create_op, name_scope
from asyncmon.graph.clip_ops import clip_by_norm
from asyncmon.graph.gather_ops import gather

if TYPE_CHECKING:
    from asyncmon.graph.tensor import Tensor

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
            or "div", each a stretch.
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
        axes = list(range(len(at.shape), len(rows.shape)))
        clipped: Tensor = clip_by_norm(rows, max_norm, axes=axes)
        return clipped


def _partitioned(tables: list[Tensor], ids: Tensor, strategy: str) -> Tensor:
    """Gather from several tables put one under the other."""
    sizes = [table.spec.shape[0] if table.spec.shape else None for table in tables]
    if None in sizes:
        raise ValueError("The numbers of rows of partitioned tables must be known.")
    counts = np.array(sizes)
    order = np.concatenate([np.arange(n) for n in counts])  # rank of a row within its table
    shard = np.repeat(np.arange(len(tables)), counts)
    # the row of the concatenated table that an id stands for
    row_of = np.lexsort((shard, order)) if strategy == "mod" else np.arange(counts.sum())
    whole = create_op("ConcatV2", tables, {"axis": 0})
    mapping = convert_to_tensor(row_of.astype(ids.dtype.as_numpy_dtype))
    return gather(whole, gather(mapping, ids))
