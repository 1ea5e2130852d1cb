"""The last log lines of this process, in memory."""

from __future__ import annotations

import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from asyncmon.runtime.run_names import observers_of_record

_LONGEST = 4_000  # characters of a line


class LogLines:
    """Keeps the last records of some loggers, until :meth:`close` or until it is garbage.

    Args:
        loggers: their names.
        most: the number of lines kept.
    """

    def __init__(self, loggers: Iterable[str] = ("asyncmon",), most: int = 1_000) -> None:
        self.next = 0
        """The number of the next line."""
        self._lines: deque[tuple[dict[str, Any], Any]] = deque(maxlen=most)  # and whose they are
        handler = _Handler(weakref.ref(self))
        for name in loggers:
            logging.getLogger(name).addHandler(handler)
        self.close = weakref.finalize(self, _remove, handler, tuple(loggers))
        """Stop keeping lines."""

    def after(
        self, number: int, run_of: Callable[[Any], str | None] = lambda _: None
    ) -> list[dict[str, Any]]:
        """Return the lines from a number on, the oldest first.

        Args:
            number: of the first line.
            run_of: returns the ``run`` of a line, by the observers of the session that has logged it.
        """
        if number >= self.next:
            return []
        lines = [one for one in self._lines.copy() if one[0]["n"] >= number]
        return [{**line, "run": None if of is None else run_of(of())} for line, of in lines]

    def append(self, record: logging.LogRecord, text: str) -> None:
        """Keep a line. Thread-safe: the handler's lock serialises the calls."""
        observers = observers_of_record()
        line = {
            "n": self.next,
            "time": record.created,
            "level": record.levelname,
            "logger": record.name,
            "text": text[:_LONGEST],
        }
        self._lines.append((line, None if observers is None else weakref.ref(observers)))
        self.next += 1


class _Handler(logging.Handler):
    def __init__(self, lines: weakref.ref[LogLines]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        lines = self._lines()
        if lines is not None:
            try:
                lines.append(record, self.format(record))
            except Exception:
                self.handleError(record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not _others(record.name):
            last.handle(record)  # as logging does without any handler


def _others(name: str) -> bool:
    """Return whether a record of this logger reaches a handler of another module."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _Handler) for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _remove(handler: logging.Handler, names: tuple[str, ...]) -> None:
    for name in names:
        logging.getLogger(name).removeHandler(handler)
