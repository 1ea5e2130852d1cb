"""The command line: ``python -m asyncmon inspect|verify PATH``, ``port OLD.py`` and ``server``."""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import sys
from typing import TYPE_CHECKING

from asyncmon import checkpoint
from asyncmon.distributed import command as serving
from asyncmon.errors import OpError
from asyncmon.port import command as porting

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 1 where something is missing or damaged."""
    parser = argparse.ArgumentParser(
        prog="python -m asyncmon", description="Look into checkpoints; port programs; run a server."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what in [
        ("inspect", "list what a checkpoint holds, or the newest one of a directory"),
        ("verify", "check every byte of a checkpoint, or of all those of a directory"),
    ]:
        command = commands.add_parser(name, help=what, description=what.capitalize() + ".")
        command.add_argument(
            "path", help="a checkpoint (dir/model.ckpt-10), a safetensors file, a directory, or a URL"
        )
    porter = commands.add_parser(
        "port",
        help="port a program of TensorFlow 1",
        description=porting.DESCRIPTION,
        epilog=porting.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    porting.add_options(porter)
    server = commands.add_parser(
        "server", help="run a task of a cluster", description=serving.DESCRIPTION
    )
    serving.add_options(server)
    parsed = parser.parse_args(arguments)
    run = {"inspect": _inspect, "verify": _verify}.get(parsed.command)
    try:
        if run is not None:
            status = asyncio.run(run(parsed.path))
        elif parsed.command == "server":
            status = serving.run(parsed)
        else:
            status = porting.run(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is yet to be flushed
        return 1
    except (OpError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


async def _inspect(path: str) -> int:
    async with await checkpoint.load_checkpoint(path) as reader:
        shapes = reader.get_variable_to_shape_map()
        dtypes = reader.get_variable_to_dtype_map()
        facts = reader.facts
        states = sorted(await reader.states())
    lines = [
        ["checkpoint", reader.path],
        ["step", "none" if facts.step is None else str(facts.step)],
        ["saved", _moment(facts.wall_time)],
        ["files", f"{', '.join(facts.file_names)}, {facts.nbytes:,} bytes"],
    ]
    lines += [["metric", f"{name} = {value:g}"] for name, value in sorted(facts.metrics.items())]
    lines += [["state", name] for name in states]
    _table([], lines)
    sys.stdout.write("\n")
    _table(
        ["name", "dtype", "shape"],
        [[name, dtypes[name].name, str(shape)] for name, shape in sorted(shapes.items())],
    )
    return 0


async def _verify(path: str) -> int:
    found = await checkpoint.verify(path)
    if not found:
        raise ValueError(f"There is no checkpoint in {path!r}.")
    rows = []
    for one in found:
        step, saved, size = "", "", ""
        if one.facts is not None:
            step = "" if one.facts.step is None else str(one.facts.step)
            saved, size = _moment(one.facts.wall_time), f"{one.facts.nbytes:,}"
        rows.append([one.path, step, saved, size, one.problem or "ok"])
    _table(["checkpoint", "step", "saved", "bytes", "verdict"], rows)
    return 1 if any(one.problem for one in found) else 0


def _moment(wall_time: float | None) -> str:
    if wall_time is None:
        return "unknown"
    return datetime.datetime.fromtimestamp(wall_time).astimezone().isoformat(" ", "seconds")


def _table(header: list[str], rows: list[list[str]]) -> None:
    lines = [header, *rows] if header else rows
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
