"""``asyncmon run``: run an async function of a module with ``am.run``."""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
import traceback
from collections.abc import Callable
from typing import Any

from asyncmon import runtime
from asyncmon.cli.named import named
from asyncmon.cli.output import positive_secs
from asyncmon.cli.settings import Settings, make_hooks, read_settings, refuse_unknown
from asyncmon.runtime import RunFormatter
from asyncmon.system.functions import settled
from asyncmon.system.usage_error import UsageError

DESCRIPTION = """\
Run a function of a module until it returns or a signal stops it.

An `async def` function is awaited. An async or plain function may also return a session and fetches,
`return session, train_op`, which run until the session should stop. --resume and --grace are passed
as the keyword arguments `resume` and `stop_grace_period_secs` if the function has them, and else in
`session`, a dictionary of arguments for MonitoredTrainingSession(**session), if it has that one.

Everything after -- is the program's own: asyncmon run digits:main -- --rate 0.1"""

EPILOG = """\
exit status: 0 done; 75 stopped by a signal and saved: run it again; 1 an error, or stopped and not
saved; 130 aborted by a second Ctrl-C; 2 invalid arguments or settings."""


# Settings of a session that a function can take by themselves.
_PASSED = ("resume", "stop_grace_period_secs")


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "target",
        nargs="?",
        metavar="MODULE:FUNCTION",
        help="training.digits:main, also from the current directory",
    )
    add("--config", metavar="FILE", help="settings in TOML: the target, its arguments, the session")
    add(
        "--resume",
        metavar="auto|never|PATH",
        help="start from the newest checkpoint, from none, or from this one; passed to the function, "
        "for MonitoredTrainingSession(resume=...) (default: auto)",
    )
    add(
        "--grace", type=positive_secs, metavar="SECS",
        help="the grace period after SIGTERM or Ctrl-C (default: that of the sessions, or 120)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the function, and return 0, or 1 after an error. Other statuses raise ``SystemExit``.

    Raises:
        UsageError: the module or function does not exist, or the function does not take an option.
    """
    settings = _settings(options)
    grace = settings.session.get("stop_grace_period_secs")
    sys.argv = [str(settings.target), *settings.args]  # for the module, too, while it is imported
    problem: list[str] = []

    async def main() -> None:
        try:
            function, arguments = _load(settings)
        except UsageError as error:
            problem.append(str(error))
            return
        handler = logging.StreamHandler()
        handler.setFormatter(RunFormatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level=settings.log_level, handlers=[handler])
        await _call(function, arguments)

    try:
        runtime.run(main, stop_grace_period_secs=grace)
    except Exception:
        traceback.print_exc()
        return 1
    if problem:
        raise UsageError(problem[0])
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    """Return the settings of the file, with those of the command line in front."""
    settings = read_settings(options.config) if options.config is not None else Settings()
    if options.target is not None:
        settings.target = options.target
    if settings.target is None:
        raise UsageError("Give MODULE:FUNCTION, or the file of --config a `target`.")
    if options.own is not None:
        settings.args = options.own
    for name, value in (("resume", options.resume), ("stop_grace_period_secs", options.grace)):
        if value is not None:
            settings.session[name] = value
    return settings


def _load(settings: Settings) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function and its keyword arguments."""
    target = str(settings.target)
    function = named(target)
    if not callable(function):
        raise UsageError(f"{target} is no function but {function!r}.")
    known = inspect.signature(function).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in known.values())
    own = [name for name in known if name != "session"]
    if not takes_all or "session" in settings.arguments:
        refuse_unknown(f"{target}, [arguments]", settings.arguments, own)
    session = dict(settings.session)
    passed = {name: session.pop(name) for name in _PASSED if name in known and name in session}
    default = {"resume": "auto"} if "resume" in known else {}
    arguments = default | settings.arguments | passed
    if "session" in known:
        if "hooks" in session:
            session["hooks"] = make_hooks(session["hooks"])
        arguments["session"] = session
    else:
        _refuse_lost(target, session)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise UsageError(f"{target} cannot be called: {error}.") from error
    return function, arguments


def _refuse_lost(target: str, session: dict[str, Any]) -> None:
    """Raise UsageError for settings that a function without `session` does not take."""
    resume = session.get("resume", "auto")
    if resume != "auto":
        raise UsageError(
            f"--resume {resume} needs a function with the argument `resume`, to pass it on to "
            f"MonitoredTrainingSession; {target} has none."
        )
    if lost := [name for name in session if name not in _PASSED]:
        raise UsageError(
            f"[session] {lost[0]} needs a function with the argument `session`, to pass it on to "
            f"MonitoredTrainingSession(**session); {target} has none."
        )


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
