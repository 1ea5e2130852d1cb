"""What kernels compute with."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "own"]

Array: TypeAlias = Any
"""A numpy array, or a numpy scalar in the place of a 0-d one; no type of numpy's says both."""


def own(value: Array) -> Array:
    """Return a fresh result of a ufunc as the ``out=`` of the next one; None for a numpy scalar."""
    return value if isinstance(value, np.ndarray) else None
