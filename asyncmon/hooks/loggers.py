"""Pass logged values to loggers, each with a bounded queue and a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from asyncmon.hooks.file_loggers import TensorBoardLogger
from asyncmon.hooks.hook_support import created_session, positive, whole_number
from asyncmon.runtime import GUARD, Coordinator, Session, SessionRunHook
from asyncmon.runtime.failures import Failures
from asyncmon.summary.logged import LoggedValue, Logger, LoggerMembers
from asyncmon.summary.values import HParam, plain_values
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.error_text import phrase
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


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
        self, loggers: Iterable[Logger], *, most_pending: int = 10_000, timeout_secs: float = 30.0
    ) -> None:
        self._loggers = list(loggers)
        for one in self._loggers:
            if missing := [name for name in _METHODS if not callable(getattr(one, name, None))]:
                raise TypeError(
                    f"A logger has the methods {', '.join(_METHODS)}; {one!r} of type "
                    f"{type(one).__name__} lacks {', '.join(missing)}."
                )
        self._most_pending = whole_number("most_pending", most_pending, least=1)
        self._timeout_secs = positive("timeout_secs", timeout_secs)
        boards = [one for one in self._loggers if isinstance(one, TensorBoardLogger)]
        self.output_dir = boards[0].output.directory if boards else None
        self._queues: list[_Queue] = []
        self._remove: Callable[[], None] | None = None

    @property
    def dropped(self) -> dict[str, int]:
        """The number of records that were dropped or failed, by the name of the logger's class."""
        found: Counter[str] = Counter()
        for one in self._queues:
            found[type(one.logger).__name__] += one.dropped
        return dict(found)

    async def begin(self) -> None:
        self._queues = [_Queue(one, self._most_pending, self._failed) for one in self._loggers]

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        for one in self._queues:
            if (start := members_of(LoggerMembers, one.logger).start) is not None:
                one.put(start, session.global_step)
        if self._remove is None:
            self._remove = created_session(coord).recorder.add(tuple(self._queues))

    async def cleanup(self, error: BaseException | None) -> None:
        """Write pending records, and close the loggers."""
        if self._remove is not None:
            self._remove()
            self._remove = None
        await asyncio.gather(*(one.close(error, self._timeout_secs) for one in self._queues))

    def _failed(self, error: Exception) -> None:
        if self._logged is None:
            self._logged = Failures()
        self._logged.add(error)  # for statistics and the monitor


_METHODS = ("write", "write_config", "flush", "close")


class _Queue:
    """The pending calls of a logger, and its thread: a sink of the session's recorder."""

    def __init__(self, target: Logger, most: int, failed: Callable[[Exception], None]) -> None:
        self.logger = target
        self.directory: str | None = None
        if isinstance(target, TensorBoardLogger) and target.output.directory is not None:
            self.directory = os.path.realpath(target.output.directory)
        self.dropped = 0
        self._blocking = members_of(LoggerMembers, target).blocking
        self._most = most
        self._failed = failed
        self._pending: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._warned = self._busy = self._closing = False
        self._lock = threading.Lock()
        self._thread = DaemonExecutor(f"asyncmon logger {type(target).__name__}")

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
        if self._closing:
            return
        if not self._blocking:
            self._call(call, args)
            return
        with self._lock:
            is_full = len(self._pending) >= self._most
            if is_full:
                self._pending.popleft()
            self._add(call, args)
        if is_full:
            self._drop(BufferError(f"it is slow, and {self._most} records are pending"))

    def _add(self, call: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._pending.append((call, args))
        if not self._busy:
            self._busy = True
            self._thread.submit(self._write_pending)

    def _write_pending(self) -> None:
        while True:
            with self._lock:
                if not self._pending:
                    self._busy = False
                    return
                call, args = self._pending.popleft()
                flushes = not self._pending and not self._closing
            self._call(call, args)
            if flushes:
                self._call(self.logger.flush, ())

    def _call(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        try:
            return call(*args)
        except Exception as error:
            self._drop(error)
            return None

    def _drop(self, error: Exception) -> None:
        self.dropped += 1
        self._failed(error)
        if not self._warned:
            self._warned = True
            logger.warning(
                "%s drops values that are logged: %s. The training continues; this is logged once.",
                type(self.logger).__name__, phrase(error),
            )  # fmt: skip

    async def close(self, error: BaseException | None, secs: float) -> None:
        """Make the pending calls, then close the logger, within some seconds."""
        self._closing = True
        try:
            async with asyncio.timeout(secs):
                if self._blocking:
                    with self._lock:
                        self._add(self.logger.close, (error,))
                    await self._thread.call(int)  # after all of them
                elif inspect.isawaitable(closing := self._call(self.logger.close, (error,))):
                    await closing
        except TimeoutError:
            self.dropped += len(self._pending)
            logger.warning(
                "%s did not write all records within %g s; up to %d are lost.",
                type(self.logger).__name__, secs, len(self._pending),
            )  # fmt: skip
        except Exception as failure:
            self._drop(failure)
        finally:
            self._thread.shutdown()
        if self.dropped:
            logger.warning("%s dropped %d records.", type(self.logger).__name__, self.dropped)
