"""Nested fetches of programs that have names: lists, tuples, dicts, named tuples and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asyncmon.graph.execution.fetches import parts_of

GLOBAL_STEP = "global_step"


class OptionalFetch:
    """A fetch with a default, made by :func:`optional`."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: Any) -> None:
        self.name = name
        self.default = default

    def __repr__(self) -> str:
        return f"optional({self.name!r})"


def optional(name: str, default: Any = None) -> Any:
    """Return a fetch for hooks: the value of a name, or a default in runs that do not produce it.

    It runs no step: the name of a step gives its result only in runs of that step.

    Args:
        name: of a value, a step or an entry of the state.
        default: the result in other runs.

    Example::

        hooks = [LoggingTensorHook({"loss": optional("loss")}, every_n_iter=100)]
    """
    if not isinstance(name, str):
        raise TypeError(f"optional() takes the name of a value, got {name!r}.")
    return OptionalFetch(name, default)


def map_leaves(structure: Any, fn: Callable[[Any], Any]) -> Any:
    """Return a structure of the same kind with ``fn`` of each leaf in its place."""
    if structure.__class__ is str:
        return fn(structure)
    found = parts_of(structure)
    if found is None:
        return fn(structure)
    _keys, parts, make = found
    return make([map_leaves(part, fn) for part in parts])


def leaves(structure: Any) -> list[Any]:
    """Return the leaves, in order."""
    found: list[Any] = []
    map_leaves(structure, found.append)
    return found
