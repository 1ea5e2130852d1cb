"""Port a program: the new text, and notes on lines that need a manual change."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import libcst as cst

from asyncmon.tf1.port.entry import Entry
from asyncmon.tf1.port.flow import Flow
from asyncmon.tf1.port.layout import realigned
from asyncmon.tf1.port.plan import Note, Planner
from asyncmon.tf1.port.remarks import add_remarks
from asyncmon.tf1.port.rewrite import Rewriter
from asyncmon.tf1.port.scopes import Tree
from asyncmon.tf1.port.siblings import Facts, Siblings
from asyncmon.tf1.port.threads import Threads


@dataclass(frozen=True)
class Ported:
    """A ported program."""

    source: bytes
    notes: tuple[Note, ...]
    """Notes on code that is left unchanged, by line of the old file."""


def port(
    source: bytes | str, folder: Path | None = None, known: dict[Path, Facts] | None = None
) -> Ported:
    """Port the text of a program; porting the result again changes nothing.

    Args:
        source: the text.
        folder: the folder of the program, in which imported files are read to find async functions.
        known: the facts of files that were read before, and of those that this port reads.

    Raises:
        SyntaxError: it is not Python 3, or mixes tabs with spaces; it has the line.
    """
    check(source)
    read = partial(_facts, known={} if known is None else known)
    planner, threads = _plan(source, Siblings(folder, read))
    entry = Entry(planner)
    add_remarks(planner)
    old = planner.tree.module
    made = old.visit(Rewriter(planner, threads, entry))
    text = made.bytes
    try:
        check(text)
        text = realigned(old.code, made.code).encode(made.encoding)
    except SyntaxError as error:  # for example an await where none may be
        planner.plan.notes.add(Note(1, f"line {error.lineno} of the port is wrong: {error.msg}"))
    return Ported(text, tuple(sorted(planner.plan.notes)))


def check(source: bytes | str) -> None:
    """Raise SyntaxError if a text is not Python 3."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning of the program is none of the port
        try:
            compile(source, "<program>", "exec", dont_inherit=True)
            cst.parse_module(source)
        except ValueError as error:  # a null byte
            raise SyntaxError(str(error)) from None
        except cst.ParserSyntaxError as error:
            message = error.message.splitlines()[0]
            raise SyntaxError(message, ("", error.raw_line, error.raw_column, "")) from None


def _plan(source: bytes | str, siblings: Siblings) -> tuple[Planner, Threads]:
    planner = Planner(Flow(Tree(cst.parse_module(source)), siblings))
    threads = Threads(planner)
    while planner.settle():
        threads = Threads(planner)
    return planner, threads


def _facts(path: Path, known: dict[Path, Facts]) -> Facts:
    """Return the facts of another file of the program; ``known`` are those of files read before."""
    if path in known:
        return known[path]
    known[path] = Facts()  # for circular imports
    siblings = Siblings(path.parent, partial(_facts, known=known))
    try:
        check(source := path.read_bytes())
        planner, _ = _plan(source, siblings)
    except (OSError, SyntaxError):
        return known[path]
    tree, flow = planner.tree, planner.flow
    functions = [f for f in tree.functions if isinstance(tree.holder(f), cst.Module)]
    methods = [(c, f) for f in tree.functions if (c := tree.is_method(f)) is not None]
    awaited = {(c.name.value, f.name.value) for c, f in methods if planner.is_coroutine(f)}
    known[path] = Facts(
        functions=frozenset(f.name.value for f in functions if planner.is_coroutine(f)),
        methods=frozenset(
            (owner, "" if name in ("__init__", "__new__") else name) for owner, name in awaited
        ),
        names=frozenset(f.name.value for f in functions)
        | frozenset(c.name.value for c in tree.classes)
        | frozenset(f"{c.name.value}.{f.name.value}" for c, f in methods),
        bases=tuple((c.name.value, base) for c in tree.classes for base in flow.real_bases(c)),
    )
    return known[path]
