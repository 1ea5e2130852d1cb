"""``asyncmon export``: write the model of a checkpoint for other tools."""

from __future__ import annotations

import argparse
import asyncio
import sys

from asyncmon.cli.output import checkpoint_path
from asyncmon.programs import export

DESCRIPTION = """\
Write the model of a checkpoint, or of the newest one in a directory, as a safetensors file or as a
state dict of torch.save (.pt)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=checkpoint_path, help="a checkpoint (dir/model.ckpt-10), a directory, or a URL")
    add("file", help="model.safetensors or model.pt")
    add("--name", help="the name of the module in the program (default: the only one)")
    add("--ema", action="store_true", help="write the moving averages")


def run(options: argparse.Namespace) -> int:
    """Write the file."""
    exported = export(options.path, options.file, options.name, ema=options.ema)
    sys.stdout.write(f"{len(asyncio.run(exported))} entries in {options.file}\n")
    return 0
