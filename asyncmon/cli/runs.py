"""``asyncmon runs``: list the runs in a directory, with their states and ends."""

from __future__ import annotations

import argparse
import asyncio

import msgspec

from asyncmon.cli.output import add_json_option, moment, unreadable, write_json, write_table
from asyncmon.runtime.run_record import RunRecord, runs
from asyncmon.system.urls import require_local

DESCRIPTION = "List the runs in a directory and below it: their states, steps and ends."

EPILOG = (
    "states: opening, running, paused; completed, stopped, preempted, cancelled, failed; lost, if the\n"
    "process of the run died.\n"
    "exit status: 0 they are listed; 1 the directory cannot be read."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", default=".", help="default: the current directory")
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the records of runs."""
    require_local(options.directory, "The records of many runs")
    if problem := unreadable(options.directory):
        raise ValueError(f"{options.directory!r} cannot be read: {problem}.")
    found = asyncio.run(runs(options.directory))
    if options.json:
        write_json([msgspec.to_builtins(one) for one in found])
    elif found:
        write_table(["run", "state", "step", "updated", "end", "directory"], list(map(_row, found)))
    return 0


def _row(one: RunRecord) -> list[str]:
    step = "" if one.step is None else str(one.step)
    end = one.error or one.text or ""
    return [one.name, one.state, step, moment(one.updated), end, one.directory or ""]
