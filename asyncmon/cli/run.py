"""``asyncmon run``: run an async function of a module with ``am.run``."""

from __future__ import annotations

import argparse
import importlib
import inspect
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

from asyncmon import runtime
from asyncmon.cli.output import positive_secs
from asyncmon.runtime import RunFormatter
from asyncmon.system.functions import settled
from asyncmon.system.usage_error import UsageError

DESCRIPTION = """\
Run a function of a module until it returns or a signal stops it.

An `async def` function is awaited. An async or plain function may also return a session and fetches,
`return session, train_op`, which run until the session should stop. --resume and --grace are passed
as the keyword arguments `resume` and `stop_grace_period_secs` if the function has them."""

EPILOG = """\
exit status: 0 done; 75 stopped by a signal and saved: run it again; 1 an error, or stopped and not
saved; 130 aborted by a second Ctrl-C; 2 invalid arguments."""


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "target",
        metavar="MODULE:FUNCTION",
        help="training.digits:main, also from the current directory",
    )
    add(
        "--resume", default="auto", metavar="auto|never|PATH",
        help="start from the newest checkpoint, from none, or from this one; passed to the function, "
        "for MonitoredTrainingSession(resume=...) (default: %(default)s)",
    )  # fmt: skip
    add(
        "--grace", type=positive_secs, metavar="SECS",
        help="the grace period after SIGTERM or Ctrl-C (default: that of the sessions, or 120)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the function, and return 0, or 1 after an error. Other statuses raise ``SystemExit``.

    Raises:
        UsageError: the module or function does not exist, or the function does not take an option.
    """
    problem: list[str] = []

    async def main() -> None:
        try:
            function, arguments = _load(options)
        except UsageError as error:
            problem.append(str(error))
            return
        handler = logging.StreamHandler()
        handler.setFormatter(RunFormatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        await _call(function, arguments)

    try:
        runtime.run(main, stop_grace_period_secs=options.grace)
    except Exception:
        traceback.print_exc()
        return 1
    if problem:
        raise UsageError(problem[0])
    return 0


def _load(options: argparse.Namespace) -> tuple[Callable[..., Any], dict[str, Any]]:
    module_name, _, path = options.target.partition(":")
    if not module_name or not path:
        raise UsageError(f"MODULE:FUNCTION is expected, training.digits:main, got {options.target!r}.")
    if "" not in sys.path:  # the script's directory comes first, unlike with `python -m`
        sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # a module that it imports
        raise UsageError(f"There is no module {error.name!r} here nor in sys.path.") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise UsageError(
                f"The module {module_name!r} has no {path!r}: {name!r} is missing."
            ) from None
    if not callable(found):
        raise UsageError(f"{options.target} is no function but {found!r}.")
    known = inspect.signature(found).parameters
    given = {"resume": options.resume, "stop_grace_period_secs": options.grace}
    arguments = {name: value for name, value in given.items() if name in known and value is not None}
    if options.resume != "auto" and "resume" not in known:
        raise UsageError(
            f"--resume {options.resume} needs a function with the argument `resume`, to pass it on to "
            f"MonitoredTrainingSession; {options.target} has none."
        )
    return found, arguments


async def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    result = await settled(function(**arguments))
    if result is None:
        return
    if not isinstance(result, tuple) or len(result) != 2 or not hasattr(result[0], "should_stop"):
        raise TypeError(
            f"{function.__name__} returned {result!r}; expected nothing, or a monitored session that "
            "is not open yet and what to run in it: `return session, train_op`."
        )
    session, fetches = result
    async with session:
        while not session.should_stop():
            await session.run(fetches)
