"""Nested fetches of programs that have names: lists, tuples, dicts, named tuples and dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import NotFoundError
from asyncmon.programs.state_tree import Tree, flatten

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

GLOBAL_STEP = "global_step"


class OptionalFetch:
    """The value of a name where the run has it. :func:`optional` makes it."""

    __slots__ = ("default", "name")

    def __init__(self, name: str, default: Any) -> None:
        self.name = name
        self.default = default

    def __repr__(self) -> str:
        return f"optional({self.name!r})"


def optional(name: str, default: Any = None) -> Any:
    """Return a fetch for hooks: the value of a name, or a default in runs that do not produce it.

    It runs no step: of a step's name it gives the result where that step runs anyway.

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


def fetched_values(
    fetches: Any, results: Mapping[str, Any], tree: Tree, step: int | None, steps: Collection[str]
) -> Any:
    """Return what a run fetched: results of steps, values in them, the step, entries of the state.

    Raises:
        NotFoundError: a name that the run does not have.
    """
    if type(fetches) is str and fetches in results:
        return results[fetches]
    return map_leaves(fetches, lambda name: _value(name, results, tree, step, steps))


def _value(
    fetch: Any, results: Mapping[str, Any], tree: Tree, step: int | None, steps: Collection[str]
) -> Any:
    name = fetch.name if isinstance(fetch, OptionalFetch) else fetch
    if name in results:
        return results[name]
    for result in results.values():
        if isinstance(result, Mapping) and name in result:
            return result[name]
    if name == GLOBAL_STEP and step is not None:
        return np.int64(step)
    entries = flatten(tree)
    if name in entries:
        return entries[name]
    if isinstance(fetch, OptionalFetch):
        return fetch.default
    outputs = {key for result in results.values() if isinstance(result, Mapping) for key in result}
    raise NotFoundError(
        f"Nothing in this run is called {name!r}. Steps that ran: {list(results)}, which returned: "
        f"{sorted(map(str, outputs))}. The program has the steps {list(steps)}, and the entries "
        f"{list(entries)} of the state. A hook beside several steps fetches optional({name!r})."
    )
