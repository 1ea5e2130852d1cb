"""The interface of directories with checkpoints, and local directories.

These rely on two promises of POSIX file systems: a rename within a directory is atomic, and flushed
files and directories survive a crash of the machine.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from asyncmon.checkpoint.os_errors import describe, is_environment
from asyncmon.system.files import FileCalls, in_thread, is_file_name, patiently


class Piece(NamedTuple):
    """Bytes of a file and the checksum of the bytes that were read."""

    data: NDArray[np.uint8]
    crc32c: str


class DataFile(Protocol):
    """A tensor file open for reading. No saver deletes it before it is closed."""

    name: str
    size: int

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Return the bytes (uint8, read-only) of ranges (start, end) of the file."""

    def close(self) -> None:
        """Close the file. Arrays stay valid. A second call does nothing."""


class Store(Protocol):
    """A directory of checkpoints. Names are names of its files, never paths.

    All methods block: call them in a thread. Errors are :class:`OSError`; one of an environment that
    may recover is distinguished from damage by :func:`~asyncmon.checkpoint.os_errors.is_environment`.
    """

    directory: str

    def content(self, name: str, begins: bytes = b"") -> bytes:
        """Return the content of a small file, or the first bytes of one that begins differently.

        Raises:
            FileNotFoundError: there is no such file.
        """

    def names(self) -> list[str]:
        """Return the names of all files. A missing directory has none."""

    def mtime(self, name: str) -> float:
        """Return a file's modification time in seconds since 1970. Raises FileNotFoundError."""

    def fingerprint(self, names: Sequence[str]) -> Any:
        """Return a value that changes with these files, or None if one is missing."""

    def describe(self) -> str:
        """Describe the directory, for an error message."""

    def open(self, name: str) -> DataFile:
        """Open a tensor file for reading. Raises FileNotFoundError."""

    def is_read(self, name: str) -> bool:
        """Return whether a reader has a file open."""

    def make(self) -> None:
        """Make the directory if it is missing."""

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write a new file and flush it, but not the directory. On an error it is removed."""

    def put(self, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        """Replace small files atomically and durably, one after another.

        Files written before become durable before the first replacement. An error may leave some
        replaced. Not ``durable``: a crash of the machine may lose them.
        """

    def rename(self, name: str, new: str) -> None:
        """Rename a file. Raises FileNotFoundError."""

    def delete(self, name: str) -> None:
        """Delete a file. A missing one is ignored."""


def replace_files(store: Store, files: Mapping[str, bytes], before: Mapping[str, bytes | None]) -> None:
    """Write or replace small files durably, all of them or none. Blocking.

    Args:
        store: the directory.
        files: the content of each, by name, in the order of writing.
        before: their present content; None for a file that does not exist.
    """
    try:
        store.put(files)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is raised
            for name, data in reversed(list(files.items())):  # the state file before the manifest
                content = before.get(name)
                if content is None:
                    store.delete(name)
                elif store.content(name) == data:  # replaced by this call, and not by hand
                    store.put({name: content})
        raise


_CHUNK = 1 << 20


class LocalFiles:
    """A local directory as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str, calls: FileCalls) -> None:
        self.directory = directory
        self._path = Path(directory)
        self._calls = calls

    def content(self, name: str, begins: bytes = b"") -> bytes:
        try:
            return self._calls.content(self._path / name, begins)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error

    def names(self) -> list[str]:
        try:
            return sorted(patiently(self._calls.listdir, self._path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mtime(self, name: str) -> float:
        return patiently(self._calls.stat, self._path / name).st_mtime

    def fingerprint(self, names: Sequence[str]) -> Any:
        try:
            found = [patiently(self._calls.stat, self._path / name) for name in names]
        except OSError:
            return None
        return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)

    def describe(self) -> str:
        return describe(self._path)

    def open(self, name: str) -> MappedFile:
        return patiently(MappedFile, self._at(name), self._calls)

    def is_read(self, name: str) -> bool:
        """Return whether a reader in any process holds its shared lock on a file."""
        try:
            descriptor = patiently(self._calls.open_regular, self._at(name))
        except OSError as error:
            return is_environment(error)  # it may be read: the next save tries again
        try:
            self._calls.lock(descriptor)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: an open file stays readable
            return False
        finally:
            self._calls.close_read(descriptor)
        return False

    def make(self) -> None:
        self._calls.make_dirs(self._path)

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        self._calls.write_file(self._at(name), data)

    def put(self, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        named = {self._at(name).name: data for name, data in files.items()}
        self._calls.put_files(self._path, named, durable=durable)

    def rename(self, name: str, new: str) -> None:
        self._calls.replace(self._at(name), self._at(new))
        self._calls.sync_directory(self._path)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._calls.unlink(self._at(name))

    def _at(self, name: str) -> Path:
        if not is_file_name(name):
            raise ValueError(f"{name!r} is no name of a file in {self.directory!r}.")
        return self._path / name


class MappedFile:
    """A tensor file mapped into memory: arrays are views of the page cache, not copies.

    Arrays stay valid after :meth:`close`.

    Raises:
        FileNotFoundError: there is no such file, or another process is deleting it.
    """

    def __init__(self, path: Path, calls: FileCalls) -> None:
        self.name = path.name
        self._path = path
        self._calls = calls
        self._descriptor = -1
        self._descriptor = calls.open_regular(path)
        try:
            self._share()
            self.size = calls.fstat(self._descriptor).st_size
            self._bytes = np.empty(0, np.uint8)
            if self.size:
                self._bytes = np.frombuffer(calls.map(self._descriptor), np.uint8)
        except BaseException:
            self.close()
            raise

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        return await in_thread(lambda: [self._piece(start, end) for start, end in ranges])

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        self._bytes = np.empty(0, np.uint8)
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                # else arrays in use would keep the lock by their mapping
                self._calls.unlock(descriptor)
            self._calls.close_read(descriptor)

    def __del__(self) -> None:
        self.close()

    def _share(self) -> None:
        # A shared flock prevents every process from deleting the open file.
        try:
            self._calls.lock(self._descriptor, shared=True)
        except BlockingIOError:
            raise FileNotFoundError(f"{str(self._path)!r} is being deleted") from None
        except OSError:
            return  # a file system without locks: an open file stays readable

    def _read_at(self, buffer: memoryview, position: int) -> int:
        try:
            return self._calls.read_at(self._descriptor, buffer, position)
        except OSError as error:
            if error.errno == errno.ESTALE:  # this descriptor stays stale
                self._reopen()
            error.filename = str(self._path)
            raise

    def _reopen(self) -> None:
        # A file of another content has other checksums.
        fresh = MappedFile(self._path, self._calls)
        if fresh.size == self.size:
            self._calls.close_read(self._descriptor)
            self._descriptor, fresh._descriptor = fresh._descriptor, -1
            self._bytes = fresh._bytes

    def _piece(self, start: int, end: int) -> Piece:
        # The checksum is computed from chunks that are read into a buffer: a read releases the GIL
        # while it waits for the disk, whereas a page fault in the mapping would block all threads.
        scratch = np.empty(min(_CHUNK, max(end - start, 1)), np.uint8)
        checksum = 0
        position = start
        while position < end:
            count = patiently(self._read_at, scratch[: end - position].data, position)
            if count == 0:
                break  # the file was truncated: its checksum will not match
            checksum = google_crc32c.extend(checksum, scratch[:count])
            position += count
        return Piece(self._bytes[start:end], f"{checksum:08x}")
