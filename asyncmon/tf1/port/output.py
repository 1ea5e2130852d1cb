"""Write ported files, and word the refusals."""

from __future__ import annotations

import os
from pathlib import Path

from asyncmon.system.files import FileCalls


def refusal(error: SyntaxError) -> str:
    """Return why a text is not ported, with the tool to run first."""
    if isinstance(error, TabError):
        return f"tabs are mixed with spaces: {error.msg}. Run `expand -t 8 OLD.py` first."
    return (
        f"not Python 3: {error.msg}. For a Python 2 program run 2to3 first (`2to3 -w OLD.py`; where "
        "Python has none: pip install fissix, `fissix -w OLD.py`)."
    )


def write(path: Path, source: bytes) -> None:
    """Write a file whole; an existing one keeps its mode."""
    place = path.resolve()
    mode = place.stat().st_mode if place.exists() else None
    FileCalls().put_files(place.parent, {place.name: source})
    if mode is not None:
        os.chmod(place, mode)
