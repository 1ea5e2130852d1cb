"""Select runs and tags from the options of a command."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Sequence

from asyncmon.cli.output import unreadable
from asyncmon.summary.scalars import Scalar, find_event_files, read_scalars


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`selected` reads."""
    text = "a directory with event files or runs"
    parser.add_argument("logdirs", nargs="+", metavar="LOGDIR", help=text)
    add_tag_option(parser)


def add_tag_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--tag``."""
    text = "only these scalars, such as loss or 'eval/*'; may be repeated"
    parser.add_argument("--tag", action="append", metavar="PATTERN", help=text)


def is_selected(tag: str, patterns: Sequence[str]) -> bool:
    """Return whether a tag matches one of the patterns, or there is none."""
    return not patterns or any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns)


def selected(options: argparse.Namespace) -> dict[str, dict[str, Sequence[Scalar]]]:
    """Return the selected points by run and tag. Blocking.

    Raises:
        ValueError: there is none, or a directory cannot be read.
        DataLossError: a record is damaged.
    """
    patterns: list[str] = options.tag or []
    found: dict[str, dict[str, Sequence[Scalar]]] = {}
    seen: set[str] = set()
    for logdir in options.logdirs:
        if problem := unreadable(logdir):
            raise ValueError(f"There are no scalars below {logdir!r}: {problem}.")
        for name, files in find_event_files(logdir).items():
            scalars = read_scalars(files)
            seen.update(scalars)
            chosen = {tag: scalars[tag] for tag in sorted(scalars) if is_selected(tag, patterns)}
            if chosen:
                found[os.path.normpath(os.path.join(logdir, name))] = chosen
    if not found:
        where = ", ".join(map(repr, options.logdirs))
        if seen:
            asked = ", ".join(map(repr, patterns))
            raise ValueError(
                f"No scalar in {where} is called {asked}; there are {', '.join(sorted(seen))}."
            )
        raise ValueError(f"There are no scalars below {where}: it has no event file with one.")
    return found
