"""Port a folder: every file of it, in one pass. Write ported files, and word the refusals."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from asyncmon.system.files import FileCalls
from asyncmon.tf1.port.porting import Program

# Folders that hold no source, besides hidden ones.
_SKIPPED = frozenset({"__pycache__", "venv", "env", "node_modules", "build", "dist"})


def port_folder(
    old: Path,
    new: Path,
    report: Callable[[str], object],
    progress: Callable[[str], object] = lambda _: None,
) -> int:
    """Port the files of a folder into another one, or in place; return the exit status.

    Files that are not Python 3 are copied, and reported like the lines that need a manual change.
    Hidden folders and build products are skipped, and reported without an effect on the status.

    Args:
        old: the folder.
        new: the folder to write; it may be ``old``.
        report: receives the lines to print.
        progress: receives a text on the progress.

    Raises:
        OSError: a file cannot be read or written.
    """
    base, place = old.resolve(), new.resolve()
    files = list(_files(base, place, report))
    texts = {path: path.read_bytes() for path in files if path.suffix == ".py"}
    program = Program(texts, progress)
    made: dict[Path, bytes | None] = dict.fromkeys(files)
    left = 0
    for number, (path, source) in enumerate(texts.items(), 1):
        shown = old / path.relative_to(base)
        progress(f"{number} of {len(texts)} files ported")
        try:
            ported = program.port(path)
        except SyntaxError as error:
            report(f"{shown}:{error.lineno or 1}: copied: {refusal(error)}\n")
            left += 1
            continue
        for note in ported.notes:
            report(f"{shown}:{note.line}: {note.text}\n")
        left += len(ported.notes)
        made[path] = None if ported.source == source else ported.source
    for path, text in made.items():
        goal = place / path.relative_to(base)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if goal != path:
            shutil.copy2(path, goal)
        if text is not None:
            write(goal, text)
    return 1 if left else 0


def _files(base: Path, place: Path, report: Callable[[str], object]) -> list[Path]:
    """Return the files to port or copy, in order."""
    found = []
    for folder, names, files in os.walk(base):
        here = Path(folder)
        for name in sorted(names):
            path = here / name
            if path == place and place != base:
                names.remove(name)
            elif name.startswith(".") or name in _SKIPPED or (path / "pyvenv.cfg").exists():
                names.remove(name)
                report(f"{path.relative_to(base)}: skipped\n")
        names.sort()
        found += [here / name for name in sorted(files) if (here / name).is_file()]
    return found


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
