"""One writer a directory, shared by all who write there."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

from asyncmon.summary.writer import FileWriter

__all__ = ["FileWriterCache"]


@dataclass(slots=True)
class _Entry:
    writer: FileWriter
    users: int


class FileWriterCache:
    """Hands out one :class:`FileWriter` a directory, counted. TF1: ``tf.summary.FileWriterCache``.

    All hooks and services of one directory so share one event file. Whoever acquires releases; the last
    release writes ``STOP``, if a session was started, and closes. Directories are told apart by
    their real path, and each event loop has its own writers.

    Example::

        writer = FileWriterCache.acquire("logs/run1")
        writer.start(global_step=0)
        ...
        await FileWriterCache.release(writer)
    """

    _loops: ClassVar[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Entry]]] = (
        WeakKeyDictionary()
    )

    @classmethod
    def acquire(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of a directory; a new one if nobody holds it, or if it was closed.

        Raises:
            RuntimeError: no event loop is running.
        """
        entry = cls._entry(logdir)
        entry.users += 1
        return entry.writer

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of a directory without holding it, to add to it now. TF1: same name.

        Those who acquired it close it. Where nobody has, :meth:`clear` does; the end of the loop writes
        what is left.

        Raises:
            RuntimeError: no event loop is running.
        """
        return cls._entry(logdir).writer

    @classmethod
    async def release(cls, writer: FileWriter) -> None:
        """Give a writer back; the last one closes it.

        Raises:
            ValueError: the writer was not acquired here, or was released as often as acquired.
            OSError: closing failed; the writer is closed even so.
        """
        entries = cls._loops.get(asyncio.get_running_loop(), {})
        for path, entry in entries.items():
            if entry.writer is writer:
                entry.users -= 1
                if entry.users == 0:
                    del entries[path]
                    await writer.close()
                return
        if not writer.closed:
            raise ValueError(
                f"{writer!r} was not acquired from FileWriterCache, or was released already."
            )

    @classmethod
    def _entry(cls, logdir: str | os.PathLike[str]) -> _Entry:
        entries = cls._loops.setdefault(asyncio.get_running_loop(), {})
        path = os.path.realpath(logdir)
        entry = entries.get(path)
        if entry is None or entry.writer.closed:
            entry = entries[path] = _Entry(FileWriter(logdir), 0)
        return entry

    @classmethod
    async def clear(cls) -> None:
        """Close all writers of the running loop and forget them. TF1: same name."""
        entries = cls._loops.pop(asyncio.get_running_loop(), {})
        for entry in entries.values():
            await entry.writer.close()
