"""Advice on a missing name: where it is, what to use instead, or the closest name.

Registered by :mod:`asyncmon` as the adviser of :mod:`asyncmon.system.missing_names`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

from asyncmon.tf1.names.hints import HINTS
from asyncmon.tf1.names.table import TF1_NAMES

_ROOMS = [
    "asyncmon", "asyncmon.graph", "asyncmon.graph.train", "asyncmon.graph.nn", "asyncmon.graph.layers",
    "asyncmon.summary", "asyncmon.errors", "asyncmon.data", "asyncmon.checkpoint", "asyncmon.runtime",
    "asyncmon.hooks", "asyncmon.programs",
]  # fmt: skip
"""Modules that are searched for a name that is missing in another, in this order."""

_TF1_ROOMS = [
    f"asyncmon.tf1{room}"
    for room in (
        "", ".train", ".nn", ".layers", ".losses", ".metrics", ".image", ".summary", ".python_io",
        ".rnn_cell", ".contrib.layers", ".contrib.rnn", ".contrib.training", ".gfile", ".app",
    )
]  # fmt: skip
"""Likewise, for names of TF1."""

_FOREIGN = {"__future__", "collections.abc", "functools", "importlib", "typing"}
"""Modules whose names in one of the rooms are imports, not exports."""


def advice_on(module: str, name: str, prefixes: list[str], known: Iterable[str]) -> str:
    """Return advice on a missing name: see :func:`asyncmon.system.missing_names.missing_name`."""
    names = [f"{prefix}{name}" for prefix in prefixes]
    of_tf1 = [one for one in names if is_name_of_tf1(one)]
    for one in of_tf1:  # a hint on this very name comes before a hint on its namespace
        if hint := HINTS.get(one):
            return f": {hint}"
    if place := _place(module, name, is_of_tf1=bool(of_tf1)):
        return f": it is {place}"
    if not of_tf1 and (close := get_close_matches(name, known, 1, 0.8)):
        return f"; did you mean {close[0]!r}?"
    for one in names:
        if hint := hint_for(one):
            return f": {hint}"
    if of_tf1:
        return f": TF1 has tf.{of_tf1[0]}, asyncmon has nothing like it (see docs/porting.md)"
    return ""


def hint_for(name: str) -> str | None:
    """Return what to use instead of TF1's ``tf.<name>``; None if there is no hint."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):  # the hint on a namespace holds for the names in it
        if hint := HINTS.get(".".join(parts[:i])):
            return hint
    return next((hint for pattern, hint in HINTS.items() if fnmatchcase(name, pattern)), None)


def is_name_of_tf1(name: str) -> bool:
    """Return whether TF1 had ``tf.<name>``."""
    space, dot, last = name.rpartition(".")
    return last in TF1_NAMES.get(space + dot, "").split()


def _place(module: str, name: str, *, is_of_tf1: bool) -> str | None:
    """Return where this name is, if another module has it."""
    is_port = module.startswith("asyncmon.tf1")
    rooms = _TF1_ROOMS if is_port else [*_ROOMS, *_TF1_ROOMS] if is_of_tf1 else _ROOMS
    for room in rooms:
        if room != module and name in _public(room):
            return f"{room}.{name}"
    return None


def _public(room: str) -> Iterator[str]:
    found = sys.modules.get(room)
    if found is None:
        return
    names: Any = getattr(found, "__all__", None) or vars(found)
    for name in names:
        value = vars(found).get(name)
        is_imported = isinstance(value, ModuleType) or getattr(value, "__module__", "") in _FOREIGN
        if not name.startswith("_") and name != "TYPE_CHECKING" and not is_imported:
            yield name
