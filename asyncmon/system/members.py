"""Optional members of objects that other code provides: declared in a class, looked up here."""

from __future__ import annotations

from typing import Any, TypeVar, cast

M = TypeVar("M")


def members_of(declared: type[M], obj: object) -> M:
    """Return a view of an object's optional members, typed by the class that declares them.

    Args:
        declared: a class with an attribute for each member. Its value is that of a missing member.
        obj: any object.
    """
    return cast("M", _View(declared, obj))


class _View:
    __slots__ = ("_declared", "_object")

    def __init__(self, declared: type[Any], obj: object) -> None:
        self._declared = declared
        self._object = obj

    def __getattr__(self, name: str) -> Any:
        return getattr(self._object, name, getattr(self._declared, name))
