"""Pass logged values to loggers, each with a bounded queue and a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from asyncmon.hooks.file_loggers import TensorBoardLogger
from asyncmon.hooks.hook_support import created_session, positive, whole_number
from asyncmon.runtime import GUARD, Coordinator, Session, SessionRunHook
from asyncmon.runtime.failures import Failures
from asyncmon.runtime.hook import HookMembers
from asyncmon.summary.logged import LoggedValue, Logger, LoggerMembers
from asyncmon.summary.shared_writer import SharedWriter
from asyncmon.summary.values import HParam
from asyncmon.system import clock
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.error_text import phrase
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class LoggersHook(SessionRunHook):
    """Write logged values and configurations to loggers. ``MonitoredTrainingSession`` adds one.

    The loggers get the values of ``sess.log``, ``run_context.log``, ``step_context.log`` and
    ``coord.log``, and the numbers and texts of the summaries, step rates and evaluations of hooks.
    Those of a hook with an ``output_dir`` are in its event file already, and no
    :class:`TensorBoardLogger` gets them; those of a hook with a writer of its own go there alone.

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
        self._output = boards[0].output if boards else SharedWriter(None, None)
        self._queues: list[_Queue] = []

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
        for hook in created_session(coord).hooks():
            output = members_of(HookMembers, hook)._output
            if hook is not self and isinstance(output, SharedWriter) and not output.is_given:
                output.forward = self._forward

    def log_values(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Pass values to all loggers. Does not block; thread-safe."""
        for one in self._queues:
            one.put(one.logger.write, step, wall_time, values)

    def log_config(self, config: Mapping[str, HParam]) -> None:
        """Pass hyperparameters to all loggers. Does not block; thread-safe."""
        for one in self._queues:
            one.put(one.logger.write_config, config)

    async def cleanup(self, error: BaseException | None) -> None:
        """Write pending records, and close the loggers."""
        await asyncio.gather(*(one.close(error, self._timeout_secs) for one in self._queues))

    def _failed(self, error: Exception) -> None:
        if self._logged is None:
            self._logged = Failures()
        self._logged.add(error)  # for statistics and the monitor

    def _forward(
        self, output: SharedWriter, step: int | None, values: Callable[[], Mapping[str, LoggedValue]]
    ) -> None:
        wall_time, is_written = clock.wall(), output.directory is not None
        queues = [
            one
            for one in self._queues
            if not (is_written and isinstance(one.logger, TensorBoardLogger))
        ]
        found = values() if queues else {}
        for one in queues if found else ():
            one.put(one.logger.write, step, wall_time, found)


_METHODS = ("write", "write_config", "flush", "close")


class _Queue:
    """The pending calls of a logger, and its thread."""

    def __init__(self, target: Logger, most: int, failed: Callable[[Exception], None]) -> None:
        self.logger = target
        self.dropped = 0
        self._blocking = members_of(LoggerMembers, target).blocking
        self._most = most
        self._failed = failed
        self._pending: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._warned = self._busy = self._closing = False
        self._lock = threading.Lock()
        self._thread = DaemonExecutor(f"asyncmon logger {type(target).__name__}")

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
