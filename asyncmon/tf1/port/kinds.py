"""The kinds of objects that the port distinguishes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import libcst as cst

Function = cst.FunctionDef | cst.Lambda


class Kind:
    """The base class of the kinds."""


@dataclass(frozen=True)
class Real(Kind):
    """A module, class or function of asyncmon itself."""

    value: Any


@dataclass(frozen=True)
class Instance(Kind):
    """An object of a class of asyncmon, or of one that the file defines."""

    of: type | cst.ClassDef


@dataclass(frozen=True)
class Super(Kind):
    """``super()`` in a class of the file."""

    of: cst.ClassDef


@dataclass(frozen=True)
class Local(Kind):
    """A class that the file defines."""

    of: cst.ClassDef


@dataclass(frozen=True)
class Func(Kind):
    """A function or lambda of the file, or a method of it bound to its object."""

    node: Function
    bound: bool = False


@dataclass(frozen=True)
class Method(Kind):
    """A bound method of an object of asyncmon."""

    owner: type
    name: str


@dataclass(frozen=True)
class Callback(Kind):
    """A callable whose result is awaited, from ``Session.make_callable``."""


@dataclass(frozen=True)
class Generator(Kind):
    """The result of a generator function of the file."""

    node: cst.FunctionDef


@dataclass(frozen=True)
class Stream(Kind):
    """An object iterated by ``async for``."""

    of: Kinds


@dataclass(frozen=True)
class Manager(Kind):
    """A context manager entered by ``async with`` that is no instance of a known class."""

    of: Kinds
    node: cst.FunctionDef | None = None


@dataclass(frozen=True)
class Opened(Kind):
    """A context manager entered by a plain ``with``."""

    of: Kinds


@dataclass(frozen=True)
class Symbol(Kind):
    """A tensor, a variable, an operation, or a structure of them."""


@dataclass(frozen=True)
class Thread(Kind):
    """A thread that becomes a task, or a task that has its own ``start``."""

    has_start: bool = False


@dataclass(frozen=True)
class Elements(Kind):
    """A container with elements of the same kinds."""

    of: Kinds


@dataclass(frozen=True)
class Items(Kind):
    """A tuple or list of known length."""

    of: tuple[Kinds, ...]


@dataclass(frozen=True)
class Foreign(Kind):
    """An object of another package, by its dotted name; a ``known`` one uses no session."""

    path: str
    known: bool = True


@dataclass(frozen=True)
class Value(Kind):
    """A value with nothing to await: a number, an array, a file."""


Kinds = frozenset[Kind]
"""The possible kinds of an expression; empty if unknown."""

NOTHING: Kinds = frozenset()
VALUE: Kinds = frozenset({Value()})
SYMBOL: Kinds = frozenset({Symbol()})

_DEPTH = 4


def one(kind: Kind) -> Kinds:
    """Return a set of one kind."""
    return frozenset({kind})


def union(many: Iterable[Kinds]) -> Kinds:
    """Return the union of several sets of kinds."""
    return frozenset().union(*many)


def depth(kinds: Kinds) -> int:
    """Return the nesting depth of structures."""
    return max((1 + depth(inner) for kind in kinds for inner in _inside(kind)), default=0)


def elements(of: Kinds) -> Kinds:
    """Return a container of elements with these kinds, or a value if it would be nested too deep."""
    return one(Elements(of)) if depth(of) < _DEPTH else VALUE


def items(of: Iterable[Kinds]) -> Kinds:
    """Return a tuple of elements with these kinds, or a value if it would be nested too deep."""
    of = tuple(of)
    return one(Items(of)) if max(map(depth, of), default=0) < _DEPTH else VALUE


def _inside(kind: Kind) -> tuple[Kinds, ...]:
    if isinstance(kind, Elements | Stream | Manager | Opened):
        return (kind.of,)
    return kind.of if isinstance(kind, Items) else ()


def each(kinds: Kinds) -> Kinds:
    """Return the kinds of the elements of an object."""
    found: set[Kind] = set()
    for kind in kinds:
        if isinstance(kind, Elements | Stream):
            found |= kind.of
        elif isinstance(kind, Items):
            found |= union(kind.of)
        elif isinstance(kind, Symbol | Value):
            found.add(kind)
    return frozenset(found)
