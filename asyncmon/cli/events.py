"""``asyncmon events``: print or export the scalars of event files."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator

from asyncmon.cli.output import printable, write_table
from asyncmon.cli.scalars import Runs, Selection, add_selection
from asyncmon.summary.scalars import json_number

DESCRIPTION = """\
List scalars, or print all their points with --csv or --json: run, tag, step, wall_time (seconds since
1970) and value, one point per line. Points of steps that were lost in a crash are omitted."""

EPILOG = """\
example: asyncmon events runs --tag loss --csv > loss.csv
exit status: 0 done; 1 no scalar found, or a damaged file, which is named on standard error: what is
readable is printed; 2 wrong arguments."""

COLUMNS = ("run", "tag", "step", "wall_time", "value")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--csv", action="store_true", help="print points as CSV with a header")
    output.add_argument(
        "--json",
        action="store_true",
        help="print points as JSON lines; NaN and infinities are strings, as in protobuf's JSON",
    )


def run(options: argparse.Namespace) -> int:
    """Print scalars."""
    selection = Selection(options)
    runs = selection.runs
    if options.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        show = printable if sys.stdout.isatty() else str  # a file gets the names as they are
        writer.writerows((show(run), show(tag), *rest) for run, tag, *rest in _points(runs))
    elif options.json:
        for *facts, value in _points(runs):
            line = dict(zip(COLUMNS, [*facts, json_number(value)], strict=True))
            sys.stdout.write(f"{json.dumps(line)}\n")
    else:
        rows = []
        for name, scalars in runs.items():
            for tag, points in scalars.items():
                first, last = points[0], points[-1]
                row = [name, tag, str(len(points)), str(first.step), str(last.step), f"{last.value:g}"]
                rows.append(row)
        write_table(["run", "tag", "points", "first step", "last step", "last value"], rows)
    return selection.status


def _points(runs: Runs) -> Iterator[tuple[str, str, int, float, float]]:
    for name, scalars in runs.items():
        for tag, points in scalars.items():
            for point in points:
                yield name, tag, point.step, point.wall_time, point.value
