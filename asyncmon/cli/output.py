"""What commands share: options, and output as tables or JSON."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from glob import escape, glob
from typing import Any

from asyncmon.system import clock
from asyncmon.system.urls import require_local


def printable(text: str) -> str:
    """Return a text with control characters escaped: those of files must not command a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def write_line(text: str) -> None:
    """Print a line on standard output, with control characters escaped."""
    sys.stdout.write(f"{printable(text)}\n")


def complain(text: str) -> None:
    """Print a line on standard error, with control characters other than line ends escaped."""
    sys.stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")


def positive_secs(text: str) -> float:
    """Return the number of seconds of an option.

    Raises:
        ArgumentTypeError: it is not positive.
    """
    try:
        secs = float(text)
    except ValueError:
        secs = math.nan
    if not secs > 0:
        raise argparse.ArgumentTypeError(f"a positive number of seconds is expected, got {text}.")
    return secs


def checkpoint_path(text: str) -> str:
    """Return the path of a checkpoint, without the ending of its manifest."""
    return text.removesuffix(".json") if os.path.isfile(text) else text


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_checkpoint_options(parser: argparse.ArgumentParser) -> None:
    """Add the path of a checkpoint, and ``--json``."""
    text = "a checkpoint (dir/model.ckpt-10), a safetensors file, a directory, or a URL"
    parser.add_argument("path", type=checkpoint_path, help=text)
    add_json_option(parser)


def write_json(value: Any) -> None:
    """Print a value as JSON, with ``null`` for NaN and infinities."""
    text = json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None), indent=2)
    sys.stdout.write(f"{text}\n")


def write_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in aligned columns, below an optional header."""
    lines = [list(map(printable, line)) for line in ([header, *rows] if header else rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def moment(wall_time: float | None) -> str:
    """Format a local time with its UTC offset; ``"unknown"`` for None."""
    if wall_time is None:
        return "unknown"
    return clock.local_text(wall_time)


def unreadable(directory: str) -> str | None:
    """Return the error of listing a directory, or None. Blocking. Raises ValueError for a URL."""
    require_local(directory, "Event files")
    try:
        os.scandir(directory).close()
    except OSError as error:
        return error.strerror
    return None


def runs_in(directory: str) -> str:
    """Return an addition to an error that names the runs in a directory, or "". Blocking."""
    runs = sorted(map(os.path.dirname, glob(os.path.join(escape(directory), "*", "checkpoint"))))
    return f" (runs in it: {', '.join(map(repr, runs[:5]))}; give one of them)" if runs else ""
