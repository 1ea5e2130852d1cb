"""Optional members of objects that other code provides: declared in a class, looked up here."""

from __future__ import annotations

import logging
from itertools import zip_longest
from typing import Any, TypeVar, cast
from weakref import WeakSet

logger = logging.getLogger(__name__)

M = TypeVar("M")

_ALIKE = 0.85  # the least ratio of two names, where 1 is equal; "send" is no "end"


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


_checked: WeakSet[type] = WeakSet()


def warn_of_misspelled(kind: str, obj: object, *declared: type) -> None:
    """Log a warning for each attribute of an object that resembles a member which it lacks.

    Once for each class, and not for those of this package.

    Args:
        kind: of object, for the warning.
        obj: given by a user.
        declared: classes and protocols with the members of such objects, optional or required.
    """
    cls = type(obj)
    if cls.__module__.startswith("asyncmon.") or cls in _checked:
        return
    _checked.add(cls)
    for found, meant in misspelled(obj, *declared):
        logger.warning(
            "The %s %s has an attribute %r, which is never used. Did you mean %r?",
            kind, cls.__qualname__, found, meant,
        )  # fmt: skip


def misspelled(obj: object, *declared: type) -> list[tuple[str, str]]:
    """Return the public attributes that resemble a member the object lacks, with that member."""
    bases = {base for one in declared for base in one.__mro__}
    members = {name for one in declared for name in dir(one) if not name.startswith("_")}
    own = {name for cls in type(obj).__mro__ if cls not in bases for name in vars(cls)}
    own.update(getattr(obj, "__dict__", ()))
    lacking = members - own
    unknown = sorted(name for name in own - members if not name.startswith("_"))
    if not unknown:
        return []
    from difflib import get_close_matches  # few objects have attributes of their own

    pairs = [(name, get_close_matches(name, lacking, 1, _ALIKE)) for name in unknown]
    # Another form of the same words is no misspelling: names, saved_steps.
    return [(name, close[0]) for name, close in pairs if close and not _same_words(name, close[0])]


def _same_words(one: str, other: str) -> bool:
    pairs = list(zip_longest(one.split("_"), other.split("_"), fillvalue=""))
    return all(_forms(word) & _forms(of_other) for word, of_other in pairs)


def _forms(word: str) -> set[str]:
    return {word, *(word.removesuffix(ending) for ending in ("s", "d", "ed"))}
