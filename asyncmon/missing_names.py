"""What to use instead of a name of TF1 that is not here; ``__getattr__`` of the front doors asks it.

The tables are imported when a name is missing, so that they cost nothing where none is.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_ROOMS = [
    "asyncmon", "asyncmon.graph", "asyncmon.graph.train", "asyncmon.graph.nn", "asyncmon.graph.layers",
    "asyncmon.summary", "asyncmon.errors", "asyncmon.data", "asyncmon.checkpoint", "asyncmon.runtime",
    "asyncmon.hooks", "asyncmon.programs",
]  # fmt: skip
"""Where names may be that are not at the door where they were sought, the nearest first."""

_TF1_ROOMS = [
    f"asyncmon.tf1{room}"
    for room in (
        "", ".train", ".nn", ".layers", ".losses", ".metrics", ".image", ".summary", ".python_io",
        ".rnn_cell", ".contrib.layers", ".contrib.rnn", ".contrib.training", ".gfile", ".app",
    )
]  # fmt: skip
"""Likewise, for names of TF1."""

_FOREIGN = {"__future__", "collections.abc", "functools", "importlib", "typing"}
"""What a module of one of the rooms may import for itself."""


def missing_name(
    module: str, name: str, prefix: str | Iterable[str], known: Iterable[str]
) -> AttributeError:
    """Return the error of a front door that lacks a name.

    Args:
        module: the door's own name.
        name: what it lacks.
        prefix: where TF1 has what is at this door: "" for ``tf.X``, "train." for ``tf.train.X``; or
            several of these.
        known: the names that the door has.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_") and not _is_module(f"{module}.{name}"):
        prefixes = [prefix] if isinstance(prefix, str) else prefix
        text += _advice(module, name, [f"{one}{name}" for one in prefixes], known)
    return AttributeError(text, name=name)


def lacking(module: str, prefix: str, known: Iterable[str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a front door: see :func:`missing_name`."""

    def lacks(name: str) -> Any:
        raise missing_name(module, name, prefix, known)

    return lacks


class MissingMember:
    """A member of TF1's class that is not there: getting it says what to use instead.

    A descriptor, for a class with a ``__getattr__`` is slower in all its attributes.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner.__name__, name

    def __get__(self, instance: object, owner: type | None = None) -> NoReturn:
        text = f"{self._owner!r} object has no attribute {self._name!r}"
        hint = hint_for(f"{self._owner}.{self._name}")
        raise AttributeError(f"{text}: {hint}" if hint else text, name=self._name)


def hint_for(name: str) -> str | None:
    """Return what to use instead of TF1's ``tf.<name>``; None where nothing is known of it."""
    from fnmatch import fnmatchcase

    hints: dict[str, str] = import_module("asyncmon.missing_hints").HINTS
    parts = name.split(".")
    for i in range(len(parts), 0, -1):  # what is said of a namespace holds for the names in it
        if hint := hints.get(".".join(parts[:i])):
            return hint
    return next((hint for pattern, hint in hints.items() if fnmatchcase(name, pattern)), None)


def is_name_of_tf1(name: str) -> bool:
    """Return whether TF1 had ``tf.<name>``."""
    names: dict[str, str] = import_module("asyncmon.tf1_names").TF1_NAMES
    space, dot, last = name.rpartition(".")
    return last in names.get(space + dot, "").split()


def _advice(module: str, name: str, names: list[str], known: Iterable[str]) -> str:
    from difflib import get_close_matches

    of_tf1 = [one for one in names if is_name_of_tf1(one)]
    hints: dict[str, str] = import_module("asyncmon.missing_hints").HINTS
    for one in of_tf1:  # what is said of this very name, not of its kind
        if hint := hints.get(one):
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


def _place(module: str, name: str, *, is_of_tf1: bool) -> str | None:
    """Return where this name is, if it is not at this door."""
    is_port = module.startswith("asyncmon.tf1")
    rooms = _TF1_ROOMS if is_port else _ROOMS
    if is_of_tf1 and not is_port:
        import_module("asyncmon.tf1")
        rooms = [*_ROOMS, *_TF1_ROOMS]
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


def _is_module(name: str) -> bool:
    """Return whether it is a module: ``from asyncmon import cli`` asks for its name first."""
    from importlib.util import find_spec

    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
