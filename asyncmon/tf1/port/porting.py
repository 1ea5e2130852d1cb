"""Port a program: the new text, and notes on lines that need a manual change."""

from __future__ import annotations

import difflib
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path

from asyncmon.tf1.port.entry import Entry
from asyncmon.tf1.port.plan import Note
from asyncmon.tf1.port.program import Program, parsed
from asyncmon.tf1.port.remarks import add_remarks
from asyncmon.tf1.port.rewrite import Rewriter

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


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
        text = _realigned(old.code, made.code).encode(made.encoding)
    except SyntaxError as error:  # for example an await where none may be
        planner.plan.notes.add(Note(1, f"line {error.lineno} of the port is wrong: {error.msg}"))
    return Ported(text, tuple(sorted(planner.plan.notes)))


def _realigned(old: str, new: str) -> str:
    """Return the new text with continuation lines aligned to their brackets as in the old text.

    A continuation line that starts at its bracket, or right of it, moves with it. One that starts left
    of it moves with the line that opens the bracket.
    """
    before, after = _tokens(old), _tokens(new)
    same = difflib.SequenceMatcher(None, [t.string for t in before], [t.string for t in after])
    origin: dict[int, tokenize.TokenInfo] = {}
    for block in same.get_matching_blocks():
        found = before[block.a : block.a + block.size]
        origin.update(zip(range(block.b, block.b + block.size), found, strict=True))
    lines = new.split("\n")  # as tokenize, which takes form feeds as spaces
    shifts = dict.fromkeys(range(1, len(lines) + 1), 0)
    stack: list[tuple[int, int, int]] = []
    """Open brackets: columns in the old text (-1 if it is new) and in the result, and the line."""
    row = inside = 0
    for index, token in enumerate(after):
        line, column = token.start
        was = origin.get(index)
        if line != row and line > inside and stack and token.type != tokenize.NL:
            past, now, above = stack[-1]
            if was is not None and 0 <= past <= was.start[1]:
                shifts[line] = max(now + was.start[1] - past - column, -column)
            elif was is not None and past >= 0:
                shifts[line] = max(shifts[above], -column)
        row, inside = line, max(inside, token.end[0] if token.end[0] > line else 0)
        if token.type == tokenize.OP and token.string in _OPEN:
            stack.append((-1 if was is None else was.start[1], column + shifts[line], line))
        elif token.type == tokenize.OP and token.string in _CLOSE and stack:
            stack.pop()
    return "\n".join(_shifted(line, shifts[number]) for number, line in enumerate(lines, 1))


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    skipped = (tokenize.INDENT, tokenize.DEDENT)
    return [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in skipped]


def _shifted(line: str, by: int) -> str:
    if by >= 0:
        return " " * by + line if by else line
    return line[-by:] if not line[:-by].strip() else line
