"""Write queued events in a background task: its states, retries and errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

import anyio

from asyncmon.summary.event_file import EventFile
from asyncmon.summary.event_queue import Entry, EventQueue, scalar_fields
from asyncmon.system import clock, files
from asyncmon.system.cancellation import running_loop
from asyncmon.system.error_text import add_note

logger = logging.getLogger(__name__)

DROPPED_TAG = "asyncmon/dropped_events"
"""The tag of a scalar that counts the events a dropping policy has dropped."""

_PAUSE_SECS = 1.0  # least interval of writes by a full queue: each costs a busy loop milliseconds
_RETRY_SECS = 1.0  # least delay before a failed write is retried
_SHUTDOWN_SECS = 5.0  # time limit of the last write when the loop shuts down


_LOOP_SECS = 1.0  # the interval at which a caller of another loop checks that this one is running


class State(Enum):
    """The lifecycle of a writer."""

    NEW = "new"
    """No file exists. Added events are queued."""
    OPEN = "open"
    """The task is running."""
    CLOSING = "closing"
    """The task is writing the remaining events."""
    CLOSED = "closed"
    """The task has ended."""


def _in_its_loop(
    method: Callable[[BackgroundWriter], Coroutine[Any, Any, None]],
) -> Callable[[BackgroundWriter], Coroutine[Any, Any, None]]:
    """Run a method in the loop of the task, which may run in another thread."""

    async def call(self: BackgroundWriter) -> None:
        here = asyncio.get_running_loop()
        while self._task is not None and self._loop is not here:
            if not self._loop.is_running():
                self._take_over()
                break
            work = asyncio.run_coroutine_threadsafe(method(self), self._loop)
            done = asyncio.wrap_future(work)
            while not done.done() and self._loop.is_running():
                await asyncio.wait([done], timeout=_LOOP_SECS)
            if done.done() and not done.cancelled():
                return await done
            done.cancel()  # the other loop is shutting down: continue in this one
        await method(self)

    return call


class BackgroundWriter:
    """Writes the entries of a queue to a file, in batches, by a task and a worker thread.

    The error of a failed write is raised once: by a waiting :meth:`flush`, or else by the next call
    that raises errors. The entries are kept and written again. None is pending for more than
    ``flush_secs`` seconds.
    """

    def __init__(self, file: EventFile, queue: EventQueue, flush_secs: float) -> None:
        self.state = State.NEW
        self._file = file
        self._queue = queue
        self._flush_secs = flush_secs
        self._error: Exception | None = None  # of a failed write, not yet raised to a caller
        self._failing = False  # whether the last write failed
        self._writing = False
        self._waiters: list[tuple[asyncio.Future[None], bool]] = []
        self._written_at = float("-inf")  # the loop's time of the last batch
        self._dropped = 0  # the count in the last DROPPED_TAG event
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop
        self._pending: asyncio.Event  # there are entries or waiters
        self._write_now: asyncio.Event  # do not wait for a fuller batch

    @property
    def path(self) -> str | None:
        """The path of the file, once it is open."""
        return self._file.path

    @property
    def dropped(self) -> int:
        """The number of events that the policy has dropped."""
        return self._queue.dropped

    def put(self, entry: Entry, raises: bool = True) -> None:
        """Add an entry without blocking. Thread-safe.

        OSError if ``raises``, and an earlier write failed; then the entry is not added.
        """
        if self.state is State.NEW and running_loop() is not None:
            self._start()  # else a later call starts the task
        if raises:
            self._raise_if_failed()
        pending = self._queue.put(entry)
        if self.state is State.OPEN and (pending == 1 or pending >= self._queue.bound):
            may_write = not self._failing and self._loop.time() - self._written_at >= _PAUSE_SECS
            self._wake(now=may_write and pending >= self._queue.bound)

    def progress(self) -> tuple[dict[str, int] | None, list[Entry | bytes]]:
        """Return the bytes written to the file, by its name, and the entries that follow them.

        None instead of the bytes while a write is in progress, or in another loop than the task's.
        """
        if self.state is not State.NEW and self._loop is not running_loop():
            return None, []
        written, taken = self._file.progress()
        return written, [*taken, *self._queue.pending()]

    def forked(self) -> None:
        """Forget the file, the entries and the task, which are the parent's. For a child process."""
        self._file.forked()
        self._queue = EventQueue(self._queue.policy, self._queue.bound)
        self._file, self._task, self._waiters = self._file.usable(), None, []
        self._error, self._failing, self.state = None, False, State.NEW

    @_in_its_loop
    async def open(self) -> None:
        """Open the file and start the task."""
        if self.state is State.NEW:
            self._start()
        try:
            await self._written(sync=False)
        except BaseException:
            if not self._file.is_open:  # the caller does not close a writer that failed to open
                self.state = State.NEW
                with anyio.CancelScope(shield=True):
                    await self._stop()
            raise

    @_in_its_loop
    async def flush(self) -> None:
        """Wait until all entries added so far are on the disk."""
        if self.state is State.NEW:
            self._start()
        if self.state is State.OPEN:
            await self._written(sync=True)
        elif self._task is not None:
            await asyncio.wait([self._task])

    @_in_its_loop
    async def drain(self) -> None:
        """Wait while more than ``max_queue`` entries are pending."""
        self._raise_if_failed()
        while self.state is State.OPEN and len(self._queue) > self._queue.bound:
            await self._written(sync=False)

    @_in_its_loop
    async def close(self) -> None:
        """Write pending entries, close the file and end the task, even if cancelled or failing."""
        if self.state is State.NEW and len(self._queue):
            self._start()
        if self._task is None:
            self.state = State.CLOSED
            return
        self.state = State.CLOSING
        self._wake(now=True)
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            self.state = State.CLOSED
            with anyio.CancelScope(shield=True):
                await self._stop()  # does not wait for the disk
            raise
        self._raise_if_failed()

    def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = self._file.usable()
        self._queue.busy = self._writing = False
        self._written_at = float("-inf")
        self._pending, self._write_now = asyncio.Event(), asyncio.Event()
        self.state = State.OPEN
        self._task = self._loop.create_task(self._serve(), name=f"FileWriter {self._file.directory!r}")
        if len(self._queue) or self._file.unwritten:
            self._pending.set()

    def _wake(self, now: bool) -> None:
        here = running_loop()
        if here is self._loop:
            self._set(now)
        elif self._loop.is_running():
            with contextlib.suppress(RuntimeError):  # closed just now: the next call starts the task
                self._loop.call_soon_threadsafe(self._set, now)
        elif here is not None:
            self._take_over()
            self._start()

    def _take_over(self) -> None:
        """End the task of a loop that was stopped without a shutdown."""
        task, self._task, self._waiters, self.state = self._task, None, [], State.NEW
        if task is not None and not self._loop.is_closed():
            task.cancel()

    def _set(self, now: bool) -> None:
        self._pending.set()
        if now:
            self._write_now.set()

    def _raise_if_failed(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    async def _written(self, sync: bool) -> None:
        waiter = self._loop.create_future()
        self._waiters.append((waiter, sync))
        self._wake(now=True)
        await waiter

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _serve(self) -> None:
        try:
            while True:
                await self._wait_for_work()
                if not self._is_current():
                    return
                last = self.state is State.CLOSING  # read before the batch, during which it may change
                await self._write_batch()
                if last:
                    break
            await files.in_thread_abandonable(self._file.close)
        except asyncio.CancelledError:
            try:
                if self._is_current() and self.state is State.OPEN:  # by the shutdown of the loop
                    await self._write_last()
            finally:
                if self._is_current():
                    self._file.abandon()
            raise
        finally:
            if self._is_current():
                self._ended()

    def _is_current(self) -> bool:
        """Return whether no other loop took over while the loop of this task was stopped."""
        return self._task is asyncio.current_task()

    async def _wait_for_work(self) -> None:
        if self.state is State.OPEN and not self._waiters:
            await self._pending.wait()
            delay = max(self._flush_secs, _RETRY_SECS) if self._failing else self._flush_secs
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._write_now.wait()
        self._pending.clear()
        self._write_now.clear()

    async def _write_batch(self) -> None:
        waiters, self._waiters = self._waiters, []
        sync = self.state is State.CLOSING or any(sync for _, sync in waiters)
        self._queue.busy = True  # stays true after a failure, so that the policy bounds the queue
        try:
            if self._file.unwritten:  # retry failed entries first; the others stay in the queue
                await self._write([], sync=False)
            entries = self._queue.take()
            if entries:
                self._written_at = self._loop.time()
            self._add_dropped(entries)
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
        self._file.take(entries)  # not in the thread: a cancelled call may never start there
        self._writing = True
        try:
            await files.in_thread_abandonable(self._file.write, sync, clock.wall())
        except Exception:  # after a cancellation the thread may still be writing
            self._writing = False
            raise
        self._writing = False

    def _failed(self, error: Exception, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        self._pending.set()  # retry after _RETRY_SECS, even without new entries
        self._error = error
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_exception(error)
                self._error = None  # raised to a waiter
        if self._error is not None and not self._failing:
            logger.error("%s. The events are kept and tried again.", error)
        self._failing = True

    def _succeeded(self, waiters: list[tuple[asyncio.Future[None], bool]]) -> None:
        if self._failing:
            logger.info("Events are written to %r again.", self._file.path)
        self._failing = self._queue.busy = False
        self._error = None
        for waiter, _ in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _add_dropped(self, entries: list[Entry]) -> None:
        dropped = self._queue.dropped
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
            async with asyncio.timeout(_SHUTDOWN_SECS):
                await self._write(self._queue.take(), sync=False)  # after a running write
        except TimeoutError:
            return  # logged by _ended
        except OSError as error:
            logger.error("%s", error)

    def _ended(self) -> None:
        lost = len(self._queue) + self._file.unwritten
        if lost and self._writing:
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
        elif self.state is State.OPEN:  # the loop ended without close(); another one may start it again
            self.state = State.NEW
