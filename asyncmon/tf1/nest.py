"""TF1: ``tf.nest`` (``tf.contrib.framework.nest``): nested lists, tuples and dicts laid flat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core import nest
from asyncmon.graph.core.nest import flatten as flatten
from asyncmon.graph.core.nest import is_listed, pack_like, same_structure
from asyncmon.missing_names import missing_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def is_nested(structure: Any) -> bool:
    """Return whether it is a list, tuple or dict; a shape is none."""
    return isinstance(structure, Mapping) or is_listed(structure)


is_sequence = is_nested


def map_structure(func: Callable[..., Any], *structure: Any, check_types: bool = True) -> Any:
    """Return a structure of what a function returns of the leaves of one or more structures.

    Raises:
        ValueError: there is none, or they nest differently.
        TypeError: they nest alike in other types, and ``check_types`` is true.
    """
    if not structure:
        raise ValueError("Must provide at least one structure")
    first, *others = structure
    for other in others:
        assert_same_structure(first, other, check_types)
    return nest.map_structure(func, *structure)


def pack_sequence_as(structure: Any, flat_sequence: Sequence[Any]) -> Any:
    """Return a structure like this one with other leaves.

    Raises:
        ValueError: there are more or fewer of them.
    """
    wanted = len(flatten(structure))
    if len(flat_sequence) != wanted:
        raise ValueError(f"The structure has {wanted} leaves, flat_sequence has {len(flat_sequence)}.")
    return pack_like(structure, flat_sequence)


def assert_same_structure(nest1: Any, nest2: Any, check_types: bool = True) -> None:
    """Refuse two structures that nest differently.

    Raises:
        ValueError: they do.
        TypeError: they nest alike in other types, and ``check_types`` is true.
    """
    if not same_structure(nest1, nest2):
        raise ValueError(
            f"The two structures don't have the same nested structure: {nest1!r}, {nest2!r}."
        )
    if check_types and _types(nest1) != _types(nest2):
        raise TypeError(f"The two structures have different sequence types: {nest1!r}, {nest2!r}.")


def _types(structure: Any) -> Any:
    if isinstance(structure, Mapping):
        return type(structure), [_types(structure[key]) for key in sorted(structure)]
    return (type(structure), list(map(_types, structure))) if is_nested(structure) else None


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "nest.", globals())
