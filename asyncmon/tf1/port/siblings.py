"""The async functions and methods in other files of the program, which are ported one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from asyncmon.tf1.port.kinds import Foreign, Kind, Kinds
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
    blocking: frozenset[str] = frozenset()
    """Plain functions and methods, as in ``names``, that block a thread."""
    bases: tuple[tuple[str, type], ...] = ()
    """Classes of the file, each with a class of asyncmon that it derives from."""
    values: tuple[tuple[str, Kind], ...] = ()
    """Names of asyncmon and objects, each by the name that the file gives it; ``Foreign("Agent()")``
    for an object of the file's class ``Agent``."""
    runs: bool = False
    """Whether the file awaits when it is imported."""

    def of(self, name: str, new: str) -> Facts:
        """Return the facts of one function or class, for a file that imports it by a new name."""
        return Facts(
            functions=frozenset({new} if name in self.functions else ()),
            methods=frozenset((new, method) for owner, method in self.methods if owner == name),
            names=_renamed(self.names, name, new),
            blocking=_renamed(self.blocking, name, new),
            bases=tuple((new, base) for owner, base in self.bases if owner == name),
        )

    def __or__(self, other: Facts) -> Facts:
        return Facts(
            self.functions | other.functions,
            self.methods | other.methods,
            self.names | other.names,
            self.blocking | other.blocking,
            self.bases + other.bases,
            self.values + other.values,
            self.runs or other.runs,
        )


def _renamed(names: frozenset[str], old: str, new: str) -> frozenset[str]:
    """Return the names that are, or are below, an old one, with the new one in its place."""
    return frozenset(new + n.removeprefix(old) for n in names if n == old or n.startswith(f"{old}."))


class Siblings:
    """The files that a file imports.

    Args:
        folder: the folder of the file; None to read no other file.
        read: returns the facts of a file.
        files: the facts of all files that were read.
    """

    def __init__(
        self, folder: Path | None, read: Callable[[Path], Facts], files: Mapping[Path, Facts]
    ) -> None:
        self._folder = folder
        self._read = read
        self._files = files
        self._places: dict[str, Path | None] = {}

    def facts(self, module: str) -> Facts:
        """Return the facts of a module by its name in an import; empty ones if it is no file here."""
        if module not in self._places:
            self._places[module] = self._find(module)
        path = self._places[module]
        return Facts() if path is None else self._read(path)

    def _of(self, path: str) -> tuple[Facts, str]:
        """Return the facts of the module of a dotted name, and the name in it."""
        module, name = _split(path)
        return self.facts(module), name

    def _find(self, module: str) -> Path | None:
        name = module.lstrip(".")
        if self._folder is None or not name:
            return None
        folders = [self._folder, *list(self._folder.resolve().parents)[:_UP]]
        if ups := len(module) - len(name):
            folders = folders[ups - 1 : ups]
        for folder in folders:
            place = folder.joinpath(*name.split("."))
            for path in (place.with_suffix(".py"), place / "__init__.py"):
                if path.is_file():
                    return path
        return None

    def knows(self, path: str) -> bool:
        """Return whether a dotted name is a function, class or method of a file here."""
        facts, name = self._of(path)
        return name in facts.names

    def is_class(self, path: str) -> bool:
        """Return whether a dotted name is a class of a file here."""
        facts, name = self._of(path)
        return any(one.startswith(f"{name}.") for one in facts.names)

    def awaits(self, path: str) -> bool:
        """Return whether a call of a dotted name is awaited."""
        facts, name = self._of(path)
        owner, _, method = name.rpartition(".")
        return name in facts.functions or (owner or name, method if owner else "") in facts.methods

    def blocks(self, path: str) -> bool:
        """Return whether a dotted name is a plain function or method of a file that blocks."""
        facts, name = self._of(path)
        return name in facts.blocking

    def blockers(self, name: str) -> list[str]:
        """Return the classes of all files that were read with a method of a name that blocks."""
        found = (one.partition(".") for facts in self._files.values() for one in facts.blocking)
        return [owner for owner, _, method in found if method == name]

    def star(self, node: cst.ImportFrom) -> list[str]:
        """Return the names that ``from module import *`` binds, if the module is a file here."""
        facts = self.facts("." * len(node.relative) + dotted(node.module))
        return [name for name in (*facts.names, *dict(facts.values)) if name.isidentifier()]

    def kinds(self, path: str) -> Kinds:
        """Return the kinds of an object that a file here has by a dotted name, or nothing."""
        module, name = _split(path)
        return frozenset(
            Foreign(f"{module}.{kind.path}", known=False) if isinstance(kind, Foreign) else kind
            for one, kind in self.facts(module).values
            if one == name
        )

    def imported(self, path: str, name: str) -> Facts:
        """Return the facts that a file has by its import of a dotted name of another file."""
        facts, old = self._of(path)
        return facts.of(old, name)

    def owners(self, name: str) -> dict[str, bool]:
        """Return the classes with a method of a name in files that were read, and if it is async."""
        found: dict[str, bool] = {}
        for facts in self._files.values():
            for owner, _, method in (one.partition(".") for one in facts.names):
                if method == name:
                    found[owner] = found.get(owner, True) and (owner, name) in facts.methods
        return found

    def bases(self, path: str) -> list[type]:
        """Return the classes of asyncmon that a class of another file derives from."""
        facts, name = self._of(path)
        return [base for owner, base in facts.bases if owner == name]


def _split(path: str) -> tuple[str, str]:
    """Return the module of a dotted name, and the name in it, ``Class.method`` for a method."""
    if found := _MEMBER.fullmatch(path):
        return found[1], f"{found[2]}.{found[3]}"
    module, _, name = path.rpartition(".")
    return module, name
