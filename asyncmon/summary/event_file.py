"""Append events to a file. The methods block, and run in the thread of a sink.

One call encodes, writes and syncs a batch, as each further call would wait for the GIL again beside a
loop of steps.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import socket
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from asyncmon.protobuf.tfrecord import frame
from asyncmon.summary.entries import Entry, encode_entry
from asyncmon.summary.events import Event
from asyncmon.system import clock, portable
from asyncmon.system.diagnostics import free_space
from asyncmon.system.files import FileCalls

logger = logging.getLogger(__name__)

_numbers = itertools.count()  # makes the names of this process's files unique
_EVENTS = ".tfevents."
_PREFIX = f"events.out{_EVENTS}"
_AT_ONCE = 100  # entries encoded between two writes; a write releases the GIL


class EventFile:
    """One event file, opened at the first write and truncated to whole records after a failed one."""

    #   write() --> _entries --encode--> _encoded --> the file, whole records of _length bytes
    #
    #   A failed write truncates the file to _length, and keeps the other two for the next one.

    def __init__(self, directory: str, suffix: str, calls: FileCalls) -> None:
        self.directory = directory
        self.path: str | None = None
        self._place = Path(os.path.realpath(directory))  # another link moves no file
        self._suffix = suffix
        self._calls = calls
        self._descriptor: int | None = None
        self._length = 0
        self._entries: deque[Entry] = deque()
        self._encoded: list[bytes] = []
        self._new = False  # whether the directory is not synced yet
        self._lock = threading.Lock()

    @property
    def unwritten(self) -> int:
        """The number of events of a failed write."""
        return len(self._entries) + len(self._encoded)

    def progress(self) -> tuple[dict[str, int] | None, list[Entry | bytes]]:
        """Return the bytes of whole records by the file's name, and the kept events that follow.

        None instead of the bytes while a write is in progress. Does not block.
        """
        if not self._lock.acquire(blocking=False):
            return None, []
        try:
            written = {} if self.path is None else {os.path.basename(self.path): self._length}
            return written, [*(record[12:-4] for record in self._encoded), *self._entries]
        finally:
            self._lock.release()

    def open(self, now: float) -> None:
        """Make the directory and the file, if it is not open.

        Args:
            now: seconds since 1970, for the name and the first record.
        """
        with self._lock, self._named_errors():
            self._open_if_needed(now)

    def write(self, records: list[Entry], sync: bool) -> None:
        """Write entries after those of a failed write; with ``sync``, flush them to the disk.

        Raises:
            OSError: the write failed. The file ends with a whole record; the other entries are kept.
        """
        with self._lock, self._named_errors():
            self._entries.extend(records)
            self._open_if_needed(self._entries[0][0] if self._entries else clock.wall())
            self._append()
            if sync:
                self._sync()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _named(error, self.path or self.directory) from error

    def close(self) -> None:
        """Close the file. A later write opens a new one."""
        with self._lock:
            self._close()

    def forget(self) -> None:
        """Close the descriptor that this child process inherited. The file is the parent's."""
        self._lock = threading.Lock()  # a thread of the parent may hold it
        self._entries.clear()
        self._encoded.clear()
        self._close()
        self.path, self._length = None, 0

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
        if self._descriptor is not None and not self._calls.exists(Path(self.path or "")):
            logger.error("The event file %s has disappeared; a new one is begun.", self.path)
            self._close()
        if self._descriptor is None:
            self._calls.make_dirs(self._place)
        while self._descriptor is None:
            others: list[str] = []
            with contextlib.suppress(OSError):  # a directory may be writable and not readable
                others = [name for name in self._calls.listdir(self._place) if _EVENTS in name]
            self.path = os.path.join(self._place, _file_name(now, self._suffix, others))
            with contextlib.suppress(FileExistsError):  # another host may have the same name and pid
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                self._descriptor = self._calls.open(Path(self.path), flags)
                self._length, self._new = 0, True
                self._warn_of(others)
        if self._length == 0:
            self._write_out(
                frame(Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
            )

    def _warn_of(self, others: list[str]) -> None:
        """Lock the new file, and warn if another process holds the lock of one of the others."""
        assert self._descriptor is not None, "it was opened"
        with contextlib.suppress(OSError):  # a file system without locks
            self._calls.lock(self._descriptor)
        for name in others:
            if _process() not in name and self._is_locked(name):
                logger.warning(
                    "Another process writes events to %r, into %s. Readers take both for one run, and "
                    "a START of one hides events of the other. Give each process its own directory.",
                    self.directory,
                    name,
                )
                return

    def _is_locked(self, name: str) -> bool:
        path = self._place / name
        try:
            descriptor = self._calls.open(path, os.O_RDONLY | portable.NO_WAIT | portable.NO_FOLLOW)
        except OSError:
            return False
        try:
            self._calls.lock(descriptor, shared=True)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._calls.close(descriptor)
        return False

    def _write_out(self, data: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None, "opened by _open_if_needed"
        try:
            self._calls.write_all(descriptor, data)
        except OSError:
            try:  # readers stop at an incomplete record, and would miss all later ones
                self._calls.truncate(descriptor, self._length)
            except OSError:
                self._close()  # the next write opens a new file
            raise
        self._length += len(data)

    def _sync(self) -> None:
        if self._descriptor is None:
            return
        self._calls.fsync(self._descriptor)
        if self._new:  # its directory entry must be durable, too
            self._calls.sync_directory(self._place)
            self._new = False

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                self._calls.close(descriptor)
            except OSError as error:
                logger.warning("Closing the event file %s failed: %s", self.path, error)


def _file_name(now: float, suffix: str, others: list[str]) -> str:
    # TensorBoard reads files in the order of their names, and never returns to an earlier one. Another
    # process may have made one in the same second, or with a clock that is ahead.
    secs, name = int(now), f"{_process()}{next(_numbers):04d}{suffix}"
    last = max((other for other in others if other.startswith(_PREFIX)), default="")
    if f"{_PREFIX}{secs:010d}{name}" < last and (found := re.match(r"\d+", last[len(_PREFIX) :])):
        secs = int(found[0]) + 1
    return f"{_PREFIX}{secs:010d}{name}"


def next_number() -> int:
    """Return a number between those of this process's earlier files and those of its later ones."""
    return next(_numbers)


def number_of(name: str) -> int | None:
    """Return the number of a file of this process, None for a file of another one."""
    _, own, rest = name.partition(_process())
    found = re.match(r"\d+", rest) if own else None
    return None if found is None else int(found[0])


def _process() -> str:
    return f".{socket.gethostname()}.{os.getpid()}."


def _named(error: OSError, path: str) -> OSError:
    # OSError() returns the subclass of the number: a PermissionError stays one.
    problem = f"{error.strerror or error} ({free_space(path)})"
    return OSError(error.errno, f"Events cannot be written to {path!r}: {problem}", error.filename)
