"""Event files, read back: whole ones, and those that are being written."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from asyncmon import files
from asyncmon.errors import DataLossError, NotFoundError
from asyncmon.summary.events import Event, SessionLog
from asyncmon.summary.records import RecordParser
from asyncmon.summary.wire import WireError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

__all__ = ["follow", "summary_iterator"]

_CHUNK = 1 << 20  # bytes read at once


class summary_iterator:  # TF1's name
    """The events of a file, in order. TF1: ``tf.train.summary_iterator``.

    In a coroutine use ``async for``, which reads and decodes in a worker thread; elsewhere ``for``.
    Either can be done any number of times, each from the beginning.

    Args:
        path: an event file.

    Raises:
        NotFoundError: there is no such file. (All errors come from the iteration.)
        DataLossError: a record is damaged, or the file ends within one; the message says which. The
            events before it have been given.

    Example::

        async for event in summary_iterator(path):
            for value in event.summary.value:
                print(event.step, value.tag, value.simple_value)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)

    def __iter__(self) -> Iterator[Event]:
        tail = _Tail(self._path)
        while True:
            events, error = tail.read()
            yield from events
            if error is not None:
                raise error
            if tail.at_end:
                tail.parser.finish()
                return

    async def __aiter__(self) -> AsyncGenerator[Event]:
        tail = _Tail(self._path)
        while True:
            events, error = await files.in_thread(tail.read)
            for event in events:
                yield event
            if error is not None:
                raise error
            if tail.at_end:
                tail.parser.finish()
                return


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
    tail = _Tail(os.fspath(path))
    stopped = False
    while True:
        events, error = await files.in_thread(tail.read)
        for event in events:
            stopped = event.session_log.status == SessionLog.STOP
            yield event
        if error is not None:
            raise error
        if tail.at_end:
            if stopped:
                return
            await asyncio.sleep(poll_secs)


class _Tail:
    """Reads on where it left off. Blocking."""

    def __init__(self, path: str) -> None:
        self.parser = RecordParser(path)
        self.at_end = False
        self._read = 0

    def read(self) -> tuple[list[Event], DataLossError | None]:
        """Return the next events, and what is wrong with the record after them."""
        try:
            with open(self.parser.name, "rb") as file:
                file.seek(self._read)
                data = file.read(_CHUNK)
        except FileNotFoundError:
            raise NotFoundError(f"There is no event file {self.parser.name!r}.") from None
        self._read += len(data)
        self.at_end = len(data) < _CHUNK
        events: list[Event] = []
        try:
            for record in self.parser.feed(data):
                events.append(self._event(record))  # noqa: PERF401 -- what came before an error counts
        except DataLossError as error:
            return events, error
        return events, None

    def _event(self, record: bytes) -> Event:
        try:
            return Event.FromString(record)
        except WireError as error:
            raise DataLossError(
                f"Record {self.parser.index - 1} of {self.parser.name!r} matches its checksum and "
                f"is no Event: {error}"
            ) from None
