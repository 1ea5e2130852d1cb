"""Functions of structures of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon.graph.core.nest import flatten_as, pack_like


def map_structure(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Apply a function to the corresponding leaves of structures, and return the structure."""
    leaves = [flatten_as(first, each) for each in (first, *others)]
    return pack_like(first, [function(*parts) for parts in zip(*leaves, strict=True)])
