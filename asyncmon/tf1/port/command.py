"""``python -m asyncmon port``: its options, the files, the exit status."""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncmon.tf1.port.porting import Ported

DESCRIPTION = """\
Port a program that uses TensorFlow 1's sessions to asyncmon: the import, `async with`, `await`,
`async def` up to the entry point, threads to tasks. Comments and layout stay. Without an option the new
text is printed; OLD.py itself is written only with -i. A file is written whole or not at all.
A folder is ported with all folders in it; files that need no change are copied.

Work that is left to you is listed on standard error, by line of OLD.py, with the reason."""

EPILOG = """\
exit status: 0 all is ported; 1 ported, but for the lines listed; 2 nothing is written (OLD.py cannot be
read or is not Python 3, or a file cannot be written). Files of a folder that are not Python 3 are
copied and listed.
Porting a ported file changes nothing."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the command to a parser."""
    parser.add_argument("old", metavar="OLD.py", type=Path, help="the program to port, or its folder")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-o", "--output", metavar="NEW.py", type=Path, help="write the port to this file or folder"
    )
    where.add_argument("-i", "--in-place", action="store_true", help="write the port over OLD.py")
    parser.add_argument(
        "--diff", action="store_true", help="print a unified diff instead of the new text"
    )


def run(options: argparse.Namespace) -> int:
    """Port a file or a folder as the options say, and return the exit status."""
    # Here, as `--help` of all commands imports this module: these import all of asyncmon.tf1.
    from asyncmon.tf1.port.package import port_folder, refusal, write
    from asyncmon.tf1.port.porting import port

    old: Path = options.old
    new: Path | None = old if options.in_place else options.output
    if new is not None and not new.parent.is_dir():
        return _refuse(f"{new.parent}: there is no such folder: make it first")
    try:
        if old.is_dir():
            if new is None:
                return _refuse(f"{old} is a folder: give the one to write with -o, or -i")
            return port_folder(old, new, sys.stderr.write, _progress)
        if new is not None and new.is_dir():
            return _refuse(f"{new} is a folder: give the file to write, {new / old.name}")
        if options.output is not None and options.output.exists() and options.output.samefile(old):
            return _refuse(f"{options.output} is the program itself: use -i to write over it")
        source = old.read_bytes()
        ported = port(source, old.parent)
        if new is not None:
            write(new, ported.source)
    except SyntaxError as error:
        return _refuse(f"{old}:{error.lineno or 1}: {refusal(error)}")
    except (OSError, UnicodeError, RecursionError) as error:
        return _refuse(f"{old}: {error}")
    _report(old, new, source, ported, diff=options.diff)
    return 1 if ported.notes else 0


def _progress(text: str) -> None:
    """Show the progress in one line of a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}\r")


def _refuse(text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return 2


def _report(old: Path, new: Path | None, source: bytes, ported: Ported, *, diff: bool) -> None:
    before, after = (text.decode("utf-8", "replace") for text in (source, ported.source))
    if diff:
        lines = difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            str(old),
            str(new or old),
        )
        sys.stdout.writelines(line if line.endswith("\n") else f"{line}\n" for line in lines)
    elif new is None:
        sys.stdout.write(after)
    for note in ported.notes:
        sys.stderr.write(f"{old}:{note.line}: {note.text}\n")
