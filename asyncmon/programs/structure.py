"""Nested fetches: names in lists, tuples, dicts, namedtuples and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

__all__ = ["leaves", "map_leaves"]


def map_leaves(structure: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a structure of the same kind with ``fn`` of each leaf in its place."""
    if structure.__class__ is str:
        return fn(structure)
    if isinstance(structure, Mapping):
        mapped = {key: map_leaves(value, fn) for key, value in structure.items()}
        return mapped if type(structure) is dict else type(structure)(mapped)  # type: ignore[call-arg]
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(map_leaves(value, fn) for value in structure))
    if isinstance(structure, list | tuple):
        return type(structure)(map_leaves(value, fn) for value in structure)
    if is_dataclass(structure) and not isinstance(structure, type):
        names = [field.name for field in fields(structure) if field.init]
        return replace(structure, **{name: map_leaves(getattr(structure, name), fn) for name in names})
    return fn(structure)


def leaves(structure: Any) -> list[Any]:
    """Return the leaves, in order."""
    found: list[Any] = []
    map_leaves(structure, found.append)
    return found
