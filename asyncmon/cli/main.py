"""Parse the command line, run the command, and report errors in one line."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from asyncmon.cli.output import complain, runs_in
from asyncmon.errors import OpError
from asyncmon.system.usage_error import UsageError
from asyncmon.system.wings import wings

COMMANDS = {
    "run": ("asyncmon.cli.run", "train until done or until a signal"),
    "hooks": ("asyncmon.cli.hooks", "list hooks, also of installed packages"),
    "runs": ("asyncmon.cli.runs", "list runs, their states and ends"),
    "inspect": ("asyncmon.cli.inspect", "list the contents of a checkpoint"),
    "export": ("asyncmon.cli.export", "write a model for other tools"),
    "verify": ("asyncmon.cli.verify", "verify every byte of checkpoints"),
    "prune": ("asyncmon.cli.prune", "delete older checkpoints"),
    "events": ("asyncmon.cli.events", "print or export scalars"),
    "plot": ("asyncmon.cli.plot", "draw the scalars of several runs"),
    "monitor": ("asyncmon.cli.monitor", "show runs on a live page"),
    "stop": ("asyncmon.cli.act", "stop a run through its monitor"),
    "save": ("asyncmon.cli.act", "save a checkpoint of a run now"),
    "pause": ("asyncmon.cli.act", "pause a run before its next step"),
    "resume": ("asyncmon.cli.act", "resume a paused run"),
    "watch": ("asyncmon.cli.watch", "show runs at the terminal"),
    "server": ("asyncmon.distributed.command", "run a task of a cluster"),
}
"""The module and the summary of each command of the core."""


def all_commands() -> dict[str, tuple[str, str]]:
    """Return the commands of the core and of the wings."""
    found = [item for wing in wings() for item in wing.commands.items()]
    return COMMANDS | {name: (module, does) for name, (module, does) in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    0: success. 1: an error, with one line on standard error. 2: invalid arguments. Some commands have
    more.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    own: list[str] | None = None
    if given[:1] == ["run"] and "--" in given:  # what follows is the program's own
        place = given.index("--")
        given, own = given[:place], given[place + 1 :]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is printed as an escape
            with contextlib.suppress(OSError):  # it flushes, and the reader may have gone
                stream.reconfigure(errors="backslashreplace")
    script = Path(sys.argv[0]).name == "asyncmon"
    parser = argparse.ArgumentParser(
        prog="asyncmon" if script else "python -m asyncmon",
        description="Run, watch and stop training; inspect its checkpoints and events.",
        epilog="See `COMMAND --help` for details.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (path, does) in all_commands().items():
        if name not in given:  # its module need not be imported
            commands.add_parser(name, help=does)
            continue
        try:
            module = importlib.import_module(path)
        except ImportError as error:  # a package is missing, or a part of a wing
            complain(f"`{name}` cannot be run: {error}")
            return 1
        command = commands.add_parser(
            name, help=does, description=module.DESCRIPTION, epilog=getattr(module, "EPILOG", None),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        module.add_options(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(given, argparse.Namespace(own=own))
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1
    except UsageError as error:
        complain(str(error))
        return 2
    except (OpError, OSError, ValueError, ImportError) as error:
        folder = getattr(options, "path", None) or getattr(options, "directory", None)
        complain(f"{error}{runs_in(folder) if isinstance(folder, str) else ''}")
        return 1


class _Version(argparse.Action):
    """Print the version of the installed package. Reading it is slow, so it is not done before."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"asyncmon {metadata.version('asyncmon')}\n")
        parser.exit()
