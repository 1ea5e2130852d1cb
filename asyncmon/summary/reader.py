"""Event files, read back: whole ones, and those that are being written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.protobuf import WireError
from asyncmon.protobuf.tfrecord import RecordParser
from asyncmon.summary.events import Event, SessionLog
from asyncmon.system import files

T = TypeVar("T")

_CHUNK = 1 << 20  # bytes read at once


class summary_iterator:  # TF1's name
    """The events of a file, in order. TF1: ``tf.train.summary_iterator``.

    In a coroutine use ``async for``, which reads and decodes in a worker thread, each time from the
    beginning. Elsewhere it is an iterator, for ``for`` and ``next()``, which goes through the file
    once. A file that is being written may end within a record: the iteration ends before that one.

    Args:
        path: an event file.

    Raises:
        NotFoundError: there is no such file. (All errors come from the iteration.)
        DataLossError: a record is damaged; the message says which. The events before it have been
            given.

    Example::

        async for event in summary_iterator(path):
            for value in event.summary.value:
                print(event.step, value.tag, value.simple_value)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._events = self._read()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def _read(self) -> Iterator[Event]:
        tail = EventTail(self._path)
        while not tail.at_end:
            yield from tail.events(tail.read())
            tail.check()

    async def __aiter__(self) -> AsyncGenerator[Event]:
        tail = EventTail(self._path)
        while not tail.at_end:
            for event in await tail.next_events():
                yield event
            tail.check()


async def follow(path: str | os.PathLike[str], poll_secs: float = 1.0) -> AsyncGenerator[Event]:
    """Yield the events of a file that is being written, as they come.

    Looks for more every ``poll_secs`` seconds. Ends after the session's ``STOP``, when nothing follows
    it; otherwise goes on until the consumer stops or is cancelled. A record that is not complete yet
    is waited for.

    Args:
        path: an event file.
        poll_secs: seconds between two looks at the file.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: a record is damaged. The events before it have been given.

    Example::

        async for event in follow(writer.path):
            for value in event.summary.value:
                await page.send(value.tag, event.step, value.simple_value)
    """
    tail = EventTail(os.fspath(path))
    stopped = False
    while True:
        for event in await tail.next_events():
            stopped = event.session_log.status == SessionLog.STOP
            yield event
        tail.check()
        if tail.at_end:
            if stopped:
                return
            await asyncio.sleep(poll_secs)


class EventTail:
    """Reads a file chunk by chunk, from where the last chunk ended, and decodes whole records.

    Attributes:
        at_end: whether the last chunk reached the end that the file had.
        position: how many bytes were read.
    """

    def __init__(self, path: str) -> None:
        self.at_end = False
        self.position = 0
        self._path = path
        self._parser = RecordParser(path)
        self._error: DataLossError | None = None

    async def next_events(self) -> list[Event]:
        """Return the events of the next chunk. The file is read and decoded in worker threads."""
        with self._not_found():
            data = await files.read_bytes(self._path, self.position, _CHUNK)
        return await files.in_thread(self.events, data)

    def read(self) -> bytes:
        """Return the next chunk. Blocking."""
        with self._not_found(), open(self._path, "rb") as file:
            file.seek(self.position)
            there = os.fstat(file.fileno()).st_size - self.position
            return file.read(max(0, min(there, _CHUNK)))  # the memory for a whole chunk takes its time

    def events(self, data: bytes) -> list[Event]:
        """Return the events that a chunk completes. :meth:`check` raises the error that comes after."""
        return self.decoded(data, self.event)

    def decoded(self, data: bytes, decode: Callable[[bytes], T]) -> list[T]:
        """Return what a function makes of each record, where :meth:`events` makes events."""
        self.position += len(data)
        self.at_end = len(data) < _CHUNK
        found: list[T] = []
        try:
            for record in self._parser.feed(data):
                found.append(decode(record))  # noqa: PERF401 -- what came before an error counts
        except DataLossError as error:
            self._error = error
        return found

    def check(self) -> None:
        """Raise the DataLossError of a damaged record."""
        if self._error is not None:
            raise self._error

    @contextmanager
    def _not_found(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError(f"There is no event file {self._path!r}.") from None

    def event(self, record: bytes) -> Event:
        """Return the event that a record is. Raises DataLossError where it is none."""
        try:
            return Event.FromString(record)
        except WireError as error:
            raise DataLossError(
                f"Record {self._parser.index - 1} of {self._path!r} matches its checksum and is no "
                f"Event: {error}"
            ) from None
