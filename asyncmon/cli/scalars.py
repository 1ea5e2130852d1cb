"""Select runs and tags from the options of a command."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from asyncmon.cli.output import complain, unreadable
from asyncmon.summary.scalars import Scalar, find_event_files, read_scalars

Runs: TypeAlias = dict[str, Mapping[str, Sequence[Scalar]]]


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that :class:`Selection` reads."""
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


class Selection:
    """The selected points by run and tag, and what could not be read. Blocking.

    Each damage is reported on standard error with its file and place. Readable records before it and
    beside it count.

    Raises:
        ValueError: there is no selected point, or a directory cannot be read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.status = 0
        """The exit status: 1 if something could not be read."""
        self.runs = self._read(options.logdirs, options.tag or [])

    def _damaged(self, error: Exception) -> None:
        complain(str(error))
        self.status = 1

    def _read(self, logdirs: list[str], patterns: list[str]) -> Runs:
        found: Runs = {}
        seen: set[str] = set()
        for logdir in logdirs:
            if problem := unreadable(logdir):
                raise ValueError(f"There are no scalars below {logdir!r}: {problem}.")
            for name, files in find_event_files(logdir, self._damaged).items():
                scalars = read_scalars(files, self._damaged)
                seen.update(scalars)
                chosen = {tag: scalars[tag] for tag in sorted(scalars) if is_selected(tag, patterns)}
                if chosen:
                    found[os.path.normpath(os.path.join(logdir, name))] = chosen
        if found:
            return found
        where = ", ".join(map(repr, logdirs))
        if seen:
            asked = ", ".join(map(repr, patterns))
            raise ValueError(
                f"No scalar in {where} is called {asked}; there are {', '.join(sorted(seen))}."
            )
        raise ValueError(f"There are no scalars below {where}: it has no event file with one.")
