"""Event writers of hooks and services, which share the file of a directory."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from asyncmon.summary.events import SessionLog
from asyncmon.summary.logged import logged_values
from asyncmon.summary.sink_thread import CLOSE_SECS
from asyncmon.summary.writer import FileWriter
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.process_local import ProcessLocal

logger = logging.getLogger(__name__)


class FileWriterCache:
    """Keeps one :class:`FileWriter` per directory. TF1: ``tf.summary.FileWriterCache``.

    Directories are identified by their real path. Other writers of a directory write to the same file,
    those of hooks for example.

    Example::

        FileWriterCache.get("logs/run1").add_scalar("loss", 0.5, global_step=1)
        ...
        await FileWriterCache.clear()
    """

    _writers: ClassVar[ProcessLocal[dict[str, FileWriter]]] = ProcessLocal(dict)

    @classmethod
    def get(cls, logdir: str | os.PathLike[str]) -> FileWriter:
        """Return the writer of a directory; a new one if there is none or it is closed. TF1: same name.

        :meth:`clear` closes it. An open writer writes its pending events at the exit of the program.
        """
        writers, path = cls._writers.get(), os.path.realpath(logdir)
        if path not in writers or writers[path].closed:
            writers[path] = FileWriter(logdir)
        return writers[path]

    @classmethod
    async def clear(cls) -> None:
        """Close and remove all writers. TF1: same name."""
        writers = cls._writers.get()
        for path in list(writers):
            await writers.pop(path).close()


def writer_of_hook(logdir: str | os.PathLike[str]) -> FileWriter:
    """Return a writer of a directory that a full or hanging disk does not end or delay."""
    writer = FileWriter(logdir)
    writer._flushes = False
    return writer


class SummaryWriter(Protocol):
    """The writer interface that hooks use. ``FileWriter`` and ``JsonlWriter`` implement it."""

    def start(self, global_step: int | None = None) -> None:
        """Record the start of a session after ``global_step`` steps."""

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Add one number."""

    def add_summary(self, summary: Any, global_step: int | None = None) -> None:
        """Add a ``Summary`` or its bytes."""

    def add_session_log(self, session_log: Any, global_step: int | None = None) -> None:
        """Add the start or stop of a session, or a checkpoint."""

    async def flush(self) -> None:
        """Wait until all events added so far are written."""


class ValueRecorder(Protocol):
    """Gets the values that a hook writes, for the other sinks of its session."""

    def record(self, values: Mapping[str, Any], step: int | None, written: object = None) -> None:
        """Record values by tag.

        Args:
            written: what has them already, the real path of an event file's directory or a writer.
        """

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Log why values are left out, by tag."""

    def record_summary(self, summary: Any, step: int | None, written: object = None) -> None:
        """Record a ``Summary`` or its bytes, likewise."""


class SharedWriter:
    """The writer of one hook or service: one of a directory, or a given one.

    All writers of a directory share its file; the last ``close`` writes ``STOP`` and closes it. A given
    writer stays open for its owner. No method raises an ``OSError``: the failures of a disk are logged.

    Args:
        output_dir: the directory of the event file.
        summary_writer: the writer to use instead.

    Attributes:
        file_writer: the writer of the directory while it is open.
    """

    def __init__(
        self, output_dir: str | os.PathLike[str] | None, summary_writer: SummaryWriter | None
    ) -> None:
        self._output_dir = output_dir
        self._given = summary_writer
        self.file_writer: FileWriter | None = None
        self._recorder: ValueRecorder | None = None
        self._written: object = None  # the real path of the directory
        self._diagnostics = Diagnostics("The summaries")

    @property
    def directory(self) -> str | None:
        """The directory of the event file; None for a given writer."""
        return (
            None if self._given is not None or self._output_dir is None else os.fspath(self._output_dir)
        )

    @property
    def writes(self) -> bool:
        """Whether there is a directory or a writer."""
        return self._given is not None or self._output_dir is not None

    @property
    def writer(self) -> SummaryWriter | None:
        """The writer; None if there is none, or before :meth:`open`."""
        return self._given if self._given is not None else self.file_writer

    def open(self) -> None:
        """Make the writer, once. The file is not made before the first event."""
        if self._given is None and self._output_dir is not None and self.file_writer is None:
            self.file_writer = writer_of_hook(self._output_dir)

    def start(self, global_step: int | None, recorder: ValueRecorder | None = None) -> None:
        """Open, and write the start of a session. Several hooks may do so.

        Args:
            recorder: gets each scalar and each summary from now on, too.
        """
        self.open()
        self._recorder = recorder or self._recorder
        if self._written is None:
            writer = self.writer
            self._written = writer
            if isinstance(writer, FileWriter):
                self._written = os.path.realpath(writer.get_logdir())
        self._add(lambda writer: writer.start(global_step))

    def add_scalars(self, values: Mapping[str, Any], global_step: int | None) -> None:
        """Add values by tag to the recorder, and the scalars among them to the writer.

        One that cannot be logged is left out, with a warning of the recorder.
        """
        found, refused = logged_values(values)

        def add(writer: SummaryWriter) -> None:
            for tag, value in found.items():
                if isinstance(value, float):
                    writer.add_scalar(tag, value, global_step)

        self._add(add)
        if self._recorder is not None:
            self._recorder.refuse(refused)
            self._recorder.record(found, global_step, self._written)

    def add_summary(self, summary: Any, global_step: int | None) -> None:
        """Add a ``Summary`` or its bytes, likewise."""
        self._add(lambda writer: writer.add_summary(summary, global_step))
        if self._recorder is not None:
            self._recorder.record_summary(summary, global_step, self._written)

    def add_session_log(self, session_log: SessionLog, global_step: int | None) -> None:
        """Add the start or stop of a session, or a checkpoint, if there is a writer."""
        self._add(lambda writer: writer.add_session_log(session_log, global_step))

    def tolerated(self) -> AbstractContextManager[None]:
        """Log an ``OSError`` of the writer in a block, and suppress it."""
        return self._diagnostics.tolerated(repr(self.writer))

    def _add(self, add: Callable[[SummaryWriter], None]) -> None:
        if self.writer is not None:
            with self.tolerated():
                add(self.writer)

    async def close(self) -> None:
        """Close the writer of the directory, or flush a given one. May be called twice."""
        writer, shared, self.file_writer = self.writer, self.file_writer, None
        scope = asyncio.timeout(CLOSE_SECS)
        try:
            async with scope:
                if shared is not None:
                    with contextlib.suppress(OSError):  # its thread has logged it
                        await shared.close()
                elif self._given is not None:
                    with self.tolerated():
                        await self._given.flush()
        except TimeoutError:
            if not scope.expired():
                raise
            # A disk that hangs is left to the thread of the writer.
            logger.warning("%r did not write all events within %g s.", writer, CLOSE_SECS)
