"""TF1: ``tf.logging``: the logger "asyncmon", and lines on the terminal as TF1 prints them.

::

    tf.logging.set_verbosity(tf.logging.INFO)
    tf.logging.info("%d examples", 3)      # INFO:tensorflow:3 examples

The first call of a function here adds a handler to the logger "asyncmon", which hooks and savers use,
too. It prints to stderr; in an interactive interpreter to stdout, from level INFO. It prints nothing
while the root logger has handlers of its own, for example after ``logging.basicConfig``.
"""

from __future__ import annotations

import logging as _logging
import sys
from functools import partial
from typing import Any

__all__ = [
    "DEBUG", "ERROR", "FATAL", "INFO", "WARN", "TaskLevelStatusMessage", "debug", "error", "fatal",
    "flush", "get_verbosity", "info", "log", "log_every_n", "log_first_n", "log_if",
    "set_verbosity", "vlog", "warn", "warning",
]  # fmt: skip

DEBUG = _logging.DEBUG
INFO = _logging.INFO
WARN = _logging.WARNING
ERROR = _logging.ERROR
FATAL = _logging.CRITICAL

# The number of earlier calls of log_every_n and log_first_n at each line.
_counts: dict[tuple[str, int], int] = {}


class _Terminal(_logging.Handler):
    """Prints records in TF1's form."""

    def emit(self, record: _logging.LogRecord) -> None:
        if any(_is_foreign not in handler.filters for handler in _logging.getLogger().handlers):
            return
        try:
            print(self.format(record), file=self._stream(), flush=True)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        self._stream().flush()

    def _stream(self) -> Any:
        return sys.stdout if _is_interactive() else sys.stderr


def _is_foreign(record: _logging.LogRecord) -> bool:
    return record.name.partition(".")[0] != "asyncmon"


def leave_out(handler: _logging.Handler) -> None:
    """Exclude the records of the logger "asyncmon" from a handler of the root logger."""
    handler.addFilter(_is_foreign)


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def get_logger() -> _logging.Logger:
    """Return the logger "asyncmon", with the handler of this module. TF1: ``tf.get_logger``."""
    logger = _logging.getLogger("asyncmon")
    if not logger.handlers:
        terminal = _Terminal()
        terminal.setFormatter(_logging.Formatter("%(levelname)s:tensorflow:%(message)s"))
        logger.addHandler(terminal)
        if _is_interactive() and logger.level == _logging.NOTSET:
            logger.setLevel(INFO)
    return logger


def set_verbosity(v: int) -> None:
    """Set the level of the logger "asyncmon", which sessions, hooks and savers use."""
    get_logger().setLevel(v)


def get_verbosity() -> int:
    """Return the lowest level that is shown."""
    return get_logger().getEffectiveLevel()


def log(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Log ``msg % args`` at a level."""
    get_logger().log(level, msg, *args, **{"stacklevel": 2, **kwargs})


vlog = log
debug = partial(log, DEBUG)
info = partial(log, INFO)
warning = warn = partial(log, WARN)
error = TaskLevelStatusMessage = partial(log, ERROR)
fatal = partial(log, FATAL)  # does not end the program


def log_if(level: int, msg: Any, condition: object, *args: Any) -> None:
    """Log ``msg % args`` if the condition is true."""
    if condition:
        log(level, msg, *args, stacklevel=3)


def log_every_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Log every ``n``-th call at the same line, beginning with the first."""
    if not _calls_before() % n:
        log(level, msg, *args, stacklevel=3)


def log_first_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Log the first ``n`` calls at the same line."""
    if _calls_before() < n:
        log(level, msg, *args, stacklevel=3)


def _calls_before() -> int:
    """Return the number of earlier calls by the caller's caller at its current line."""
    frame = sys._getframe(2)
    place = (frame.f_code.co_filename, frame.f_lineno)
    _counts[place] = _counts.get(place, -1) + 1
    return _counts[place]


def flush() -> None:
    """Flush the handlers."""
    for handler in get_logger().handlers:
        handler.flush()
