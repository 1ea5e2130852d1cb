"""``searchsorted``: positions in what is sorted."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_op
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, OpDef, Spec, register
from asyncmon.graph.core.shape import merge
from asyncmon.graph.numerics.arrays import Array

_INTS = (dtypes.int32, dtypes.int64)


def _searchsorted(rows: Array, values: Array, *, side: Any, out_type: DType) -> Array:
    if rows.shape[:-1] != values.shape[:-1]:
        raise InvalidArgumentError(
            f"Leading dimensions must be equal, got {list(rows.shape)} and {list(values.shape)}"
        )
    result = np.empty(values.shape, out_type.numpy)
    for at in np.ndindex(rows.shape[:-1]):
        result[at] = np.searchsorted(rows[at], values[at], side)
    return result


def _searchsorted_rule(rows: Spec, values: Spec, *, side: str, out_type: DType) -> Spec:
    rules.check_same_dtype("SearchSorted", rows, values, ("sorted_inputs", "values"))
    rules.with_rank_at_least(rows.shape, 1)
    if rows.shape is not None and values.shape is not None:
        merge(rows.shape[:-1], values.shape[:-1])
    return Spec(out_type, values.shape)


register(OpDef("SearchSorted", _searchsorted, _searchsorted_rule, ZERO))


def searchsorted(
    sorted_sequence: Any,
    values: Any,
    side: str = "left",
    out_type: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:
    """Return where each value would go in a sorted row, the last dimension. TF1: same name.

    Args:
        sorted_sequence: rows in ascending order.
        values: to look up in the row of the same leading indices; of the same dtype.
        side: "left" of equal elements, or "right".
        out_type: int32 or int64.
        name: the node's name.

    Raises:
        ValueError: another side.
    """
    if side not in ("left", "right"):
        raise ValueError(f"side must be either 'right' or 'left', got {side!r}.")
    rows = convert_to_tensor(sorted_sequence)
    found = convert_to_tensor(values, None if hasattr(values, "dtype") else rows.dtype)
    output = dtypes.as_dtype(out_type)
    rules.check_dtype(output, _INTS, "out_type")
    return create_op("SearchSorted", (rows, found), {"side": side, "out_type": output}, name)
