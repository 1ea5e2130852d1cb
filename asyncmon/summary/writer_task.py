"""From the queue to the disk: the writer's task, its states, and what becomes of its errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import warnings
from enum import Enum

import anyio

from asyncmon.summary.event_file import EventFile
from asyncmon.summary.event_queue import Backlog, Entry, scalar_fields
from asyncmon.system import clock, files
from asyncmon.system.error_text import add_note

logger = logging.getLogger(__name__)

DROPPED_TAG = "asyncmon/dropped_events"
"""The scalar under which a dropping policy shows what it has cost."""

_PAUSE_SECS = 1.0  # between two writes that nobody asked for: each costs a busy loop some milliseconds
_RETRY_SECS = 1.0  # the least time between two tries of a disk that refused
_LAST_SECS = 5.0  # how long a task that is cancelled from outside may write what is left


class State(Enum):
    """The life of a writer."""

    NEW = "new"
    """Nothing on disk. What is added waits."""
    OPEN = "open"
    """The task runs."""
    CLOSING = "closing"
    """The task writes what is left."""
    CLOSED = "closed"
    """The task is gone. What is added is refused with a warning."""


class Pump:
    """Takes entries and writes them in a task of its own, batch by batch, in a worker thread.

    Args:
        file: where they go.
        backlog: where they wait.
        flush_secs: the longest time an entry waits for a fuller batch.
        report: whether a failed write is raised by the next :meth:`put` too.
    """

    def __init__(self, file: EventFile, backlog: Backlog, flush_secs: float, report: bool) -> None:
        self.state = State.NEW
        self._file = file
        self._backlog = backlog
        self._flush_secs = flush_secs
        self._report = report
        self._error: Exception | None = None  # of a write, that nobody has been told of
        self._failing = False  # the last write failed
        self._in_thread = False
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []
        self._written_at = float("-inf")  # when the last entries were taken, on the loop's clock
        self._dropped = 0  # as last shown
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._thread: int | None = None
        self._arrived: asyncio.Event  # something waits
        self._urgent: asyncio.Event  # and it should be written now

    @property
    def path(self) -> str | None:
        """The file, once it is open."""
        return self._file.path

    def put(self, entry: Entry, told: bool = True) -> None:
        """Add an entry; never waits. From a thread too.

        Args:
            entry: what to write.
            told: whether the caller can be told of an earlier failure.

        Raises:
            OSError: an earlier write failed and nobody has been told; this entry was not added.
        """
        if self.state is not State.OPEN and not self._admit():
            return
        if self._report and told:
            self._raise_if_failed()
        waiting = self._backlog.put(entry)
        if self.state is State.OPEN and (waiting == 1 or waiting >= self._backlog.bound):
            self._wake(urgent=waiting >= self._backlog.bound and self._may_write())

    async def open(self) -> None:
        """Open the file now, and start the task."""
        if self.state is State.CLOSED:
            self.state = State.NEW
        if self.state is State.NEW:
            self._start()
        try:
            await self._written(sync=False)
        except BaseException:
            if not self._file.is_open:  # nobody closes what could not be opened
                self.state = State.NEW
                with anyio.CancelScope(shield=True):
                    await self._stop()
            raise

    def write_soon(self) -> None:
        """Begin to write what waits, unless that was done a moment ago. An error is kept for others."""
        if self.state is State.OPEN and len(self._backlog) and self._may_write():
            self._wake(urgent=True)

    async def flush(self) -> None:
        """Wait until what was added before is on the disk."""
        if self.state is State.NEW:
            self._start()
        if self.state is State.OPEN:
            await self._written(sync=True)
        elif self.state is State.CLOSED:
            self._warn_closed()
        elif self._task is not None:
            await asyncio.wait([self._task])

    async def drain(self) -> None:
        """Wait while more than ``max_queue`` entries wait."""
        self._raise_if_failed()
        while self.state is State.OPEN and len(self._backlog) > self._backlog.bound:
            await self._written(sync=False)

    async def close(self) -> None:
        """Write what is left, close the file, end the task. Closes even when cancelled or failing."""
        if self.state is State.NEW and len(self._backlog):
            self._start()
        if self._task is None:
            self.state = State.CLOSED
            return
        self.state = State.CLOSING
        self._wake(urgent=True)
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self.state = State.CLOSED
            with anyio.CancelScope(shield=True):
                await self._stop()  # which does not wait for the disk
            raise
        self._raise_if_failed()

    def _admit(self) -> bool:
        if self.state is State.NEW:
            with contextlib.suppress(RuntimeError):  # no loop is running yet: it waits for one
                self._start()
            return True
        self._warn_closed()
        return False

    def _warn_closed(self) -> None:
        depth, frame = 1, sys._getframe()
        while frame.f_back is not None and frame.f_globals["__name__"].startswith("asyncmon.summary."):
            depth, frame = depth + 1, frame.f_back
        warnings.warn(
            "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter "
            "is explicitly reopened.",
            UserWarning,
            stacklevel=depth,  # the line outside of this room that called
        )

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._file = self._file.usable()
        self._backlog.busy = self._in_thread = False
        self._written_at = float("-inf")
        self._arrived, self._urgent = asyncio.Event(), asyncio.Event()
        self.state = State.OPEN
        self._task = self._loop.create_task(self._serve(), name=f"FileWriter {self._file.directory!r}")
        if len(self._backlog) or self._file.unwritten:
            self._arrived.set()

    def _may_write(self) -> bool:
        return not self._failing and self._loop.time() - self._written_at >= _PAUSE_SECS

    def _wake(self, urgent: bool) -> None:
        if self._thread != threading.get_ident():
            self._loop.call_soon_threadsafe(self._set, urgent)
        else:
            self._set(urgent)

    def _set(self, urgent: bool) -> None:
        self._arrived.set()
        if urgent:
            self._urgent.set()

    def _raise_if_failed(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _written(self, sync: bool) -> None:
        waiter = self._loop.create_future()
        self._waiters.append((waiter, sync))
        self._wake(urgent=True)
        await waiter

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _serve(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                last = self.state is State.CLOSING  # now, for the batch may be long
                await self._write_batch()
                if last:
                    break
            await files.in_thread_abandonable(self._file.close)
        except asyncio.CancelledError:
            try:
                if self.state is State.OPEN:  # the loop is being shut down
                    await self._write_last()
            finally:
                self._file.abandon()
            raise
        finally:
            self._ended()

    async def _wait_for_work(self) -> None:
        if self.state is State.OPEN and not self._waiters:
            await self._arrived.wait()
            delay = max(self._flush_secs, _RETRY_SECS) if self._failing else self._flush_secs
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._urgent.wait()
        self._arrived.clear()
        self._urgent.clear()

    async def _write_batch(self) -> None:
        waiters, self._waiters = self._waiters, []
        sync = self.state is State.CLOSING or any(sync for _, sync in waiters)
        self._backlog.busy = True  # and stays so while the disk refuses, so that the policy decides
        try:
            if self._file.unwritten:  # what was refused comes first; the rest waits within its bound
                await self._write([], sync=False)
            entries = self._backlog.take()
            if entries:
                self._written_at = self._loop.time()
            self._show_dropped(entries)
            await self._write(entries, sync)
        except Exception as error:
            self._failed(error, waiters)
        except BaseException:
            for waiter, _ in waiters:
                waiter.cancel()
            raise
        else:
            self._succeeded(waiters)

    async def _write(self, entries: list[Entry], sync: bool) -> None:
        self._file.take(entries)  # here: the call of a cancelled write may never reach its thread
        self._in_thread = True
        try:
            await files.in_thread_abandonable(self._file.write, sync, clock.wall())
        except Exception:  # not a cancellation: then the thread still writes
            self._in_thread = False
            raise
        self._in_thread = False

    def _failed(self, error: Exception, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        self._arrived.set()  # tried again after a while, even if nothing is added
        self._error = error
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                self._error = None  # told
        if self._error is not None and not self._failing:
            logger.error("%s. The events are kept and tried again.", error)
        self._failing = True

    def _succeeded(self, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        if self._failing:
            logger.info("Events are written to %r again.", self._file.path)
        self._failing = self._backlog.busy = False
        self._error = None
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _show_dropped(self, entries: list[Entry]) -> None:
        dropped = self._backlog.dropped
        if dropped == self._dropped:
            return
        if self._dropped == 0:
            logger.warning(
                "The disk of %r is behind, and events are dropped. %r counts them.",
                self._file.directory,
                DROPPED_TAG,
            )
        self._dropped = dropped
        step = entries[-1][1] if entries else 0
        entries.append((clock.wall(), step, DROPPED_TAG, float(dropped), scalar_fields))

    async def _write_last(self) -> None:
        try:
            async with asyncio.timeout(_LAST_SECS):
                await self._write(self._backlog.take(), sync=False)  # after one that is under way
        except TimeoutError:
            return  # is said when the task has ended
        except OSError as error:
            logger.error("%s", error)

    def _ended(self) -> None:
        lost = len(self._backlog) + self._file.unwritten
        if lost and self._in_thread:
            logger.error(
                "The disk of %r hangs; up to %d events are lost there.", self._file.directory, lost
            )
        elif lost and self.state is not State.NEW:
            logger.error("%d events for %r were not written.", lost, self._file.directory)
            if self._error is not None:
                add_note(self._error, f"{lost} events were not written.")
        for waiter, _ in self._waiters:
            waiter.cancel()
        self._waiters = []
        self._task = None
        if self.state is State.CLOSING:
            self.state = State.CLOSED
        elif self.state is State.OPEN:  # the loop ended without close(); there may be a next one
            self.state = State.NEW
