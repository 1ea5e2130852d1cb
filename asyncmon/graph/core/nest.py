"""Nested lists, tuples and dicts of tensors, laid flat and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from asyncmon.graph.core.shape import TensorShape


def is_listed(structure: Any) -> bool:
    """Return whether it is a list or tuple of parts. A shape is a leaf, as in the original."""
    return isinstance(structure, list | tuple) and not isinstance(structure, TensorShape)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves in order; those of a dict by sorted key, as the original does."""
    return flatten_as(structure, structure)


def flatten_as(structure: Any, other: Any) -> list[Any]:
    """Return the parts of another structure that lie where this one has its leaves, in their order."""
    if isinstance(structure, Mapping):
        return [leaf for key in sorted(structure) for leaf in flatten_as(structure[key], other[key])]
    if is_listed(structure):
        pairs = zip(structure, other, strict=True)
        return [leaf for item, part in pairs for leaf in flatten_as(item, part)]
    return [other]


def pack_like(structure: Any, leaves: Iterable[Any]) -> Any:
    """Return a structure like this one with other leaves, in the order of :func:`flatten`."""
    leaves = iter(leaves)
    if isinstance(structure, Mapping):
        found = {key: pack_like(structure[key], leaves) for key in sorted(structure)}
        return type(structure)({key: found[key] for key in structure})  # type: ignore[call-arg]  # as dict
    if is_listed(structure):
        items = [pack_like(item, leaves) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    return next(leaves)


def same_structure(a: Any, b: Any) -> bool:
    """Return true when both nest alike; lists and tuples count as the same."""
    if isinstance(a, Mapping):
        return (
            isinstance(b, Mapping)
            and a.keys() == b.keys()
            and all(same_structure(a[k], b[k]) for k in a)
        )
    if is_listed(a):
        return is_listed(b) and len(a) == len(b) and all(map(same_structure, a, b))
    return not (isinstance(b, Mapping) or is_listed(b))


def map_structure(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """Return the structure of what a function makes of the leaves of structures that are alike."""
    leaves = [flatten_as(first, each) for each in (first, *others)]
    return pack_like(first, [function(*parts) for parts in zip(*leaves, strict=True)])
