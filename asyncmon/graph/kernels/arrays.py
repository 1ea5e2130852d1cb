"""The arrays that kernels compute with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A numpy array, or a numpy scalar instead of a 0-d one. numpy has no type for both."""


def as_out(value: Array) -> Array:
    """Return the new result of a ufunc as the ``out=`` of the next one; None for a numpy scalar."""
    return value if isinstance(value, np.ndarray) else None
