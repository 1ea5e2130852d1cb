"""The AttributeError for a missing name of a public package: where the name is, or the closest one.

The package of all names gives the rooms to search. A wing (:mod:`asyncmon.system.wings`) may add rooms
and hints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Protocol

from asyncmon.system.wings import wings


class Adviser(Protocol):
    """The module of a wing that gives advice on missing names.

    Attributes:
        ROOMS: the modules that are searched after those of the core.
        VAGUE: those of them whose names of one word mean something else elsewhere: they are no advice.
    """

    ROOMS: Sequence[str]
    VAGUE: Sequence[str]

    def hint_for(self, name: str, *, exact: bool = False) -> str | None:
        """Return what to use instead of a name; None if there is no hint.

        Args:
            name: the name, with the prefix of its module.
            exact: whether to leave out hints for a pattern or a namespace.
        """
        ...


_rooms: list[str] = []


def search_rooms(*rooms: str) -> None:
    """Set the modules that are searched for a name that another one lacks, in this order."""
    _rooms[:] = rooms


def missing_name(
    module: str, name: str, prefixes: Sequence[str], known: Iterable[str], rooms: Sequence[str] = ()
) -> AttributeError:
    """Return the error for a missing name of a module.

    Args:
        module: the module's ``__name__``.
        name: the missing attribute.
        prefixes: the namespaces of the module in hints: "" for ``tf.X``, "train." for ``tf.train.X``.
        known: the names in the module.
        rooms: modules that are searched first.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_") and not _is_module(f"{module}.{name}"):
        text += _advice(module, name, [f"{prefix}{name}" for prefix in prefixes], known, rooms)
    return AttributeError(text, name=name)


def _advice(
    module: str, name: str, full_names: list[str], known: Iterable[str], rooms: Sequence[str]
) -> str:
    advisers = _advisers()
    searched = [*rooms, *_rooms, *(room for adviser in advisers for room in adviser.ROOMS)]
    if hint := _hint(advisers, full_names, exact=True):
        return f": {hint}"
    for room in searched:
        is_there = f"{room}.{name}" in searched or name in getattr(sys.modules.get(room), "__all__", ())
        vague = name.isalpha() and name.islower() and any(room in one.VAGUE for one in advisers)
        if room != module and is_there and not vague:
            return f": it is {room}.{name}"
    from difflib import get_close_matches  # here, as most programs need none

    hint = _hint(advisers, full_names, exact=False)
    close = get_close_matches(name, known, 1, 0.8)
    return (f": {hint}" if hint else "") + (f"; did you mean {close[0]!r}?" if close else "")


def _hint(advisers: list[Adviser], names: list[str], *, exact: bool) -> str | None:
    hints = (adviser.hint_for(name, exact=exact) for adviser in advisers for name in names)
    return next(filter(None, hints), None)


def _advisers() -> list[Adviser]:
    found: list[Any] = []
    for wing in wings():
        try:
            found.append(import_module(wing.advice))
        except ImportError:  # the wing is deleted in part, or lacks a package: advice is optional
            continue
    return found


def _is_module(name: str) -> bool:
    """Return whether a name is a module: ``from asyncmon import cli`` first reads the attribute."""
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
