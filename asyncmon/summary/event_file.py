"""The disk's side of a writer: blocking, called in a worker thread, but for ``take``.

A batch is encoded, written and synced by one call: beside a loop of steps each further call waits for
the interpreter again. It is not a call of aiofiles, whose thread pool ``asyncio.run`` joins: it would
not return while a disk hangs.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
from collections import deque
from pathlib import Path

from asyncmon.protobuf.tfrecord import frame
from asyncmon.summary.event_queue import Entry, encode_entry
from asyncmon.summary.events import Event
from asyncmon.system.files import FileCalls

logger = logging.getLogger(__name__)

_numbers = itertools.count()  # no two files of one process have the same name, however soon they follow
_AT_ONCE = 100  # entries encoded between two writes: a write lets other threads run


class EventFile:
    """One event file: opened at the first write, whole records only, repaired after a failed write.

    What could not be written stays here and comes first at the next write. The directory is made if it
    is missing.
    """

    def __init__(self, directory: str, suffix: str, calls: FileCalls) -> None:
        self.directory = directory
        self.path: str | None = None
        self._suffix = suffix
        self._calls = calls
        self._descriptor: int | None = None
        self._length = 0  # of whole records
        self._entries: deque[Entry] = deque()
        self._encoded: list[bytes] = []
        self._new = False  # its name may not be on the disk yet
        self._abandoned = False
        self._lock = threading.Lock()

    @property
    def is_open(self) -> bool:
        """True between the first write and the end."""
        return self._descriptor is not None

    @property
    def unwritten(self) -> int:
        """How many events were passed that the disk has not taken."""
        return len(self._entries) + len(self._encoded)

    def usable(self) -> EventFile:
        """Return this, or its like where a write of this one may still hang."""
        return EventFile(self.directory, self._suffix, self._calls) if self._abandoned else self

    def take(self, entries: list[Entry]) -> None:
        """Keep entries for the next write. Never waits, so the event loop's thread may call it."""
        self._entries.extend(entries)

    def write(self, sync: bool, now: float) -> None:
        """Append what was taken; with ``sync`` it is on the disk when this returns.

        Args:
            now: seconds since 1970, for the name and the first record of a new file.

        Raises:
            OSError: the disk refused. The file ends with a whole record, and the rest is kept.
        """
        with self._lock:
            try:
                self._open_if_needed(now)
                self._append()
                if sync:
                    self._sync()
            except OSError as error:
                raise _named(
                    error, f"Events cannot be written to {self.path or self.directory!r}"
                ) from error
            finally:
                if self._abandoned:
                    self._close()

    def close(self) -> None:
        """Close the file. A later write opens a new one."""
        with self._lock:
            self._close()

    def abandon(self) -> None:
        """Close the file now or, where a write hangs, as soon as that is over. Does not wait."""
        self._abandoned = True  # first, so that a write that ends just now sees it
        if self._lock.acquire(blocking=False):
            try:
                self._close()
                self._abandoned = False
            finally:
                self._lock.release()

    def _append(self) -> None:
        while True:
            if self._encoded:
                self._write_out(b"".join(self._encoded))
                self._encoded.clear()
            if not self._entries:
                return
            for _ in range(min(_AT_ONCE, len(self._entries))):
                entry = self._entries.popleft()
                try:
                    data = encode_entry(entry)
                except Exception:
                    logger.exception(
                        "An event with tags %r cannot be encoded and is left out.", entry[2]
                    )
                else:
                    if data is not None:
                        self._encoded.append(frame(data))

    def _open_if_needed(self, now: float) -> None:
        if self._descriptor is not None and self.path is not None and not os.path.exists(self.path):
            logger.error("The event file %s has disappeared; a new one is begun.", self.path)
            self._close()
        if self._descriptor is None:
            self._calls.make_dirs(Path(self.directory))
        while self._descriptor is None:
            self.path = os.path.join(self.directory, _file_name(now, self._suffix))
            with contextlib.suppress(FileExistsError):  # a host of our name has our process number too
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self._descriptor = self._calls.open(Path(self.path), flags)
                self._length, self._new = 0, True
        if self._length == 0:
            self._write_out(
                frame(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
            )

    def _write_out(self, data: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None, "opened before anything is appended"
        try:
            self._calls.write_all(descriptor, data)
        except OSError:
            self._repair(descriptor)
            raise
        self._length += len(data)

    def _repair(self, descriptor: int) -> None:
        try:  # half a record at the end would hide all that follows from every reader
            self._calls.truncate(descriptor, self._length)
        except OSError:
            self._close()  # the next write begins a new file

    def _sync(self) -> None:
        if self._descriptor is None:
            return
        self._calls.fsync(self._descriptor)
        if self._new:  # its name must be on the disk too
            self._calls.sync_directory(Path(self.directory))
            self._new = False

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                self._calls.close(descriptor)
            except OSError as error:
                logger.warning("Closing the event file %s failed: %s", self.path, error)


def _file_name(now: float, suffix: str) -> str:
    # TensorBoard reads the files of a directory in the order of their names, and goes on only upwards.
    who = f"{socket.gethostname()}.{os.getpid()}.{next(_numbers):04d}"
    return f"events.out.tfevents.{int(now):010d}.{who}{suffix}"


def _named(error: OSError, what: str) -> OSError:
    # OSError picks the subclass by the number, so PermissionError stays PermissionError.
    return OSError(error.errno, f"{what}: {error.strerror or error}", error.filename)
