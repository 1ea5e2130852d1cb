"""Show HTML in notebooks: tables, and an output that is replaced."""

from __future__ import annotations

import html
import importlib
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

E = TypeVar("E", bound=Exception)


def _shell() -> Any:
    """Return the shell of IPython that runs this program, or None."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def in_shell() -> bool:
    """Return whether the program is typed into IPython or the cells of a notebook."""
    return _shell() is not None


def program_arguments() -> list[str]:
    """Return ``sys.argv``; without arguments in a notebook, where these are the kernel's."""
    return sys.argv[:1] if in_notebook() else sys.argv


def explained(error: E, name: str) -> E:
    """Return an error about a variable, with a note if a cell may have built its model twice."""
    if in_shell() and (re.search(r"_\d+\b", name) or "already exists" in str(error)):
        error.add_note(
            "asyncmon: before the cell of a model runs again, call `am.graph.reset_default_graph()`. "
            "Sessions of an earlier model take `program=w.graph`, where w is one of its variables."
        )
    return error


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    return getattr(_shell(), "kernel", None) is not None


def call_in_each_cell(call: Callable[[], None]) -> None:
    """Call a function at the start of each later cell, in its task, as cells do not share a context."""

    def before(info: object = None) -> None:
        call()

    _shell().events.register("pre_run_cell", before)


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


def checkpoint_table(checkpoints: Iterable[tuple[str, float | None]]) -> str:
    """Return checkpoints and their times in seconds since 1970 as a table, the newest first."""
    rows = [
        (
            path,
            ""
            if secs is None or math.isinf(secs)
            else f"{datetime.fromtimestamp(secs).astimezone():%Y-%m-%d %H:%M:%S}",
        )
        for path, secs in reversed(list(checkpoints))
    ]
    return html_table(("checkpoint", "saved"), rows)


def progress_bar(step: int, last_step: int | None, text: str) -> str:
    """Return a bar, where the last step is known, and a text, which is escaped."""
    bar = "" if last_step is None else f'<progress value="{step}" max="{last_step}"></progress> '
    return f"<div>{bar}{html.escape(text)}</div>"
