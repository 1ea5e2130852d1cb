"""Re-indent continuation lines whose bracket has moved."""

from __future__ import annotations

import difflib
import io
import tokenize

_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


def realigned(old: str, new: str) -> str:
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
