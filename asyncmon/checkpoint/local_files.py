"""Checkpoint files in a directory of this machine.

Relied on: a rename within a directory is atomic, and what was flushed (file and directory) is there
after a crash of the machine. POSIX local file systems promise both.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from asyncmon.checkpoint.directory_lock import DirectoryLock
from asyncmon.checkpoint.mapped_file import MappedFile
from asyncmon.checkpoint.os_errors import describe
from asyncmon.system import portable
from asyncmon.system.files import FileCalls, read_bytes


class LocalFiles:
    """A directory of this machine as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str, calls: FileCalls) -> None:
        self.directory = directory
        self._path = Path(directory)
        self._calls = calls

    @property
    def lock(self) -> DirectoryLock:
        return DirectoryLock.of(self.directory)

    async def read(self, name: str) -> bytes:
        with _no_such_file():
            return await read_bytes(self._path / name)

    def content(self, name: str) -> bytes:
        with _no_such_file():
            return (self._path / name).read_bytes()

    def names(self) -> list[str]:
        try:
            return sorted(self._calls.listdir(self._path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def mtime(self, name: str) -> float:
        return os.stat(self._path / name).st_mtime

    def fingerprint(self, names: Sequence[str]) -> Any:
        try:
            found = [os.stat(self._path / name) for name in names]
        except OSError:
            return None
        return tuple((stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in found)

    def describe(self) -> str:
        return describe(self._path)

    def open(self, name: str) -> MappedFile:
        return MappedFile(self._path / name)

    def is_read(self, name: str) -> bool:
        """Return true when a reader, in whatever process, holds its shared lock on a file."""
        try:
            descriptor = portable.open_file(self._path / name, os.O_RDONLY)
        except OSError:
            return False
        try:
            portable.lock(descriptor)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks: an open file stays readable
            return False
        finally:
            os.close(descriptor)
        return False

    def make(self) -> None:
        self._calls.make_dirs(self._path)

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        self._calls.write_file(self._path / name, data)

    def put(self, files: Mapping[str, bytes]) -> None:
        self._calls.put_files(self._path, files)

    def rename(self, name: str, new: str) -> None:
        self._calls.replace(self._path / name, self._path / new)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._calls.unlink(self._path / name)


@contextlib.contextmanager
def _no_such_file() -> Iterator[None]:
    """Raise FileNotFoundError where the directory is a file."""
    try:
        yield
    except NotADirectoryError as error:
        raise FileNotFoundError(*error.args) from error
