"""``asyncmon inspect``: list the contents of a checkpoint."""

from __future__ import annotations

import argparse
import asyncio
import sys

from asyncmon import checkpoint
from asyncmon.cli.output import add_checkpoint_options, moment, write_json, write_table

DESCRIPTION = "List the contents of a checkpoint, or of the newest one in a directory."

EPILOG = "exit status: 0; 1 a partitioned variable lacks a part, or there is no checkpoint."


def add_options(parser: argparse.ArgumentParser) -> None:
    add_checkpoint_options(parser)


def run(options: argparse.Namespace) -> int:
    """List the contents of a checkpoint."""
    return asyncio.run(_inspect(options.path, options.json))


async def _inspect(path: str, as_json: bool) -> int:
    async with await checkpoint.load_checkpoint(path) as reader:
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
        facts = reader.facts
        states = sorted(await reader.states())
    entries = [(name, dtypes[name].name, shape) for name, shape in sorted(shapes.items())]
    if as_json:
        write_json({
            "checkpoint": reader.path, "step": facts.step, "saved": facts.wall_time,
            "files": list(facts.file_names), "bytes": facts.nbytes, "metrics": dict(facts.metrics),
            "states": states, "problems": dict(facts.incomplete),
            "entries": [dict(zip(("name", "dtype", "shape"), entry, strict=True)) for entry in entries],
        })  # fmt: skip
        return int(bool(facts.incomplete))
    lines = [
        ["checkpoint", reader.path],
        ["step", "none" if facts.step is None else str(facts.step)],
        ["saved", moment(facts.wall_time)],
        ["files", f"{', '.join(facts.file_names)}, {facts.nbytes:,} bytes"],
    ]
    lines += [["metric", f"{name} = {value:g}"] for name, value in sorted(facts.metrics.items())]
    lines += [["state", name] for name in states]
    lines += [["problem", text] for _, text in sorted(facts.incomplete.items())]
    write_table([], lines)
    sys.stdout.write("\n")
    write_table(
        ["name", "dtype", "shape"], [[name, dtype, str(shape)] for name, dtype, shape in entries]
    )
    return int(bool(facts.incomplete))
