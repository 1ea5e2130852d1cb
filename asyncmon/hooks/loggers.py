"""Pass logged values to loggers, each with a bounded queue and a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from asyncmon.hooks.file_loggers import TensorBoardLogger
from asyncmon.hooks.hook_support import created_session, positive, whole_number
from asyncmon.runtime import GUARD, Coordinator, Session, SessionRunHook
from asyncmon.runtime.failures import Failures
from asyncmon.summary.logged import LoggedValue, Logger, LoggerMembers
from asyncmon.summary.sink_thread import CLOSE_SECS, SinkThread
from asyncmon.summary.values import HParam, plain_values
from asyncmon.system.error_text import phrase
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


def check_loggers(loggers: Iterable[Logger]) -> list[Logger]:
    """Return loggers as a list.

    Raises:
        TypeError: they are no list, or one lacks a method.
    """
    if not isinstance(cast("object", loggers), Iterable):
        raise TypeError(f"loggers must be a list of loggers, got {loggers!r}. Write `[...]`.")
    checked = list(loggers)
    for one in checked:
        if missing := [name for name in _METHODS if not callable(getattr(one, name, None))]:
            raise TypeError(
                f"A logger has the methods {', '.join(_METHODS)}; {one!r} of type "
                f"{type(one).__name__} lacks {', '.join(missing)}."
            )
    return checked


class LoggersHook(SessionRunHook):
    """Write logged values and configurations to loggers. ``MonitoredTrainingSession`` adds one.

    The loggers get the values of ``sess.log``, ``run_context.log``, ``step_context.log`` and
    ``coord.log``, and the summaries, step rates and evaluations of hooks, which a hook's own
    ``output_dir`` or ``summary_writer`` gets, too. An attached hook adds its loggers, and takes them
    with it.

    A logger that is slow, hangs or fails does not delay a step and ends no training: each has a queue
    and a thread. A full queue drops its oldest record. Dropped and failed records are counted, and the
    first one of a logger is logged.

    Args:
        loggers: see :class:`~asyncmon.summary.Logger`.
        most_pending: the largest number of pending records of a logger.
        timeout_secs: the time limit of writing pending records at the end, in seconds.

    Raises:
        TypeError: an object is no logger.

    Example::

        hooks = [LoggersHook([CsvLogger("runs/1/values.csv")])]
    """

    priority = GUARD - 1  # begins before the others, and is cleaned up after them

    def __init__(
        self, loggers: Iterable[Logger], *, most_pending: int = 10_000, timeout_secs: float = CLOSE_SECS
    ) -> None:
        self._loggers = check_loggers(loggers)
        self._most_pending = whole_number("most_pending", most_pending, least=1)
        self._timeout_secs = positive("timeout_secs", timeout_secs)
        boards = [one for one in self._loggers if isinstance(one, TensorBoardLogger)]
        self.output_dir = boards[0].output.directory if boards else None
        self._queues: list[_LoggerSink] = []
        self._remove: Callable[[], None] | None = None

    @property
    def dropped(self) -> dict[str, int]:
        """The number of records that were dropped or failed, by the name of the logger's class."""
        found: Counter[str] = Counter()
        for one in self._queues:
            found[type(one.logger).__name__] += one.dropped
        return dict(found)

    async def begin(self) -> None:
        self._queues = [_LoggerSink(one, self._most_pending, self._failed) for one in self._loggers]

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        for one in self._queues:
            members = members_of(LoggerMembers, one.logger)
            if members.name_run is not None:
                one.put(members.name_run, created_session(coord).observers.name)
            if members.start is not None:
                one.put(members.start, session.global_step)
        if self._remove is None:
            self._remove = created_session(coord).recorder.add(tuple(self._queues))

    async def cleanup(self, error: BaseException | None) -> None:
        """Write pending records, and close the loggers."""
        if self._remove is not None:
            self._remove()
            self._remove = None
        await asyncio.gather(*(one.close(error, self._timeout_secs) for one in self._queues))

    def _failed(self, error: BaseException) -> None:
        if self._logged is None:
            self._logged = Failures()
        self._logged.add(error)  # for statistics and the monitor


_METHODS = ("write", "write_config", "flush", "close")


Call = tuple[Callable[..., Any], tuple[Any, ...]]


class _LoggerSink:
    """A sink of the session's recorder: the pending calls of a logger, and its thread."""

    def __init__(self, target: Logger, most: int, failed: Callable[[BaseException], None]) -> None:
        self.logger = target
        self.place: object = target
        if isinstance(target, TensorBoardLogger) and target.output.directory is not None:
            self.place = os.path.realpath(target.output.directory)
        self._blocking = members_of(LoggerMembers, target).blocking
        self._calls = _Calls(target, failed, BaseException if self._blocking else Exception)
        name = f"the logger {type(target).__name__}"
        self._sink = SinkThread[Call](name, self._calls, secs=0.0, most=most)
        self._slow = BufferError(f"it is slow, and {most} records are pending")
        self._is_closed = False

    @property
    def dropped(self) -> int:
        """The number of records that were dropped or refused."""
        return self._calls.failures + self._sink.dropped

    def put_values(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Add values by tag."""
        self.put(self.logger.write, step, wall_time, values)

    def put_summary(self, step: int | None, wall_time: float, summary: Any) -> None:
        """Add a summary: as it is to a logger that takes summaries, else its numbers and texts."""
        write = members_of(LoggerMembers, self.logger).write_summary
        if write is not None:
            self.put(write, step, wall_time, summary)
        elif values := plain_values(summary):
            self.put_values(step, wall_time, values)

    def put_config(self, config: Mapping[str, HParam]) -> None:
        """Add hyperparameters."""
        self.put(self.logger.write_config, config)

    def put(self, call: Callable[..., Any], *args: Any) -> None:
        """Make a call, or add it to the queue. Thread-safe."""
        if self._is_closed:
            return
        if not self._blocking:
            self._calls.make(call, args)
            return
        before = self._sink.dropped
        self._sink.put((call, args))
        if self._sink.dropped != before:
            self._calls.report(self._slow)

    async def close(self, error: BaseException | None, secs: float) -> None:
        """Make the pending calls, then close the logger, within some seconds."""
        if self._blocking:
            self._sink.put((self.logger.close, (error,)), drops=False)
        self._is_closed = True
        try:
            async with asyncio.timeout(secs):
                if self._blocking:
                    await self._sink.close()
                elif inspect.isawaitable(closing := self._calls.make(self.logger.close, (error,))):
                    await closing
        except TimeoutError:
            lost = len(self._sink) + self._calls.remaining
            self._calls.failures += lost
            logger.warning(
                "%s did not write all records within %g s; %s.",
                type(self.logger).__name__,
                secs,
                f"up to {lost} are lost" if self._blocking else "the last ones may be lost",
            )
        except Exception as failure:
            self._calls.fail(failure)
        if self.dropped:
            logger.warning("%s dropped %d records.", type(self.logger).__name__, self.dropped)


class _Calls:
    """Makes the calls of one logger: the target of its sink."""

    unwritten = 0  # a call that fails is not repeated

    def __init__(
        self, target: Logger, failed: Callable[[BaseException], None], errors: type[BaseException]
    ) -> None:
        self.failures = 0
        self.remaining = 0  # calls of the batch that is being made
        self._logger, self._failed = target, failed
        # In the sink's thread no Ctrl-C or cancellation arrives: a client that exits raises these.
        self._errors = errors
        self._warned = False

    def write(self, records: list[Call], sync: bool) -> None:
        """Make the calls, and flush the logger after them, unless it was closed."""
        for i, (call, args) in enumerate(records, 1):
            self.remaining = len(records) - i
            self.make(call, args)
        if records and not sync:
            self.make(self._logger.flush, ())

    def close(self) -> None:
        """Do nothing: the last call has closed the logger."""

    def forget(self) -> None:
        """Do nothing: the logger is the parent's."""

    def make(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """Make a call, and log an error of it."""
        try:
            return call(*args)
        except self._errors as error:
            self.fail(error)
            return None

    def fail(self, error: BaseException) -> None:
        """Count a record that was refused."""
        self.failures += 1
        self.report(error)

    def report(self, error: BaseException) -> None:
        """Log the first reason for which records are lost."""
        self._failed(error)
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s drops values that are logged: %s. The training continues; this is logged once.",
                type(self._logger).__name__,
                phrase(error),
            )
