"""Find the command, run it, and say in one sentence what went wrong."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from asyncmon.errors import OpError

COMMANDS = {
    "run": ("asyncmon.cli.run", "train until it is done or a signal comes"),
    "inspect": ("asyncmon.cli.inspect", "list what a checkpoint holds"),
    "verify": ("asyncmon.cli.verify", "check every byte of checkpoints"),
    "prune": ("asyncmon.cli.prune", "delete older checkpoints"),
    "events": ("asyncmon.cli.events", "print or export scalars"),
    "plot": ("asyncmon.cli.plot", "draw the scalars of several runs"),
    "monitor": ("asyncmon.cli.monitor", "show runs on a live page"),
    "stop": ("asyncmon.cli.act", "ask a run to stop, through its monitor"),
    "save": ("asyncmon.cli.act", "let a run save a checkpoint now"),
    "pause": ("asyncmon.cli.act", "let a run wait before its next step"),
    "resume": ("asyncmon.cli.act", "let a run go on after a pause"),
    "watch": ("asyncmon.cli.watch", "show runs at the terminal"),
    "port": ("asyncmon.tf1.port.command", "port a program of TensorFlow 1"),
    "server": ("asyncmon.distributed.command", "run a task of a cluster"),
}
"""The module of each command, and what it does."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: done. 1: something is missing, damaged or fails, as one sentence on standard error says; ``port``
    and ``run`` have more. 2: the arguments are wrong.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    script = Path(sys.argv[0]).name == "asyncmon"
    parser = argparse.ArgumentParser(
        prog="asyncmon" if script else "python -m asyncmon",
        description="Run, watch and stop training; look into what it leaves; port programs.",
        epilog="`COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (path, does) in COMMANDS.items():
        if name not in given:  # its module need not be imported
            commands.add_parser(name, help=does)
            continue
        module = importlib.import_module(path)
        command = commands.add_parser(
            name, help=does, description=module.DESCRIPTION, epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_options(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(given)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is yet to be flushed
        return 1
    except (OpError, OSError, ValueError, ImportError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


class _Version(argparse.Action):
    """Print the version of the installed package, which is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"asyncmon {metadata.version('asyncmon')}\n")
        parser.exit()
