"""One event writer a directory, shared by all hooks and services that write there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

from asyncmon.summary.writer import FileWriter


@dataclass(slots=True, eq=False)
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
    def write_soon(cls, logdir: str | os.PathLike[str]) -> None:
        """Let the writer of a directory, if there is one, begin to write what waits.

        Raises:
            RuntimeError: no event loop is running.
        """
        entry = cls._loops.get(asyncio.get_running_loop(), {}).get(os.path.realpath(logdir))
        if entry is not None:
            entry.writer.write_soon()

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


class SummaryWriter(Protocol):
    """What hooks ask of a writer. ``FileWriter`` and ``JsonlWriter`` have it."""

    def start(self, global_step: int | None = None) -> None:
        """Say that a session begins, having done ``global_step`` steps."""

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Add one number."""

    def add_summary(self, summary: Any, global_step: int | None = None) -> None:
        """Add a ``Summary`` or its bytes."""

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add the begin or the end of a session, or a checkpoint."""

    async def flush(self) -> None:
        """Wait until everything added so far is written."""


class SharedWriter:
    """One user's share of a writer, from ``open`` to ``close``: that of a directory, or a given one.

    All users of one directory share one event file; the last ``close`` writes ``STOP`` and closes it. A
    writer that was given stays open: its owner closes it.

    Args:
        output_dir: the directory to write to.
        summary_writer: the writer to use; ``output_dir`` is ignored then.

    Attributes:
        file_writer: the shared writer of the directory, for what only event files hold.
    """

    def __init__(
        self, output_dir: str | os.PathLike[str] | None, summary_writer: SummaryWriter | None
    ) -> None:
        self._output_dir = output_dir
        self._given = summary_writer
        self.file_writer: FileWriter | None = None

    @property
    def directory(self) -> str | None:
        """The directory of the event file, or None where the writer was given."""
        return (
            None if self._given is not None or self._output_dir is None else os.fspath(self._output_dir)
        )

    @property
    def writes(self) -> bool:
        """Whether there is anywhere to write to."""
        return self._given is not None or self._output_dir is not None

    @property
    def writer(self) -> SummaryWriter | None:
        """The writer, or None where there is none or :meth:`open` was not called."""
        return self._given if self._given is not None else self.file_writer

    def open(self) -> None:
        """Take hold of the writer, once. Nothing is on disk before the first event."""
        if self._given is None and self._output_dir is not None and self.file_writer is None:
            self.file_writer = FileWriterCache.acquire(self._output_dir)

    def start(self, global_step: int | None) -> None:
        """Open, and say at which step a session was created. Any number of hooks may say it."""
        self.open()
        if self.writer is not None:
            self.writer.start(global_step)

    def add_scalars(self, values: Mapping[str, float], global_step: int | None) -> None:
        """Add numbers by tag, if there is a writer."""
        if self.writer is not None:
            for tag, value in values.items():
                self.writer.add_scalar(tag, value, global_step)

    async def close(self) -> None:
        """Flush, and let go. A second call does nothing to a shared writer."""
        shared, self.file_writer = self.file_writer, None
        if shared is not None:
            await FileWriterCache.release(shared)
        elif self._given is not None:
            await self._given.flush()
