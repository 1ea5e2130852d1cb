"""Show HTML in notebooks: tables, and an output that is replaced."""

from __future__ import annotations

import html
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Cell:
    """An output of the cell in which it is first shown; later HTML replaces it."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, content: str) -> None:
        """Show HTML."""
        module: Any = importlib.import_module("IPython.display")  # a kernel has it
        shown = module.HTML(content)
        if self._handle is None:
            self._handle = module.display(shown, display_id=True)
        else:
            self._handle.update(shown)


def html_table(headings: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table of texts, which are escaped."""
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    head = "".join(f"<th>{html.escape(one)}</th>" for one in headings)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(one))}</td>' for one in row)}</tr>" for row in rows
    )
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def progress_bar(step: int, last_step: int | None, text: str) -> str:
    """Return a bar, where the last step is known, and a text, which is escaped."""
    bar = "" if last_step is None else f'<progress value="{step}" max="{last_step}"></progress> '
    return f"<div>{bar}{html.escape(text)}</div>"
