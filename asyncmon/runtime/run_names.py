"""The name of the run in log records, while several sessions of the process are open.

A filter adds it to the records of this package's loggers. It is there only while it is needed: with one
session nothing is called.
"""

from __future__ import annotations

import itertools
import logging
from typing import Any
from weakref import ref

from asyncmon.runtime.observation import current_observers
from asyncmon.runtime.stop.current_run import session_of_caller

_open: dict[ref[Any], str] = {}  # the names, by the sessions' observers
_numbers = itertools.count(1)


def opened(observers: Any, directory: str | None) -> None:
    """Note a session: its name is the directory of its files, or the number of its opening."""
    number = next(_numbers)
    _open[ref(observers, lambda dead: _open.pop(dead, None))] = directory or f"session {number}"
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
    session, current = session_of_caller(), current_observers.get()
    known = [one() for one in list(_open)]  # a thread may log while another session is opened
    inside = [one for one in known if one is not None and session is not None and one.raw is session]
    return next(iter(inside), current if current in known else None)


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
