"""The async functions and methods in other files of the program, which are ported one by one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from asyncmon.tf1.port.scopes import dotted

_UP = 3
"""The number of parent folders that may be the root of imports."""

_MEMBER = re.compile(r"(.*)\.(\w+)\(\)\.(\w+)")


@dataclass(frozen=True)
class Facts:
    """The async functions and methods of a file after its port."""

    functions: frozenset[str] = frozenset()
    methods: frozenset[tuple[str, str]] = frozenset()
    """Async methods by class; ``("Agent", "")`` where the class itself is awaited."""
    names: frozenset[str] = frozenset()
    """All functions and classes, and methods as ``Class.method``."""
    bases: tuple[tuple[str, type], ...] = ()
    """Classes of the file, each with a class of asyncmon that it derives from."""


class Siblings:
    """The files that a file imports.

    Args:
        folder: the folder of the file; None to read no other file.
        read: returns the facts of a file.
    """

    def __init__(self, folder: Path | None, read: Callable[[Path], Facts]) -> None:
        self._folder = folder
        self._read = read
        self._known: dict[str, Facts | None] = {}

    def facts(self, module: str) -> Facts | None:
        """Return the facts of a module by its name in an import; None if it is no file here."""
        if module not in self._known:
            self._known[module] = None  # for circular imports
            path = self._find(module)
            self._known[module] = None if path is None else self._read(path)
        return self._known[module]

    def _find(self, module: str) -> Path | None:
        name = module.lstrip(".")
        if self._folder is None or not name:
            return None
        folders = [self._folder, *list(self._folder.resolve().parents)[:_UP]]
        if ups := len(module) - len(name):
            folders = folders[ups - 1 : ups]
        for folder in folders:
            path = folder.joinpath(*name.split(".")).with_suffix(".py")
            if path.is_file():
                return path
        return None

    def knows(self, path: str) -> bool:
        """Return whether a dotted name is a function, class or method of a file here."""
        module, name = _split(path)
        facts = self.facts(module)
        return facts is not None and name in facts.names

    def is_class(self, path: str) -> bool:
        """Return whether a dotted name is a class of a file here."""
        module, name = _split(path)
        facts = self.facts(module)
        return facts is not None and any(one.startswith(f"{name}.") for one in facts.names)

    def awaits(self, path: str) -> bool:
        """Return whether a call of a dotted name is awaited."""
        module, name = _split(path)
        facts = self.facts(module)
        if facts is None:
            return False
        owner, _, method = name.rpartition(".")
        return name in facts.functions or (owner or name, method if owner else "") in facts.methods

    def star(self, node: cst.ImportFrom) -> list[str]:
        """Return the names that ``from module import *`` binds, if the module is a file here."""
        facts = self.facts("." * len(node.relative) + dotted(node.module))
        return [] if facts is None else [name for name in facts.names if name.isidentifier()]

    def may_await(self, name: str) -> bool:
        """Return whether a method of this name is awaited in any file that was read."""
        found = (facts.methods for facts in self._known.values() if facts is not None)
        return any(method == name for methods in found for _, method in methods)

    def bases(self, path: str) -> list[type]:
        """Return the classes of asyncmon that a class of another file derives from."""
        module, name = _split(path)
        facts = self.facts(module)
        return [] if facts is None else [base for owner, base in facts.bases if owner == name]


def _split(path: str) -> tuple[str, str]:
    """Return the module of a dotted name, and the name in it, ``Class.method`` for a method."""
    if found := _MEMBER.fullmatch(path):
        return found[1], f"{found[2]}.{found[3]}"
    module, _, name = path.rpartition(".")
    return module, name
