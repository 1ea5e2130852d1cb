"""The settings of a run from a TOML file, for ``asyncmon run --config``."""

from __future__ import annotations

import inspect
import logging
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncmon.cli.hooks import hook_by_name
from asyncmon.runtime import SessionRunHook
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.system.usage_error import UsageError
from asyncmon.training import MonitoredTrainingSession

# Arguments of a session that a file has no values for.
_OBJECTS = {
    "scaffold", "chief_only_hooks", "config", "program", "signals", "recovery", "saver", "loggers",
}  # fmt: skip

SESSION_KEYS = [
    name for name in inspect.signature(MonitoredTrainingSession).parameters if name not in _OBJECTS
]
"""The keys of the table ``session``."""


@dataclass(slots=True, kw_only=True)
class Settings:
    """The settings of a run. Each has a default, so no key is required.

    Attributes:
        target: MODULE:FUNCTION.
        args: the program's own arguments, ``sys.argv[1:]``.
        log_level: of the root logger.
        arguments: keyword arguments of the function.
        session: keyword arguments for :func:`MonitoredTrainingSession`; ``hooks`` are tables with the
            name of a hook and its arguments.
    """

    target: str | None = None
    args: list[str] = field(default_factory=list)
    log_level: str = "INFO"
    arguments: dict[str, Any] = field(default_factory=dict)
    session: dict[str, Any] = field(default_factory=dict)


def read_settings(path: str) -> Settings:
    """Read a file, and check its keys.

    Raises:
        UsageError: it cannot be read, is no TOML, has unknown keys, or values of wrong types.
    """
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"{path!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # of TOML or of UTF-8
        raise UsageError(f"{path!r} is no TOML: {error}") from error
    types = {"target": str, "args": list, "log_level": str, "arguments": dict, "session": dict}
    refuse_unknown(path, found, types)
    for key, expected in types.items():
        if not isinstance(found.get(key, expected()), expected):
            raise UsageError(f"{path}: {key} must be a {_NAMES[expected]}, got {found[key]!r}.")
    settings = Settings(**found)
    if not all(isinstance(one, str) for one in settings.args):
        raise UsageError(f"{path}: args must be texts, got {settings.args!r}.")
    levels = logging.getLevelNamesMapping()
    if settings.log_level not in levels:
        known = ", ".join(levels)
        raise UsageError(f"{path}: there is no log_level {settings.log_level!r}. Known: {known}.")
    refuse_unknown(f"{path}, [session]", settings.session, SESSION_KEYS)
    grace = settings.session.get("stop_grace_period_secs", 120)
    if type(grace) not in (int, float) or not grace > 0:
        raise UsageError(
            f"{path}, [session]: stop_grace_period_secs must be a positive number, got {grace!r}."
        )
    hooks = settings.session.get("hooks", [])
    if not isinstance(hooks, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in hooks
    ):
        raise UsageError(f"{path}: write each hook as a table [[session.hooks]] with its `name`.")
    return settings


_NAMES: dict[type, str] = {str: "text", list: "list of texts", dict: "table"}


def refuse_unknown(place: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Raise UsageError for a key that is not known, with the known ones."""
    for key in given:
        if key not in known:
            raise UsageError(f"{place}: there is no {key!r}. Known: {', '.join(known) or 'none'}.")


def make_hooks(tables: list[dict[str, Any]]) -> list[SessionRunHook]:
    """Make the hooks of the table ``session``.

    Raises:
        UsageError: a name is not known, or a hook refuses its arguments.
    """
    return [_make_hook(**table) for table in tables]


def _make_hook(*, name: str, **arguments: Any) -> SessionRunHook:
    found = hook_by_name(name)
    is_made = isinstance(found, SessionRunHook)  # such as a function with @am.every
    if is_made and arguments:
        raise UsageError(f"The hook {name!r} is made already, and takes no arguments: {arguments!r}.")
    try:
        hook: SessionRunHook = check_hooks([found if is_made else found(**arguments)])[0]
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise UsageError(f"The hook {name!r} cannot be made: {text}") from error
    return hook
