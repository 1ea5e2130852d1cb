"""``asyncmon monitor``: serve the page for the runs of a log directory."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from asyncmon.system.urls import require_local
from asyncmon.system.usage_error import UsageError

TOKEN = "ASYNCMON_TOKEN"  # asyncmon.monitor.serving has it too, but needs an extra

DESCRIPTION = """\
Show the runs of a log directory on a live page, until SIGINT or SIGTERM. Every folder with event files
or checkpoints is a run. The page is local to this machine; another --host requires a token."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("logdir", metavar="LOGDIR", help="the directory; it may be created later")
    add("--host", default="127.0.0.1", help="the address to bind to (default: %(default)s)")
    add("--port", type=_port, default=6060, help="the port; 0 for a free one (default: %(default)s)")
    add_token_option(parser)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, got {text!r}.")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Serve until a signal, and return the exit status.

    Raises:
        UsageError: the directory is a file, other machines could reach the page without a token, or the
            token is empty.
        OSError: the address is taken.
        ImportError: the extra ``web`` is not installed.
    """
    from asyncmon.monitor.serving import serve

    require_local(options.logdir, "The runs of the page")
    if os.path.isfile(options.logdir):
        raise UsageError(
            f"{options.logdir!r} is a file: give the directory of the runs, "
            f"{os.path.dirname(os.path.abspath(options.logdir))!r}."
        )
    token = read_token(options)
    try:
        server = serve(options.logdir, host=options.host, port=options.port, token=token)
    except ValueError as error:  # a host, and a token that does not fit it
        raise UsageError(str(error)) from error
    if not os.path.isdir(options.logdir):
        sys.stderr.write(f"{options.logdir} is no directory yet; its runs show when it is.\n")
    server.run()
    return 0


def add_token_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that :func:`read_token` reads."""
    text = f"a file with the token (default: the variable {TOKEN})"
    parser.add_argument("--token-file", type=Path, metavar="FILE", help=text)


def read_token(options: argparse.Namespace) -> str | None:
    """Return the token of the options or the environment, or None.

    Raises:
        OSError: the file cannot be read.
        UsageError: it is empty.
    """
    if options.token_file is None:
        return os.environ.get(TOKEN) or None
    token: str = options.token_file.read_text().strip()
    if not token:
        raise UsageError(f"The token file {str(options.token_file)!r} is empty.")
    return token
