"""What a name of a program can stand for, as far as the port has to know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import libcst as cst

Function = cst.FunctionDef | cst.Lambda


@dataclass(frozen=True)
class Real:
    """A module, class or function of asyncmon itself."""

    value: Any


@dataclass(frozen=True)
class Instance:
    """An object of a class of asyncmon, or of one that the file defines."""

    of: type | cst.ClassDef


@dataclass(frozen=True)
class Super:
    """``super()`` in a class of the file."""

    of: cst.ClassDef


@dataclass(frozen=True)
class Local:
    """A class that the file defines."""

    node: cst.ClassDef


@dataclass(frozen=True)
class Func:
    """A function or lambda of the file, or a method of it bound to its object."""

    node: Function
    bound: bool = False


@dataclass(frozen=True)
class Method:
    """A bound method of an object of asyncmon."""

    owner: type
    name: str


@dataclass(frozen=True)
class Callback:
    """Something to call whose result is awaited: what ``Session.make_callable`` returns."""


@dataclass(frozen=True)
class Generator:
    """What a call of a generator function of the file gives."""

    node: cst.FunctionDef


@dataclass(frozen=True)
class Stream:
    """What is iterated by ``async for``."""

    of: Kinds


@dataclass(frozen=True)
class Manager:
    """What is entered by ``async with``, though its class does not say so."""

    of: Kinds
    node: cst.FunctionDef | None = None


@dataclass(frozen=True)
class Opened:
    """A context manager that is entered by a plain ``with``."""

    of: Kinds


@dataclass(frozen=True)
class Symbol:
    """A tensor, a variable, an operation, or a structure of them."""


@dataclass(frozen=True)
class Thread:
    """A thread that becomes a task, or a task that has a ``start`` of its own."""

    has_start: bool = False


@dataclass(frozen=True)
class Elements:
    """Something with elements that are all alike."""

    of: Kinds


@dataclass(frozen=True)
class Items:
    """A tuple or list of known length."""

    of: tuple[Kinds, ...]


@dataclass(frozen=True)
class Foreign:
    """Something of another package, by its dotted name; a ``known`` one uses no session."""

    path: str
    known: bool = True


@dataclass(frozen=True)
class Value:
    """A value without anything to await: a number, an array, a file."""


Kind = (
    Real
    | Instance
    | Super
    | Local
    | Func
    | Method
    | Callback
    | Generator
    | Stream
    | Manager
    | Opened
    | Symbol
    | Thread
    | Elements
    | Items
    | Foreign
    | Value
)

Kinds = frozenset[Kind]
"""Everything that one expression can be; empty where nothing is known."""

NOTHING: Kinds = frozenset()
VALUE: Kinds = frozenset({Value()})
SYMBOL: Kinds = frozenset({Symbol()})

_DEPTH = 4


def one(kind: Kind) -> Kinds:
    """Return the kinds of an expression that can be one thing only."""
    return frozenset({kind})


def union(many: Iterable[Kinds]) -> Kinds:
    """Return what is in any of several kinds."""
    return frozenset().union(*many)


def depth(kinds: Kinds) -> int:
    """Return how many structures are inside one another."""
    return max((1 + depth(inner) for kind in kinds for inner in _inside(kind)), default=0)


def elements(of: Kinds) -> Kinds:
    """Return a structure of elements that are alike; a deep one is a mere value."""
    return one(Elements(of)) if depth(of) < _DEPTH else VALUE


def items(of: Iterable[Kinds]) -> Kinds:
    """Return a structure of known length; a deep one is a mere value."""
    of = tuple(of)
    return one(Items(of)) if max(map(depth, of), default=0) < _DEPTH else VALUE


def _inside(kind: Kind) -> tuple[Kinds, ...]:
    if isinstance(kind, Elements | Stream | Manager | Opened):
        return (kind.of,)
    return kind.of if isinstance(kind, Items) else ()


def each(kinds: Kinds) -> Kinds:
    """Return the kinds of what an iteration over something gives."""
    found: set[Kind] = set()
    for kind in kinds:
        if isinstance(kind, Elements | Stream):
            found |= kind.of
        elif isinstance(kind, Items):
            found |= union(kind.of)
        elif isinstance(kind, Symbol | Value):
            found.add(kind)
    return frozenset(found)
