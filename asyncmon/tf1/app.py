"""TF1: ``tf.app``: parse the flags and run ``main``, which may be async."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from asyncmon.system.cancellation import running_loop
from asyncmon.system.notebook import program_arguments
from asyncmon.tf1 import flags as flags
from asyncmon.tf1.logging import get_logger, leave_out

__all__ = ["flags", "run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> None:
    """Parse the flags, run ``main(argv)`` and end the program. TF1: ``tf.app.run``.

    An ``async def main`` runs in a new event loop (``asyncio.run``): SIGINT and SIGTERM stop monitored
    sessions in it, and Ctrl-C elsewhere raises KeyboardInterrupt. absl parses the flags defined with
    :mod:`asyncmon.tf1.flags`, and ``--help``. Without absl there are no flags, and ``main`` receives
    all arguments. The level of ``tf.logging`` becomes INFO unless ``tf.logging.set_verbosity`` was
    called.

    Args:
        main: called with the program's name and the arguments that are no flags. By default the
            function ``main`` of the program.
        argv: the command line, by default ``sys.argv``; the name alone in a notebook.

    Raises:
        SystemExit: always, with the result of ``main`` (None for success), or 1 for wrong flags.
        RuntimeError: ``main`` is async, and an event loop is running already.
    """
    given = list(program_arguments() if argv is None else argv)
    chosen = main or sys.modules["__main__"].main
    if inspect.iscoroutinefunction(chosen) and running_loop() is not None:
        raise RuntimeError("An event loop is running already: await main(argv) in it.")
    try:
        from absl import app
        from absl import logging as absl_logging
    except ImportError:
        _show(logging.INFO)
        sys.exit(_result(chosen, given))
    root = logging.getLogger()
    before = root.level

    def call(arguments: list[str]) -> Any:
        leave_out(absl_logging.get_absl_handler())  # a handler of the root logger
        _show(root.level if root.level != before else logging.INFO)  # by --verbosity
        return _result(chosen, arguments)

    app.run(call, given, flags_parser=_parse)


def _parse(argv: list[str]) -> Any:
    """Parse the defined flags; unknown ones stay in the arguments of ``main``, as in TF1."""
    from absl import flags as absl_flags

    try:
        return absl_flags.FLAGS(argv, known_only=True)
    except absl_flags.Error as error:
        sys.exit(
            f"FATAL Flags parsing error: {error}\nPass --helpshort or --helpfull to see help on flags."
        )


def _result(main: Callable[[list[str]], Any], argv: list[str]) -> Any:
    result = main(argv)
    return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result


def _show(level: int) -> None:
    logger = get_logger()
    if logger.level == logging.NOTSET:
        logger.setLevel(level)
