"""Turn roles and code blocks of docstrings into Markdown for the API reference."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))

from public import place_of


class Docstrings(griffe.Extension):
    """Converts each docstring when it is loaded."""

    def on_object(self, *, obj: griffe.Object, **_options: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj.path)


def markdown(text: str, path: str) -> str:
    """Return a docstring with links for roles, and fences for blocks after ``::``."""
    return re.sub(r":\w+:`([^`]+)`", lambda role: _link(role[1], path), _fenced(text))


def _link(target: str, path: str) -> str:
    place = place_of(target, path)
    shown = target.split(".")[-1] if target.startswith("~") else target.lstrip(".")
    return f"`{shown}`" if place is None else f"[`{shown}`][{place}]"


def _fenced(text: str) -> str:
    lines: list[str] = []
    block: str | None = None  # the indentation of the text before a block of code
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if block is not None and line.strip() and len(indent) <= len(block):
            while not lines[-1].strip():
                lines.pop()
            lines += [f"{block}```", ""]
            block = None
        if block is None and line.rstrip().endswith("::"):
            block = indent
            lines += [line.rstrip()[:-1].replace("Example:", "**Example**"), "", f"{indent}```python"]
            continue
        if block is not None and lines[-1].endswith("```python") and not line.strip():
            continue
        lines.append(line[len(block) + 4 :] if block is not None and line.strip() else line)
    if block is not None:
        lines.append(f"{block}```")
    return "\n".join(lines)
