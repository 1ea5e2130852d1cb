"""``asyncmon verify``: verify the checksums of checkpoints."""

from __future__ import annotations

import argparse
import asyncio

from asyncmon import checkpoint
from asyncmon.cli.output import add_checkpoint_options, moment, write_json, write_table

DESCRIPTION = "Verify every byte of a checkpoint, or of all checkpoints in a directory."

EPILOG = "exit status: 0 all are intact; 1 one is damaged or missing, or there is none."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)


def run(options: argparse.Namespace) -> int:
    """Verify checkpoints, and return 1 if one is damaged."""
    found = asyncio.run(checkpoint.verify(options.path))
    if not found:
        raise ValueError(f"There is no checkpoint in {options.path!r}.")
    damaged = any(one.problem for one in found)
    if options.json:
        write_json([
            {
                "checkpoint": one.path,
                "step": one.facts and one.facts.step,
                "saved": one.facts and one.facts.wall_time,
                "bytes": one.facts and one.facts.nbytes,
                "problem": one.problem,
            }
            for one in found
        ])  # fmt: skip
        return int(damaged)
    rows = []
    for one in found:
        step, saved, size = "", "", ""
        if one.facts is not None:
            step = "" if one.facts.step is None else str(one.facts.step)
            saved, size = moment(one.facts.wall_time), f"{one.facts.nbytes:,}"
        rows.append([one.path, step, saved, size, one.problem or "ok"])
    write_table(["checkpoint", "step", "saved", "bytes", "verdict"], rows)
    return int(damaged)
