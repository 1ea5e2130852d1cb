"""Nested fetches of programs that have names: lists, tuples, dicts, named tuples and dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

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
    if isinstance(structure, Mapping):
        mapped = {key: map_leaves(value, fn) for key, value in structure.items()}
        return mapped if type(structure) is dict else type(structure)(mapped)  # type: ignore[call-arg]  # as dict
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
