"""Where hooks write events: a writer that was given, or the shared one of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from asyncmon.summary.writer_cache import FileWriterCache

if TYPE_CHECKING:
    import os

    from asyncmon.summary.writer import FileWriter

__all__ = ["HookWriter", "SummaryWriter"]


class SummaryWriter(Protocol):
    """What hooks ask of a writer. ``FileWriter`` and :class:`~asyncmon.hooks.JsonlWriter` have it."""

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


class HookWriter:
    """A hook's hold on its writer, from ``begin`` to ``cleanup``.

    All who hold the writer of one directory share one event file; the last to let go writes ``STOP``
    and closes it. A writer that was given belongs to whoever gave it: it is flushed and stays open.

    Args:
        output_dir: the directory to write to.
        summary_writer: the writer to use; ``output_dir`` is ignored then.
    """

    def __init__(
        self, output_dir: str | os.PathLike[str] | None, summary_writer: SummaryWriter | None
    ) -> None:
        self._output_dir = output_dir
        self._given = summary_writer
        self._shared: FileWriter | None = None

    @property
    def writes(self) -> bool:
        """Whether there is anywhere to write to."""
        return self._given is not None or self._output_dir is not None

    @property
    def writer(self) -> SummaryWriter | None:
        """The writer, or None where there is none or :meth:`open` was not called."""
        return self._given if self._given is not None else self._shared

    @property
    def file_writer(self) -> FileWriter | None:
        """The shared writer of the directory, for what only event files hold."""
        return self._shared

    def open(self) -> None:
        """Take hold of the writer. Nothing is on disk before the first event."""
        if self._given is None and self._output_dir is not None and self._shared is None:
            self._shared = FileWriterCache.acquire(self._output_dir)

    def start(self, global_step: int | None) -> None:
        """Say at which step a session was created. Any number of hooks may say it."""
        writer = self.writer
        if writer is not None:
            writer.start(global_step)

    async def close(self) -> None:
        """Flush, and let go. A second call does nothing to a shared writer."""
        shared, self._shared = self._shared, None
        if shared is not None:
            await FileWriterCache.release(shared)
        elif self._given is not None:
            await self._given.flush()
