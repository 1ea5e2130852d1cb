"""The names of sessions, and ``record.run`` of log records: the name of the run that they concern."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self
from weakref import ref

from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.observation import Observers, observers_of_caller
from asyncmon.runtime.stop.current_run import is_in_run
from asyncmon.system.members import members_of
from asyncmon.system.urls import is_url

_open: dict[ref[Observers], str] = {}  # the names, by the sessions' observers
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


def opened(observers: Observers) -> None:
    """Make the name of a session that is opened unique among the open ones."""
    number = next(_numbers)
    name = wanted = observers.name or f"session {number}"
    used, count = set(_open.values()), 1
    while name in used:
        count += 1
        name = f"{wanted}-{count}"
    observers.name = name
    _open[ref(observers, lambda dead: _open.pop(dead, None))] = name
    _name_records()


def closed(observers: Observers) -> None:
    """Note the end of a session."""
    _open.pop(ref(observers), None)


def observers_of_record() -> Observers | None:
    """Return the observers of the session that a log record of the calling code concerns, or None."""
    if not is_in_run():  # a run without hooks marks nothing, which would cost each step
        for one in list(_open):  # a thread may log while another session is opened
            observers = one()
            if observers is not None and observers.runs_here():
                return observers
    return observers_of_caller()


def _name_records() -> None:
    """Add ``run`` to the records of all loggers, those of the user's code in a session included."""
    # By the factory: a filter of a logger misses the loggers below it, and later ones.
    make = logging.getLogRecordFactory()
    if getattr(make, "names_runs", False):
        return

    def make_with_run(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        observers = observers_of_record()
        if observers is not None and observers.name and not hasattr(record, "run"):
            record.run = observers.name
        return record

    make_with_run.names_runs = True  # type: ignore[attr-defined]  # of this function alone
    logging.setLogRecordFactory(make_with_run)


class RunFormatter(logging.Formatter):
    """Formats records as ``logging.Formatter``, with the name of the run before the message.

    The name is there while several sessions are open. ``%(run)s`` in a format is the name, or "".

    Example::

        handler = logging.StreamHandler()
        handler.setFormatter(RunFormatter("%(asctime)s %(levelname)s %(message)s"))
        logging.basicConfig(level="INFO", handlers=[handler])
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record, which stays unchanged for other handlers."""
        run = getattr(record, "run", "")
        values = {**record.__dict__, "run": run}
        if run and len(_open) > 1:
            values["message"] = f"[{run}] {record.message}"
        return super().formatMessage(logging.makeLogRecord(values))


class logging_handler:
    """Let a handler have the records of one run alone, until :meth:`close` or the end of ``with``.

    These are the records of its session, of its tasks and of the code in its body, by any loggers that
    let them pass: ``logging.getLogger("asyncmon").setLevel("INFO")``. It may be added
    before the session is opened, and gets the lines of its end. The end closes the handler.

    Args:
        run: a session, or the name of one.
        handler: any handler, such as a ``logging.FileHandler``.
        logger: the logger that it is added to. Default: the root, whose handlers get all records.

    Example::

        sess = am.MonitoredTrainingSession(checkpoint_dir="runs/1")
        with am.logging_handler(sess, logging.FileHandler("runs/1.log")):
            async with sess:
                ...
    """

    def __init__(self, run: Any, handler: logging.Handler, logger: str | None = None) -> None:
        if not isinstance(run, str) and not isinstance(getattr(run, "name", None), str):
            raise TypeError(f"run must be a session or the name of one, got {run!r}.")
        if not isinstance(handler, logging.Handler):
            raise TypeError(f"handler must be a logging.Handler, got {handler!r}.")
        self._run, self._handler, self._logger = run, handler, logging.getLogger(logger)
        handler.addFilter(self._is_of_run)
        self._logger.addHandler(handler)

    def _is_of_run(self, record: logging.LogRecord) -> bool:
        name = self._run if isinstance(self._run, str) else self._run.name  # its opening may change it
        return getattr(record, "run", None) == name

    def close(self) -> None:
        """Remove the handler and close it. A second call does nothing."""
        self._logger.removeHandler(self._handler)
        self._handler.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
