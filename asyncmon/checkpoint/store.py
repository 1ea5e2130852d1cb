"""The seam between checkpoints and where they lie: a local directory or an object store's prefix."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from asyncmon.checkpoint.directory_lock import DirectoryLock
from asyncmon.checkpoint.dtypes import Array


class Piece(NamedTuple):
    """Some bytes of a file, and the checksum of the bytes that were read."""

    data: Array
    crc32c: str


class DataFile(Protocol):
    """A tensor file that is open for reading: while it is, no retention deletes it."""

    name: str
    size: int

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """Return the bytes (uint8, read-only) of ranges (start, end) within the file."""

    def close(self) -> None:
        """End the reading. Arrays that were read stay valid. A second call does nothing."""


class Store(Protocol):
    """One directory of checkpoints. Names are those of files in it, never paths.

    All methods but :meth:`read` block: call them by :func:`~asyncmon.system.files.in_thread`. They
    raise :class:`OSError` as the system does.
    """

    directory: str

    @property
    def lock(self) -> DirectoryLock:
        """The lock of the directory, which all savers of this process share."""

    async def read(self, name: str) -> bytes:
        """Return a small file. Raises FileNotFoundError."""

    def content(self, name: str) -> bytes:
        """Return a small file, blocking. Raises FileNotFoundError."""

    def names(self) -> list[str]:
        """Return the names of the files. Where there is no directory there are none."""

    def mtime(self, name: str) -> float:
        """Return when a file was last modified, in seconds since 1970. Raises FileNotFoundError."""

    def fingerprint(self, names: Sequence[str]) -> Any:
        """Return a value that changes whenever one of these files does, or None if one is missing."""

    def describe(self) -> str:
        """Describe the directory, for an error message."""

    def open(self, name: str) -> DataFile:
        """Open a tensor file for reading. Raises FileNotFoundError."""

    def is_read(self, name: str) -> bool:
        """Return whether a reader has a file open."""

    def make(self) -> None:
        """Make the directory where it is missing."""

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        """Write a new file, durably but for its name in the directory; nothing of it on an error."""

    def put(self, files: Mapping[str, bytes]) -> None:
        """Put small files into their places, each whole, one after another, durably.

        Files written before are durable before the first one is in its place. After an error, some may
        be in their places.
        """

    def rename(self, name: str, new: str) -> None:
        """Rename a file. Raises FileNotFoundError."""

    def delete(self, name: str) -> None:
        """Delete a file. One that is not there is ignored."""


def replace_files(store: Store, files: Mapping[str, bytes]) -> None:
    """Write or replace small files durably, all of them or none. Blocking."""
    before = {name: _content(store, name) for name in files}
    try:
        store.put(files)
    except BaseException:
        with contextlib.suppress(OSError):
            for name, content in reversed(before.items()):  # the state file before the manifest
                if content is None:
                    store.delete(name)
                elif _content(store, name) != content:
                    store.put({name: content})
        raise


def _content(store: Store, name: str) -> bytes | None:
    try:
        return store.content(name)
    except FileNotFoundError:
        return None
