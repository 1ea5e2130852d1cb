"""A bounded queue of records, and a thread that writes them: of each place that values go to."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from asyncmon.system import clock, portable
from asyncmon.system.background_worker import Worker, new_worker
from asyncmon.system.error_text import add_note

logger = logging.getLogger(__name__)

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
MOST_PENDING = 500_000
"""Records that are kept while a disk is full or hangs, some 100 MB."""

CLOSE_SECS = 30.0
"""The time limit of the last write of a session, whose end a hanging disk does not hold up."""

_RETRY_SECS = 1.0  # the least delay before a failed write is repeated
_PAUSE_SECS = 1.0  # the least interval of writes by a full batch: each costs a busy loop milliseconds
_EXIT_SECS = 5.0  # the time limit of the last write when the program exits


class Target(Protocol[R]):
    """Where a sink writes. The methods block, and are called in its thread, one at a time."""

    @property
    def unwritten(self) -> int:
        """The number of records that it keeps of a failed write."""

    def write(self, records: list[R], sync: bool) -> None:
        """Write records, after those it keeps; with ``sync``, to the disk.

        Raises:
            OSError: it keeps the records, and the write is repeated.
        """

    def close(self) -> None:
        """Close the place. A later write opens it again."""

    def forget(self) -> None:
        """Drop its records, in a forked child."""


class SinkThread(Generic[R]):
    """Writes the records of any threads to a target, in batches, in a thread of its own.

    It needs no event loop, so that records may be added before, between and after loops. A full queue
    drops its oldest record that may be dropped. The error of a failed write is logged once, and raised
    by :meth:`flush` and :meth:`close`; the records are kept and written again. Pending records
    at the exit of the program are written within 5 seconds.

    Args:
        name: of the place, for the log and the thread.
        target: the place.
        secs: the longest time that a record is pending.
        batch: the number of records that are written at once, but then at most once a second.
        most: the largest number of pending records.
        may_drop: whether a record may be dropped.

    Attributes:
        dropped: the number of dropped records.
    """

    def __init__(
        self,
        name: str,
        target: Target[R],
        *,
        secs: float,
        batch: int = 1,
        most: int = MOST_PENDING,
        may_drop: Callable[[R], bool] = lambda _: True,
    ) -> None:
        self.dropped = 0
        self._name, self._target = name, target
        self._secs, self._batch, self._most, self._may_drop = secs, batch, most, may_drop
        #   put() --> _pending --_taken()--> _in_flight records --target.write()--> written
        #   any thread, at most _most        |  the worker's thread
        #                                    +--> _is_failing: kept by the target as its unwritten ones,
        #                                         which come first in the next write
        #   _worker   None before the first record, and after a close
        #   _serves   it is going to run _serve: within _secs, or sooner for a _batch
        #   _flushes  calls that have a write of their own, in place of that one
        self._pending: deque[R] = deque()
        self._worker: Worker | None = None
        self._serves = False
        self._flushes = 0
        self._in_flight: int | None = None
        self._is_failing = False
        self._written_at = -math.inf
        # Of all of the above. A signal handler or a finalizer that logs may interrupt its owner.
        self._lock = threading.RLock()
        _sinks.add(self)

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def behind(self) -> int:
        """The number of records that are not written yet."""
        return len(self._pending) + max(self._target.unwritten, self._in_flight or 0)

    def put(self, record: R, *, drops: bool = True) -> None:
        """Add a record; with ``drops``, drop the oldest one if there are too many.

        Does not block; thread-safe.
        """
        with self._lock:
            pending = self._pending
            if drops and len(pending) >= self._most:
                self._drop_oldest()
            pending.append(record)
            count, worker = len(pending), self._worker
            if worker is None or not self._serves:
                worker = self._start()
        if count >= self._batch:
            now = clock.of_threads()
            if now - self._written_at >= _PAUSE_SECS:
                self._written_at = now
                worker.hurry()

    def snapshot(self, progress: Callable[[], P]) -> tuple[P, list[R]] | None:
        """Return what the target says of its progress, and the records that follow.

        None while records are being written. Does not block.
        """
        with self._lock:
            return None if self._in_flight is not None else (progress(), list(self._pending))

    async def flush(self, *, sync: bool = True) -> None:
        """Wait until all records added so far are written; with ``sync``, on the disk.

        Raises:
            OSError: the write failed. The records are kept and written again.
        """
        with self._lock:
            self._flushes += 1
        try:
            await self.call(self._write, sync)
        finally:
            with self._lock:
                self._flushes -= 1
                if self._worker is not None and not self._serves and self._is_behind():
                    self._start()

    async def call(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in the thread, after its pending work, and return its result."""
        with self._lock:
            worker = self._worker or self._new_worker()
        return await worker.call(fn, *args)

    async def close(self) -> None:
        """Write the pending records, and close the target. A cancelled call does not wait for it.

        Records may be added again, in a new thread.

        Raises:
            OSError: the write failed. A note has the number of lost records.
        """
        with self._lock:
            # A record that is added from here on starts another worker.
            worker, self._worker, self._serves = self._worker or self._new_worker(), None, False
        try:
            await worker.call(self._close)
        except asyncio.CancelledError:
            worker.submit(self._close)  # the first job was dropped if it had not begun
            raise
        finally:
            worker.shutdown()

    def rest(self) -> None:
        """End the thread; pending records are written after the next record, flush or close."""
        with self._lock:
            worker, self._worker, self._serves = self._worker, None, False
        if worker is not None:
            worker.hurry()
            worker.shutdown()

    def write_at_exit(self, secs: float) -> None:
        """Write the pending records, if there are some, within some seconds."""
        worker = self._worker
        if worker is not None and self._is_behind():
            worker.submit(self._write, False).result(secs)

    def forget(self) -> None:
        """Drop everything, in a forked child: the records, the thread and the file are the parent's."""
        self._lock = threading.RLock()  # a thread of the parent may hold it
        self._worker, self._serves, self._in_flight, self._is_failing = None, False, None, False
        self._flushes = 0
        self._pending.clear()
        self._target.forget()

    def _start(self) -> Worker:
        self._serves = True  # first: a signal handler that logs finds it
        worker = self._worker or self._new_worker()
        delay = max(self._secs, _RETRY_SECS) if self._is_failing else self._secs
        worker.call_later(delay, partial(self._serve, worker))
        return worker

    def _is_behind(self) -> bool:
        return bool(self._pending or self._target.unwritten)

    def _new_worker(self) -> Worker:
        self._worker = new_worker.get()(f"asyncmon {self._name}")
        return self._worker

    def _drop_oldest(self) -> None:
        for index in range(len(self._pending)):  # no iterator: a signal handler may add a record
            if self._may_drop(self._pending[index]):
                del self._pending[index]
                self.dropped += 1
                return

    # -- in the thread --------------------------------------------------------------------------------

    def _serve(self, worker: Worker) -> None:
        """Write pending records, and serve again while there are more."""
        with self._lock:
            if self._worker is not worker:
                return  # closed since: the next job of this thread closes the target
            if self._flushes:  # the next job writes, and serves again
                self._serves = False
                return
        try:
            self._write(sync=False)
        except OSError:
            pass  # logged
        except Exception:
            logger.exception("Records for %s are lost.", self._name)
        with self._lock:
            if self._worker is worker:
                self._serves = False
                if self._is_behind():
                    self._start()

    def _close(self) -> None:
        try:
            self._write(sync=True)
        except OSError as error:
            lost = len(self._pending) + self._target.unwritten
            logger.error("%d records for %s were not written.", lost, self._name)
            add_note(error, f"{lost} records were not written.")
            raise
        finally:
            self._target.close()

    def _write(self, sync: bool) -> None:
        try:
            if self._target.unwritten:
                self._target.write([], False)  # the others stay in the queue, which is bounded
            self._target.write(self._taken(), sync)
        except OSError as error:
            if not self._is_failing:
                logger.error("%s. The records are kept and written again.", error)
            self._is_failing = True
            raise
        finally:
            self._in_flight = None
        if self._is_failing:
            self._is_failing = False
            logger.info("%s is written again.", self._name)

    def _taken(self) -> list[R]:
        with self._lock:
            taken, self._pending = self._pending, deque()
            self._in_flight = len(taken)
        if taken:
            self._written_at = clock.of_threads()
        return list(taken)


_sinks: WeakSet[SinkThread[Any]] = WeakSet()


@atexit.register
def _write_at_exit() -> None:
    """Write the pending records of sinks that were not closed."""
    deadline = clock.of_threads() + _EXIT_SECS
    for sink in list(_sinks):
        with contextlib.suppress(Exception):  # logged; a disk that hangs is left to its thread
            sink.write_at_exit(max(0.0, deadline - clock.of_threads()))


def _forked() -> None:
    for sink in list(_sinks):
        sink.forget()


portable.after_fork_in_child(_forked)
