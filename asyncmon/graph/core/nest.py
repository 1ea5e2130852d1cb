"""Flatten and rebuild nested lists, tuples, dicts and attrs classes of tensors; dataclasses are leaves.

A leaf that consists of one tensor and of static properties has the method ``_with_tensor``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from asyncmon.graph.core.shape import TensorShape


def is_listed(structure: Any) -> bool:
    """Return true for a list or tuple. A TensorShape is a leaf, as in TF1."""
    return isinstance(structure, list | tuple) and not isinstance(structure, TensorShape)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves in order; those of a dict by sorted key, as in TF1."""
    return flatten_as(structure, structure)


def flatten_as(structure: Any, other: Any) -> list[Any]:
    """Return the parts of another structure at the places of the leaves of this one."""
    if isinstance(structure, Mapping):
        return [leaf for key in sorted(structure) for leaf in flatten_as(structure[key], other[key])]
    if is_listed(structure):
        pairs = zip(structure, other, strict=True)
        return [leaf for item, part in pairs for leaf in flatten_as(item, part)]
    if (names := _attributes(structure)) is not None:
        found = [flatten_as(getattr(structure, name), getattr(other, name)) for name in names]
        return [leaf for leaves in found for leaf in leaves]
    return [other]


def _attributes(structure: Any) -> list[str] | None:
    """Return the attributes of an instance of an attrs class, which is a structure in TF1."""
    fields = getattr(type(structure), "__attrs_attrs__", None)
    return None if fields is None else [field.name for field in fields]


def pack_like(structure: Any, leaves: Iterable[Any]) -> Any:
    """Rebuild a structure with other leaves, given in the order of :func:`flatten`."""
    leaves = iter(leaves)
    if isinstance(structure, Mapping):
        found = {key: pack_like(structure[key], leaves) for key in sorted(structure)}
        return type(structure)({key: found[key] for key in structure})  # type: ignore[call-arg]  # as dict
    if is_listed(structure):
        items = [pack_like(item, leaves) for item in structure]
        return type(structure)(*items) if hasattr(structure, "_fields") else type(structure)(items)
    if (names := _attributes(structure)) is not None:
        return type(structure)(*[pack_like(getattr(structure, name), leaves) for name in names])
    leaf = next(leaves)
    return structure._with_tensor(leaf) if hasattr(structure, "_with_tensor") else leaf


def same_structure(a: Any, b: Any) -> bool:
    """Return true when both have the same structure; lists and tuples are equivalent."""
    if isinstance(a, Mapping):
        return (
            isinstance(b, Mapping)
            and a.keys() == b.keys()
            and all(same_structure(a[k], b[k]) for k in a)
        )
    if is_listed(a):
        return is_listed(b) and len(a) == len(b) and all(map(same_structure, a, b))
    if (names := _attributes(a)) is not None:
        return type(a) is type(b) and all(same_structure(getattr(a, n), getattr(b, n)) for n in names)
    return not (isinstance(b, Mapping) or is_listed(b)) and _attributes(b) is None
