"""``asyncmon hooks``: list the hooks of asyncmon and of installed packages; find one by its name."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from asyncmon import hooks
from asyncmon.cli.named import named
from asyncmon.cli.output import add_json_option, write_json, write_table
from asyncmon.runtime import SessionRunHook
from asyncmon.system.usage_error import UsageError

DESCRIPTION = """\
List the hooks of asyncmon, and those that installed packages publish as entry points of the group
'asyncmon.hooks'. Each can be named in the settings of `asyncmon run --config`."""

EPILOG = "exit status: 0, also where the hook of a package cannot be imported, which its line says."

GROUP = "asyncmon.hooks"
"""The group of entry points."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A hook by its name.

    Attributes:
        name: of the class, or of the entry point.
        package: the distribution that has it.
        summary: the first line of its docstring.
        error: of its import, or None.
    """

    name: str
    package: str
    summary: str
    error: str | None = None


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json_option(parser)


def run(options: argparse.Namespace) -> int:
    """List the hooks."""
    found = [Listed(name, "asyncmon", _summary(one)) for name, one in _standard().items()]
    found += map(_listed, _published())
    if options.json:
        write_json([asdict(one) for one in found])
        return 0
    rows = [[one.name, one.package, one.error or one.summary] for one in found]
    write_table(["hook", "package", "description"], rows)
    return 0


def hook_by_name(name: str) -> Any:
    """Return what makes a hook: a class, a function, or the hook itself.

    Args:
        name: of a hook of asyncmon, of an entry point, or MODULE:NAME.

    Raises:
        UsageError: there is none of this name, there are several, or it cannot be imported.
    """
    if ":" in name:
        return named(name)
    if name in (standard := _standard()):
        return standard[name]
    published = _published()
    found = [one for one in published if one.name == name]
    if not found:
        known = ", ".join([*standard, *(one.name for one in published)])
        raise UsageError(f"There is no hook {name!r}. Known: {known}; or MODULE:NAME.")
    if len({one.value for one in found}) > 1:
        places = ", ".join(f"{one.value!r} of {_package(one)}" for one in found)
        raise UsageError(f"Several packages have a hook {name!r}: give one of {places}.")
    try:
        return found[0].load()
    except Exception as error:
        raise UsageError(f"The hook {name!r} of {_package(found[0])}: {_text(error)}") from error


def _standard() -> dict[str, type[SessionRunHook]]:
    return {name: getattr(hooks, name) for name in hooks.__all__ if name.endswith("Hook")}


def _published() -> list[EntryPoint]:
    return sorted(entry_points(group=GROUP), key=lambda one: (one.name, _package(one)))


def _listed(point: EntryPoint) -> Listed:
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what its module prints is no part of the list
            found = point.load()
    except Exception as error:  # another package's code
        return Listed(point.name, _package(point), "", f"cannot be imported: {_text(error)}")
    return Listed(point.name, _package(point), _summary(found))


def _summary(found: Any) -> str:
    return (found.__doc__ or "").strip().partition("\n")[0].replace("``", "`")


def _package(point: EntryPoint) -> str:
    return "an unknown package" if point.dist is None else point.dist.name


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
