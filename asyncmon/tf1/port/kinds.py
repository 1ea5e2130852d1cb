"""The kinds of objects that the port distinguishes."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from asyncmon.tf1.port import imports
from asyncmon.tf1.port.source import Function, Source


@dataclass(frozen=True)
class Real:
    """A module, class or function of asyncmon itself."""

    value: Any


@dataclass(frozen=True)
class Instance:
    """An object of a public class of asyncmon, or a tensor."""

    name: str


@dataclass(frozen=True)
class Method:
    """A bound method of an object of asyncmon."""

    owner: str
    name: str


@dataclass(frozen=True)
class Def:
    """A function, a lambda or a class of the program."""

    source: Source
    node: Function | ast.ClassDef


@dataclass(frozen=True)
class Object:
    """An object of a class of the program, or ``super()`` in one."""

    of: Def
    above: bool = False


@dataclass(frozen=True)
class Generator:
    """The result of a generator function of the program; a ``manager`` is entered."""

    of: Def
    manager: bool = False


@dataclass(frozen=True)
class Stream:
    """The result of an async generator of asyncmon; a ``manager`` is entered."""

    name: str
    manager: bool = False


@dataclass(frozen=True)
class Callback:
    """A callable whose result is awaited, from ``Session.make_callable``."""


@dataclass(frozen=True)
class Thread:
    """A thread that becomes a task, or a task that has its own ``start``."""

    has_start: bool = False


@dataclass(frozen=True)
class File:
    """A file of the program, as a module."""

    source: Source


@dataclass(frozen=True)
class Foreign:
    """An object of another package, by its dotted name; "value" is a number, an array or a text."""

    path: str

    @property
    def known(self) -> bool:
        """Return whether it is of a package that uses no session."""
        top = self.path.partition(".")[0]
        return top in ("value", "builtins") or top in sys.stdlib_module_names or top in imports.KNOWN


Kind = Real | Instance | Method | Def | Object | Generator | Stream | Callback | Thread | File | Foreign
Kinds = frozenset[Kind]
NOTHING: Kinds = frozenset()
VALUE: Kinds = frozenset({Foreign("value")})
TENSOR: Kinds = frozenset({Instance("Tensor")})


def one(kind: Kind) -> Kinds:
    """Return a set of one kind."""
    return frozenset({kind})


def union(many: Iterable[Kinds]) -> Kinds:
    """Return the union of several sets of kinds."""
    return NOTHING.union(*many)
