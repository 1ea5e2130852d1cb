"""Read event files, also while they are being written."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from typing import Self, TypeVar

from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.protobuf import DELIMITED, WireError, fields
from asyncmon.protobuf.tfrecord import RecordParser
from asyncmon.summary.entries import SUMMARY
from asyncmon.summary.events import Event, SessionLog
from asyncmon.system import files

T = TypeVar("T")

_CHUNK = 1 << 20  # bytes per read

_LARGE = 1 << 20  # bytes of a record, in which the fields are counted before it is decoded
_MOST_FIELDS = 200_000  # of such a record: two bytes of an empty one become some 170 in memory
_STRINGS = (SUMMARY, 1, 8, 8)  # event, summary, value, tensor, string_val


def is_event_file(name: str) -> bool:
    """Return whether a file has the name of an event file."""
    return ".tfevents." in name or name.endswith(".tfevents")


class summary_iterator:  # TF1's name
    """Iterates over the events of a file. TF1: ``tf.train.summary_iterator``.

    In a coroutine use ``async for``, which reads and decodes in a worker thread; each loop starts at
    the beginning. ``for`` and ``next()`` block, and read the file once. If the file ends with an
    incomplete record, as it may while it is being written, the iteration ends before that record.

    Args:
        path: an event file.

    Raises:
        NotFoundError: there is no such file. The iteration raises all errors, not the constructor.
        DataLossError: a record is damaged. The events before it were returned.

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
    """Yield the events of a file while it is being written.

    Waits for incomplete records. Ends if the last event is the ``STOP`` of the session; otherwise it
    runs until the consumer stops or is cancelled.

    Args:
        path: an event file.
        poll_secs: the interval in seconds at which the file is read.

    Raises:
        NotFoundError: there is no such file.
        DataLossError: a record is damaged. The events before it were yielded.

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
    """Reads a growing file in chunks, and decodes its complete records.

    Attributes:
        at_end: whether the last chunk reached the end of the file.
        position: the number of bytes read.
    """

    def __init__(self, path: str) -> None:
        self.at_end = False
        self.position = 0
        self._path = path
        self._parser = RecordParser(path)
        self._error: DataLossError | None = None

    async def next_events(self) -> list[Event]:
        """Return the events of the next chunk, read and decoded in worker threads."""
        with self._not_found():
            data = await files.read_bytes(self._path, self.position, _CHUNK)
        return await files.in_thread(self.events, data)

    def read(self, limit: float = math.inf) -> bytes:
        """Return the next chunk, up to a position in the file. Blocking."""
        with self._not_found(), open(self._path, "rb") as file:
            file.seek(self.position)
            there = min(os.fstat(file.fileno()).st_size, limit) - self.position
            return file.read(max(0, int(min(there, _CHUNK))))  # allocating a whole chunk is slow

    def events(self, data: bytes) -> list[Event]:
        """Return the events that a chunk completes. :meth:`check` raises an error after them."""
        return self.decoded(data, self.event)

    def decoded(self, data: bytes, decode: Callable[[bytes], T]) -> list[T]:
        """Return the decoded records that a chunk completes. :meth:`check` raises a later error."""
        self.position += len(data)
        self.at_end = len(data) < _CHUNK
        found: list[T] = []
        try:
            for record in self._parser.feed(data):
                found.append(decode(record))  # noqa: PERF401 -- keeps the ones before an error
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
        """Return the event of a record. Raises DataLossError if it is no event, or too large a one."""
        try:
            if len(record) > _LARGE and any(i >= _MOST_FIELDS for i, _ in enumerate(_fields(record))):
                raise DataLossError(
                    f"Record {self._parser.index - 1} of {self._path!r} is a summary with more than "
                    f"{_MOST_FIELDS:,} values and texts, which would not fit into memory."
                )
            return Event.FromString(record)
        except WireError as error:
            raise DataLossError(
                f"Record {self._parser.index - 1} of {self._path!r} matches its checksum and is no "
                f"Event: {error}"
            ) from None


def _fields(data: bytes | memoryview, inside: tuple[int, ...] = _STRINGS) -> Iterator[None]:
    """Yield for each field of an event, down to the texts in its summary."""
    for number, wire_type, content in fields(data):
        yield None
        if inside and number == inside[0] and wire_type == DELIMITED and not isinstance(content, int):
            yield from _fields(content, inside[1:])
