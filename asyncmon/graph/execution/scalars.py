"""Arithmetic of single numbers: by operators, which take a tenth of the time that ufuncs take."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from asyncmon.graph.core.node import Tensor

__all__ = ["for_scalars"]

_OPERATORS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.negative: operator.neg,
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
}


def for_scalars(function: Callable[..., Any], tensors: Iterable[Tensor]) -> Callable[..., Any]:
    """Return what does the same as a ufunc, to the bit, where all it meets are single numbers.

    Args:
        function: any function; what is no ufunc is returned as it is.
        tensors: its inputs and outputs.
    """
    if not isinstance(function, np.ufunc) or function not in _OPERATORS:
        return function
    scalars = all(t.spec.shape == () and t.spec.dtype.as_numpy_dtype.kind in "biuf" for t in tensors)
    return _OPERATORS[function] if scalars else function
