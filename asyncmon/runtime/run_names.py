"""The names of the open sessions, and the name of the run in log records while there are several.

A filter adds it to the records of this package's loggers. It is there only while it is needed: with one
session nothing is called.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable
from typing import Any
from weakref import ref

from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.observation import current_observers
from asyncmon.runtime.stop.current_run import owner_of_caller
from asyncmon.system.members import members_of
from asyncmon.system.urls import is_url

_open: dict[ref[Any], str] = {}  # the names, by the sessions' observers
_numbers = itertools.count(1)


def name_for(name: object, hooks: Iterable[Any]) -> str:
    """Return the name of a new session: the given one, or the last part of its directory, or "".

    The directory is that of its checkpoints, or else that of an event file.
    """
    if not isinstance(name, str | None) or name == "":
        raise TypeError(f"name must be a text or None, got {name!r}.")
    members = [members_of(HookMembers, hook) for hook in hooks]
    places = [*(one.checkpoint_dir for one in members), *(one.output_dir for one in members)]
    return name or next((_last_part(place) for place in places if place), "")


def _last_part(place: str) -> str:
    path = place.rstrip("/") if is_url(place) else os.path.abspath(place)
    return os.path.basename(path) or path


def opened(observers: Any) -> None:
    """Make the name of a session that is opened unique among the open ones."""
    number = next(_numbers)
    name = wanted = observers.name or f"session {number}"
    used, count = set(_open.values()), 1
    while name in used:
        count += 1
        name = f"{wanted}-{count}"
    observers.name = name
    _open[ref(observers, lambda dead: _open.pop(dead, None))] = name
    if len(_open) > 1:
        for logger in _loggers():  # also those made since the last opening
            logger.addFilter(_add_name)


def closed(observers: Any) -> None:
    """Note the end of a session."""
    _open.pop(ref(observers), None)
    if len(_open) == 1:
        for logger in _loggers():
            logger.removeFilter(_add_name)


def observers_of_caller() -> Any:
    """Return the observers of the open session that the calling code is part of, or None."""
    known = [one() for one in list(_open)]  # a thread may log while another session is opened
    return next(
        (
            one
            for one in (owner_of_caller(), current_observers.get())
            if one is not None and one in known
        ),
        None,
    )


def _loggers() -> list[logging.Logger]:
    known = logging.Logger.manager.loggerDict.copy()
    return [
        one for name, one in known.items()
        if name.startswith("asyncmon.") and isinstance(one, logging.Logger)
    ]  # fmt: skip


def _add_name(record: logging.LogRecord) -> bool:
    """Add ``record.run``, and put it before the message."""
    observers = observers_of_caller()
    name = None if observers is None else _open.get(ref(observers))
    if name is not None and len(_open) > 1 and not hasattr(record, "run"):
        record.run = name
        record.msg = f"[{name.replace('%', '%%') if record.args else name}] {record.msg}"
    return True
