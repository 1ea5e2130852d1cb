"""A program in, its port and what it leaves to the reader out."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from asyncmon.port.entry import Entry
from asyncmon.port.flow import Flow
from asyncmon.port.plan import Note, Planner
from asyncmon.port.remarks import add_remarks
from asyncmon.port.rewrite import Rewriter
from asyncmon.port.scopes import Tree
from asyncmon.port.threads import Threads


@dataclass(frozen=True)
class Ported:
    """A program after the port."""

    source: bytes
    notes: tuple[Note, ...]
    """What was left as it is, by line of the old file."""


def port(source: bytes | str) -> Ported:
    """Port the text of a program; porting the result again changes nothing.

    Raises:
        libcst.ParserSyntaxError: it is not Python 3.
    """
    module = cst.parse_module(source)
    planner = Planner(Flow(Tree(module)))
    threads = Threads(planner)
    while planner.settle():
        threads = Threads(planner)
    entry = Entry(planner)
    add_remarks(planner)
    made = planner.tree.module.visit(Rewriter(planner, threads, entry))
    return Ported(made.bytes, tuple(sorted(planner.plan.notes)))


__all__ = ["Note", "Ported", "port"]
