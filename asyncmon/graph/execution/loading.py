"""Values that are to become the state, all checked before one is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.execution.state import RANDOM_STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncmon.graph.core.dtypes import DType
    from asyncmon.graph.core.graph import Graph

__all__ = ["checked_values"]


def checked_values(graph: Graph, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and arrays of their own for values by name. May be called in any thread.

    Raises:
        InvalidArgumentError: something does not fit; the error lists everything that does not.
    """
    found: list[tuple[str, Any]] = []
    problems: list[str] = []
    operations = {op.name: op for op in graph.get_operations() if op.type == "VariableV2"}
    for name, value in values.items():
        dtype: DType
        if name == RANDOM_STATE:
            dtype, shape = dtypes.uint64, TensorShape((2,))
        elif name in operations:
            attrs = operations[name].attrs
            dtype, shape = attrs["dtype"], TensorShape(attrs["shape"])
        else:
            problems.append(f"{name!r} is not a variable of this graph")
            continue
        array = np.asarray(value, dtype=object if dtype is dtypes.string else None)
        if array.dtype != dtype.as_numpy_dtype:
            problems.append(f"{name!r} has dtype {dtype.name}, the value {array.dtype}")
        elif not shape.is_compatible_with(array.shape):
            problems.append(f"{name!r} has shape {shape}, the value {array.shape}")
        else:
            found.append((name, np.array(array, order="C")))
    if problems:
        raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
    return found
