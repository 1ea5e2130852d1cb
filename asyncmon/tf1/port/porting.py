"""Port a program: the new text, and notes on lines that need a manual change."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from asyncmon.tf1.port.entry import Entry
from asyncmon.tf1.port.layout import realigned
from asyncmon.tf1.port.plan import Note
from asyncmon.tf1.port.program import Program, parsed
from asyncmon.tf1.port.remarks import add_remarks
from asyncmon.tf1.port.rewrite import Rewriter


@dataclass(frozen=True)
class Ported:
    """A ported program."""

    source: bytes
    notes: tuple[Note, ...]
    """Notes on code that is left unchanged, by line of the old file."""


def port(
    source: bytes | str,
    folder: Path | None = None,
    program: Program | None = None,
    path: Path | None = None,
) -> Ported:
    """Port the text of a program; porting the result again changes nothing.

    Args:
        source: the text.
        folder: the folder of the program, in which imported files are read to find async functions.
        program: the files that were read before; this port adds those that it reads.
        path: the file of the text, if ``program`` has read it.

    Raises:
        SyntaxError: it is not Python 3, or mixes tabs with spaces; it has the line.
    """
    planned = (program or Program()).plan(source, folder, path)
    planner = planned.planner
    entry = Entry(planner)
    add_remarks(planner)
    old = planner.tree.module
    made = old.visit(Rewriter(planner, planned.threads, entry))
    text = made.bytes
    try:
        parsed(text)
        text = realigned(old.code, made.code).encode(made.encoding)
    except SyntaxError as error:  # for example an await where none may be
        planner.plan.notes.add(Note(1, f"line {error.lineno} of the port is wrong: {error.msg}"))
    return Ported(text, tuple(sorted(planner.plan.notes)))
