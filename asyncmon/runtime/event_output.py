"""Where a supervisor writes events: a writer that was given, or the shared one of its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon import files
from asyncmon.summary import FileWriterCache, SessionLog
from asyncmon.summary.graph_def import write_graph_text

if TYPE_CHECKING:
    from asyncmon.summary import FileWriter

__all__ = ["EventOutput"]


class EventOutput:
    """One writer, open from a session's preparation to the stop, or over several of them.

    Args:
        logdir: whose shared writer to use; also where ``graph.pbtxt`` goes. None: nowhere.
        given: a writer to use instead.
        shared: whether to use that of ``logdir`` where none was given.
        graph: what to write down once for each file: anything with ``get_operations()``.
    """

    def __init__(self, logdir: str | None, given: Any, shared: bool, graph: Any) -> None:
        self._logdir = logdir
        self._given = given
        self._shared: FileWriter | None = None
        self._shares = shared and logdir is not None and given is None
        self._graph = graph if hasattr(graph, "get_operations") else None
        self._graph_added = False
        self._started = False

    @property
    def writer(self) -> Any:
        """The writer, or None where there is none.

        Raises:
            RuntimeError: it is that of the directory, and no event loop is running yet.
        """
        if self._shares and (self._shared is None or self._shared.closed):
            assert self._logdir is not None
            self._shared = FileWriterCache.acquire(self._logdir)
        return self._shared if self._shares else self._given

    async def open(self) -> None:
        """Begin a new file if the writer was closed."""
        reopen = getattr(self.writer, "reopen", None)
        if reopen is not None:
            await reopen()

    async def add_graph(self) -> None:
        """Write the graph, once for each file, and as text beside it."""
        if self._graph is None or self._graph_added:
            return
        self._graph_added = True
        if self._logdir is not None:
            await files.in_thread(write_graph_text, self._logdir, self._graph.get_operations())
        if self.writer is not None:
            self.writer.add_graph(self._graph)

    def start(self, step: int) -> None:
        """Say that a session begins at a step."""
        if self.writer is not None:
            self.writer.add_session_log(SessionLog(status=SessionLog.START), step)
            self._started = True

    async def close(self) -> None:
        """Say that the session ends, and close. A second call does nothing."""
        writer = self._shared if self._shares else self._given
        if writer is None or getattr(writer, "closed", False):
            return
        if not self._started:  # else closing says so
            writer.add_session_log(SessionLog(status=SessionLog.STOP))
        self._graph_added = self._started = False
        if self._shares:
            self._shared = None
            await FileWriterCache.release(writer)
        else:
            await writer.close()
