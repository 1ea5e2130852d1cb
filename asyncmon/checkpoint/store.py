"""The interface of local directories and object stores with checkpoints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


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

    def put(self, files: Mapping[str, bytes]) -> None:
        """Replace small files atomically and durably, one after another.

        Files written before become durable before the first replacement. An error may leave some
        replaced.
        """

    def rename(self, name: str, new: str) -> None:
        """Rename a file. Raises FileNotFoundError."""

    def delete(self, name: str) -> None:
        """Delete a file. A missing one is ignored."""


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
