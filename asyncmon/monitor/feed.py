"""The events for viewers: numbered, encoded once, and kept in a ring buffer that all viewers read.

A viewer is a position in the ring and has no queue. If the position is no longer in the ring, because
the viewer is slow or was away, the viewer gets ``event: reset`` and loads everything again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import Receive, Scope, Send

from asyncmon.monitor.encoding import encode_series, to_json
from asyncmon.monitor.event_stream import send_events
from asyncmon.monitor.log_lines import LogLines
from asyncmon.monitor.runs import Runs
from asyncmon.system import clock
from asyncmon.system.asgi import Failure

logger = logging.getLogger(__name__)

TICK_SECS = 0.1
HEARTBEAT_SECS = 15.0
READ_SECS = 0.5
"""The time that a request waits for new data; reading of a large file continues afterwards."""

STREAM_SECS = 60.0
"""The longest duration of a stream; its viewer reconnects, so that a server can always shut down."""

MOST_BYTES = 1 << 20  # of the ring
_MOST_PENDING = 2_000  # points sent as events; viewers fetch larger amounts
_MOST_WOKEN = 25  # viewers per tick: each costs the loop of the training some 50 us
_BREAK_SECS = 2.0  # between two resets caused by many points, as from a large file


class Feed:
    """Publishes the new data of all runs under cursors, and streams them.

    The publishing task starts with the first viewer and ends with the last one.

    Args:
        runs: the runs.
        log: the log lines.
        stopping: returns whether the server is stopping; streams end then.
    """

    def __init__(self, runs: Runs, log: LogLines, stopping: Callable[[], bool]) -> None:
        #   dropped, or of another process     _floor | the events of the ring | cursor
        #   a viewer at a cursor down there gets a reset; one in between the events after it, in bytes
        #   that _joined keeps for the other viewers at the same cursor
        self.cursor = int(clock.wall() * 1e6)  # above all cursors of an earlier process
        self.viewers = 0
        self._runs = runs
        self._log = log
        self._stopping = stopping
        self.ring: deque[tuple[int, bytes]] = deque()
        self._floor = self.cursor
        self.buffered_bytes = 0
        self._rows: dict[str, dict[str, Any]] = {}  # as they were sent
        self._changes = runs.changes
        self._next_line = log.next
        self._break_due = 0.0
        self._pump: asyncio.Task[None] | None = None
        # the waiting viewers: since when, with which cursor; both only rise from left to right
        self._waiting: deque[tuple[float, int, asyncio.Future[None]]] = deque()
        self._joined: tuple[int, int, bytes] = (0, 0, b"")

    def publish(self) -> int:
        """Publish the data read since the last call, and return the cursor. Does not wait."""
        self._publish_points()
        if self._changes != self._runs.changes:
            self._changes = self._runs.changes
            rows = self._runs.rows()
            self._rows = {row["id"]: row for row in rows}
            self._append("runs", to_json({"runs": rows}))
        lines = self._log.after(self._next_line, self._runs.id_of)
        if lines:
            self._next_line = lines[-1]["n"] + 1
            self._append("log", to_json({"lines": lines}))
        return self.cursor

    def _publish_points(self) -> None:
        entries = [(entry, entry.run.scalars) for entry in self._runs]
        large = [one for _, one in entries if one.broken or one.pending() > _MOST_PENDING]
        if large and clock.monotonic() >= self._break_due:  # one reset for all of them
            self._break_due = clock.monotonic() + _BREAK_SECS
            self._break()
            for scalars in large:
                scalars.publish(self.cursor)
        for entry, scalars in entries:
            if scalars not in large and scalars.pending():
                series = encode_series(scalars.publish(self.cursor + 1))
                self._append("scalars", b'{"run":%b,"series":%b}' % (to_json(entry.id), series))

    def _publish_status(self) -> None:
        """Publish one changed row, the one published least recently."""
        for entry in self._runs:
            self._rows.setdefault(entry.id, {})
        for name in list(self._rows):
            try:
                row = self._runs[name].row()
            except KeyError:
                del self._rows[name]
                continue
            if row != self._rows[name]:
                del self._rows[name]
                self._rows[name] = row  # it is the last one now
                self._append("status", to_json(row))
                return

    def _break(self) -> None:
        """Reset all viewers."""
        self.cursor += 1
        self._floor = self.cursor
        self.ring.clear()
        self.buffered_bytes = 0

    def _append(self, event: str, data: bytes) -> None:
        self.cursor += 1
        encoded = b"id: %d\nevent: %b\ndata: %b\n\n" % (self.cursor, event.encode(), data)
        self.ring.append((self.cursor, encoded))
        self.buffered_bytes += len(encoded)
        while self.buffered_bytes > MOST_BYTES:
            self._floor, gone = self.ring.popleft()
            self.buffered_bytes -= len(gone)

    def after(self, cursor: int) -> bytes:
        """Return the encoded events after a cursor, or a reset if they are no longer in the ring."""
        if not self._floor <= cursor <= self.cursor:
            return b'id: %d\nevent: reset\ndata: {"cursor":%d}\n\n' % (self.cursor, self.cursor)
        if cursor == self.cursor:
            return b""
        if self._joined[:2] != (cursor, self.cursor):  # viewers at the same position share the bytes
            found = []
            for number, encoded in reversed(self.ring):
                if number <= cursor:
                    break
                found.append(encoded)
            self._joined = cursor, self.cursor, b"".join(reversed(found))
        return self._joined[2]

    async def read(self) -> None:
        """Read new data of all runs; slow reads continue in the background."""
        await self._runs.read(READ_SECS)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Count a viewer until it leaves.

        Raises:
            Failure: there are too many viewers.
        """
        if self.viewers >= MOST_VIEWERS:
            raise Failure(503, f"{MOST_VIEWERS} viewers are connected already.", {"retry-after": "10"})
        self.viewers += 1
        try:
            yield
        finally:
            self.viewers -= 1
            if not self.viewers:
                self.close()

    async def stream(self, after: int | None) -> AsyncGenerator[bytes]:
        """Yield events as bytes for as long as a viewer listens, at most ten times a second.

        Args:
            after: the cursor that the viewer has; None to begin with the list of runs.
        """
        if self._pump is None:
            self._pump = asyncio.create_task(self._run(), name="monitor, events")
        pump = self._pump
        began = now = clock.monotonic()
        chunk = b"retry: 1000\n\n"
        position = self.cursor if after is None else after
        if after is None:
            data = to_json({"runs": self._runs.rows()})
            chunk += b"id: %d\nevent: runs\ndata: %b\n\n" % (position, data)
        while self._pump is pump and now - began <= STREAM_SECS - HEARTBEAT_SECS:
            chunk += self.after(position)
            position = self.cursor
            yield chunk or b":\n\n"
            woken = asyncio.get_running_loop().create_future()
            now = clock.monotonic()
            self._waiting.append((now, position, woken))
            await woken
            now, chunk = clock.monotonic(), b""

    def close(self) -> None:
        """End all streams. New streams may follow."""
        if self._pump is not None:
            self._pump.cancel()
        self._end()

    def _end(self) -> None:
        self._pump = None
        while self._waiting:
            self._wake_next()

    def _wake(self, now: float) -> None:
        """Wake the viewers that lack events or a heartbeat, the longest waiter first."""
        for _ in range(_MOST_WOKEN):
            if not self._waiting:
                break
            since, position, _woken = self._waiting[0]
            if position == self.cursor and now - since < HEARTBEAT_SECS:
                break  # so do all others
            self._wake_next()

    def _wake_next(self) -> None:
        woken = self._waiting.popleft()[2]
        if not woken.done():  # else the viewer is gone
            woken.set_result(None)

    async def _run(self) -> None:
        due = clock.monotonic()
        try:
            while not self._stopping():
                self._runs.start_reading(self._runs)
                self.publish()
                self._publish_status()
                now = clock.monotonic()
                self._wake(now)
                due += TICK_SECS
                if due <= now:  # the loop was held
                    due = now + TICK_SECS
                await asyncio.sleep(due - now)
        except Exception:
            logger.exception("The monitor cannot publish events any more; viewers come back.")
        self._end()


MOST_VIEWERS = 50


class EventStream:
    """Streams the feed after a cursor, until the viewer disconnects or stalls, or for a minute."""

    def __init__(self, feed: Feed, after: int | None) -> None:
        self._feed = feed
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._feed.place():  # raises Failure if there are too many viewers
            await self._feed.read()
            await send_events(self._feed.stream(self._after), receive, send)
