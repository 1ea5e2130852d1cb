"""Advice on a missing name: where it is, what to use instead, or the closest name.

``names.txt`` lists the names of TF1, which :mod:`asyncmon.tf1.namespaces` shows; ``hints.txt``, read at
the first access to a missing name, the replacements of missing ones. :mod:`asyncmon` registers this
module as the adviser of :mod:`asyncmon.system.missing_names`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

_ROOMS = [
    "asyncmon", "asyncmon.graph", "asyncmon.graph.train", "asyncmon.graph.nn", "asyncmon.graph.layers",
    "asyncmon.summary", "asyncmon.errors", "asyncmon.data", "asyncmon.checkpoint", "asyncmon.runtime",
    "asyncmon.hooks", "asyncmon.programs",
]  # fmt: skip
"""The modules searched for a name that another module lacks, in this order."""

_TF1_ROOMS = [
    f"asyncmon.tf1{room}"
    for room in (
        "", ".train", ".nn", ".layers", ".losses", ".metrics", ".image", ".summary", ".python_io",
        ".rnn_cell", ".contrib.layers", ".contrib.rnn", ".contrib.training", ".gfile", ".app",
    )
]  # fmt: skip
"""The modules searched for a name of TF1, likewise."""


def advice_on(module: str, name: str, prefixes: list[str], known: Iterable[str]) -> str:
    """Return advice on a missing name: see :func:`asyncmon.system.missing_names.missing_name`."""
    full_names = [f"{prefix}{name}" for prefix in prefixes]
    of_tf1 = [one for one in full_names if one in tf1_names()]
    for one in of_tf1:  # a hint for this very name comes before a hint for its namespace
        if hint := hints().get(one):
            return f": {hint}"
    if place := _place(module, name, is_of_tf1=bool(of_tf1)):
        return f": it is {place}"
    if not of_tf1 and (close := get_close_matches(name, known, 1, 0.8)):
        return f"; did you mean {close[0]!r}?"
    for one in full_names:
        if hint := hint_for(one):
            return f": {hint}"
    if of_tf1:
        return f": TF1 has tf.{of_tf1[0]}, asyncmon has nothing like it (see docs/porting.md)"
    return ""


def hint_for(name: str) -> str | None:
    """Return what to use instead of TF1's ``tf.<name>``; None if there is no hint."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        if hint := hints().get(".".join(parts[:i])):
            return hint
    patterns = [one for one in hints() if "*" in one and fnmatchcase(name, one)]
    return hints()[max(patterns, key=lambda one: len(one.replace("*", "")))] if patterns else None


@cache
def tf1_names() -> frozenset[str]:
    """Return the names of TF1, without ``tf.``: those of its last release, and some from before 1.0."""
    return frozenset(_read("names.txt").split())


@cache
def hints() -> dict[str, str]:
    """Return the hint for each name or pattern in ``hints.txt``."""
    found: dict[str, str] = {}
    hint = ""
    for line in _read("hints.txt").splitlines():
        if line.startswith(" "):
            found |= dict.fromkeys(line.split(), hint)
        elif not line.startswith("#"):
            hint = line
    return found


def _read(file: str) -> str:
    return files(__name__).joinpath(file).read_text("utf-8")


def _place(module: str, name: str, *, is_of_tf1: bool) -> str | None:
    is_port = module.startswith("asyncmon.tf1")
    rooms = _TF1_ROOMS if is_port else _ROOMS
    if is_port != is_of_tf1:
        rooms = [*rooms, *(_ROOMS if is_port else _TF1_ROOMS)]
    for room in rooms:
        full_name = f"{room}.{name}"
        is_there = full_name in rooms or name in getattr(sys.modules.get(room), "__all__", ())
        if room != module and is_there:
            return full_name
    return None
