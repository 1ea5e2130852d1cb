"""Write an event file into a directory."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import warnings
from collections.abc import Hashable, Mapping
from typing import Any, Self
from weakref import ref

from asyncmon.protobuf import delimited
from asyncmon.protobuf.graph_def import GraphDef
from asyncmon.protobuf.run_options import RunMetadata
from asyncmon.summary.entries import (
    GRAPH,
    META_GRAPH,
    SESSION_LOG,
    SUMMARY,
    Encode,
    as_is,
    scalar_fields,
    summary_tags,
)
from asyncmon.summary.event_file import EventFile
from asyncmon.summary.event_log import EventLog
from asyncmon.summary.events import Event, SessionLog, Summary
from asyncmon.summary.histogram import check_numbers
from asyncmon.summary.values import (
    HParam,
    batch_of_images,
    check_images,
    frozen_array,
    graph_field,
    histogram_field,
    hparams_summary,
    images_field,
    meta_graph_field,
    operations_of,
    run_field,
    scalar_number,
    summary_bytes,
    text_summary,
)
from asyncmon.system import clock
from asyncmon.system.files import FileCalls, system_calls
from asyncmon.system.urls import require_local

logger = logging.getLogger(__name__)

_NEVER = 1 << 63  # a step that is never reached


class FileWriter:
    """Writes events into one file of a directory, for TensorBoard. TF1: ``tf.summary.FileWriter``.

    The ``add_*`` methods put an event into a queue and do not block. A thread writes the queue after
    ``flush_secs``, or when ``max_queue`` events are pending, but then at most once a second. Written
    events survive a crash of the process, flushed ones a crash of the machine. No event loop is needed
    to add them.

    The file is made by ``async with``, by ``await open()`` or soon after the first event. :meth:`close`
    writes the remaining events. If the program exits without it, they are written within 5 seconds.

    If a write fails, its events are kept and written again, an incomplete record is removed from the
    file, and the error is logged once. ``open``, ``flush``, ``drain`` and ``close`` raise it. While a
    disk is full or hangs, 500,000 events are kept, then the oldest values are dropped. :attr:`dropped`
    and the scalar ``asyncmon/dropped_events`` count them. Session logs and graphs are always kept.

    All open writers of a directory in this process share one file and one queue, with the options of
    the first one, for any spelling of the path. So the ``START`` of a session never hides events
    that another writer added before it. The last one to be closed closes the file; the others flush it.
    Writers in other threads and event loops may share it, too. A second process should write to a
    directory of its own: it is warned.

    Args:
        logdir: the directory; made if it is missing.
        graph: the first event of the file, see :meth:`add_graph`.
        max_queue: the number of pending events at which they are written.
        flush_secs: the longest time in seconds that an event is pending.
        graph_def: a ``GraphDef``, serialized or not, instead of ``graph``.
        filename_suffix: the end of the file's name.
        session: must be None: events are not written by operations of a graph.
        calls: the system calls to write with.

    Raises:
        TypeError, ValueError: an argument is invalid. The directory is not checked before it is opened.

    Example::

        async with FileWriter("logs/run1") as writer:
            for step in range(1000):
                writer.add_scalar("loss", 1 / (step + 1), step)
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        graph: Any = None,
        max_queue: int = 10,
        flush_secs: float = 2.0,
        graph_def: GraphDef | bytes | None = None,
        filename_suffix: str | None = None,
        session: Any = None,
        *,
        calls: FileCalls | None = None,
    ) -> None:
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        if session is not None:
            raise ValueError(
                f"session={session!r} was passed; expected None: a writer needs no session."
            )
        if flush_secs < 0:
            raise ValueError(f"flush_secs={flush_secs!r} was passed; expected 0 or more seconds.")
        self._logdir = os.fspath(logdir)
        if not self._logdir:
            raise ValueError(f"logdir={logdir!r} was passed; expected the path of a directory.")
        require_local(self._logdir, "Event files")
        if max_queue < 1:
            raise ValueError(f"max_queue={max_queue!r} was passed; expected 1 or more.")
        self._directory = os.path.abspath(self._logdir)
        self._max_queue = max_queue
        self._flushes = True  # when it is closed before writers that record the session
        suffix, calls = filename_suffix or "", calls or system_calls.get()

        def make(path: str) -> EventLog:
            return EventLog(path, EventFile(self._directory, suffix, calls), max_queue, flush_secs)

        self._make = make
        self._log: EventLog | None = None  # while open
        self._left: EventLog | None = None  # the log of the last close
        self._ended: EventLog | None = None  # the log that this writer has closed
        self._closed = False
        given = graph_def if graph is None else graph
        self._first = None if given is None else self._graph_entry(given)

    @property
    def dropped(self) -> int:
        """The number of events that were dropped."""
        log = self._log or self._left
        return 0 if log is None else log.sink.dropped

    @property
    def closed(self) -> bool:
        """Whether the writer is closed and not reopened."""
        return self._closed

    @property
    def path(self) -> str | None:
        """The path of the event file, once it is open."""
        log = self._log or self._left
        return None if log is None else log.file.path

    def get_logdir(self) -> str:
        """Return the ``logdir`` argument. TF1: same name."""
        return self._logdir

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Add one number, a Python or numpy scalar, which is stored as float32."""
        self._put(tag, scalar_number(tag, value), global_step, scalar_fields)

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Add the distribution of numbers of any shape.

        The histogram is computed in the writer's thread, from a copy unless the array is read-only. An
        array with NaN or infinity is skipped, with one warning per tag. TypeError if the values are no
        real numbers.
        """
        array = frozen_array(values)
        check_numbers(array.dtype)
        self._put(tag, array, global_step, histogram_field)

    def add_image(
        self, tag: str, image: Any, global_step: int | None = None, max_outputs: int = 3
    ) -> None:
        """Add an image ``[height, width]`` or ``[height, width, channels]``, or a batch of them.

        The images are encoded as in :func:`~asyncmon.summary.image`, in the writer's thread. The tags
        of a batch are ``tag/image/0`` and so on; ``max_outputs`` is the largest number of its images.

        Raises:
            TypeError, ValueError: the dtype or the shape is not supported.
        """
        array = frozen_array(image)
        images = batch_of_images(array)
        check_images(tag, images.shape, images.dtype)
        limit = max_outputs if array.ndim == 4 else 0
        self._put(tag, (images, limit), global_step, images_field)

    def add_text(self, tag: str, text: Any, global_step: int | None = None) -> None:
        """Add a string, rendered as Markdown, or nested lists of strings, rendered as a table."""
        self._put(tag, delimited(SUMMARY, text_summary(tag, text)), global_step)

    def add_hparams(
        self, hparams: Mapping[str, HParam], metrics: Mapping[str, float] | None = None
    ) -> None:
        """Add the hyperparameters of this run, for TensorBoard's HParams page.

        ``hparams`` are bools, numbers or strings by name, TypeError for others. ``metrics`` are added
        as scalars. TensorBoard uses all scalars of the run as metrics; others need not be repeated.
        """
        summary = hparams_summary(hparams, clock.wall())
        self._put(None, delimited(SUMMARY, summary), None)
        for tag, value in (metrics or {}).items():
            self.add_scalar(tag, value)

    def add_summary(self, summary: Summary | bytes, global_step: int | None = None) -> None:
        """Add a :class:`Summary`, or the value of a summary op. TF1: same name.

        TypeError for another argument, ValueError for other bytes.
        """
        data = summary_bytes(summary)
        tags = summary_tags(data)
        if tags:
            self._put(tags, delimited(SUMMARY, data), global_step)

    def add_event(self, event: Event) -> None:
        """Add an event with its own time and step. TF1: same name."""
        if not isinstance(event, Event):
            raise TypeError(f"An Event was expected, not {type(event).__name__}: {event!r}.")
        content = Event.FromString(event.SerializeToString())
        content.ClearField("wall_time")
        content.ClearField("step")
        what = content.SerializeToString()
        log = self._attached()
        if log is not None:
            entry = event.wall_time, log.step(event.step), None, what, as_is
            log.put(entry)
            log.session(self, event.session_log, event.step)

    def add_session_log(self, session_log: SessionLog, global_step: int | None = None) -> None:
        """Add the start or stop of a session, or a checkpoint. TF1: same name.

        The step of a ``START`` is raised if it would discard events that were added before it.
        """
        if not isinstance(session_log, SessionLog):
            raise TypeError(f"A SessionLog was expected, not {type(session_log).__name__}.")
        log = self._attached()
        if log is not None:
            if session_log.status == SessionLog.START:
                global_step = log.start_step(global_step)
            self._put(None, delimited(SESSION_LOG, session_log.SerializeToString()), global_step)
            log.session(self, session_log, global_step)

    def start(self, global_step: int | None = None) -> None:
        """Record the start of a session after ``global_step`` steps, once for all callers.

        Adds ``START`` with the next step, or a later one that discards no event of this run. It is
        added again after a recovery to an earlier step, so that TensorBoard discards the values of the
        lost steps. The last writer that recorded a start adds ``STOP`` when it is closed.
        """
        log, first = self._attached(), 0 if global_step is None else int(global_step) + 1
        if log is None:
            return
        if log.needs_start(first if global_step is not None else _NEVER):
            self.add_session_log(SessionLog(status=SessionLog.START), first)
        log.record_session(self)

    def add_graph(
        self, graph: Any = None, global_step: int | None = None, graph_def: Any = None
    ) -> None:
        """Add a graph for TensorBoard's graph page, unless it was the last one. TF1: same name.

        ``graph``, in TF1 also ``graph_def``, is an object with ``get_operations()`` (see
        :mod:`asyncmon.protobuf.graph_def`), whose current operations are encoded in the writer's
        thread; or a ``GraphDef``, serialized or not. TypeError for others, ValueError for both.
        """
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        self._add_graph(self._graph_entry(graph_def if graph is None else graph), global_step)

    def add_meta_graph(self, meta_graph_def: Any, global_step: int | None = None) -> None:
        """Add a serialized ``MetaGraphDef``, or that of a graph. TF1: same name."""
        if isinstance(meta_graph_def, bytes):
            self._put(None, delimited(META_GRAPH, meta_graph_def), global_step)
        else:
            self._put(None, operations_of(meta_graph_def), global_step, meta_graph_field)

    def add_run_metadata(
        self, run_metadata: RunMetadata | bytes, tag: str, global_step: int | None = None
    ) -> None:
        """Add the times of a traced step, with its name on TensorBoard's graph page. TF1: same name.

        ``run_metadata`` is the ``am.graph.RunMetadata`` of the run, or a serialized one. ValueError if
        the tag was used already.
        """
        log = self._attached()
        if log is None:
            return
        if tag in log.run_tags:
            raise ValueError("The provided tag was already used for this event type")
        # the caller may pass the object to the next run, which overwrites it
        nodes = run_metadata if isinstance(run_metadata, bytes) else tuple(run_metadata.nodes)
        self._put(None, (tag, nodes), global_step, run_field)
        log.run_tags.add(tag)

    async def open(self) -> None:
        """Make the directory and the file. A second call does nothing.

        Raises:
            OSError: the directory or the file cannot be made; the message names it.
        """
        self._closed = False
        log = self._attached()
        assert log is not None, "the writer is not closed"
        try:
            await log.sink.call(log.file.open, clock.wall())
        except BaseException:
            log.sink.rest()  # the caller does not close a writer that failed to open
            raise

    async def flush(self) -> None:
        """Wait until all events added so far are on the disk (fsync).

        Raises:
            OSError: a write failed. The events are kept and written again.
        """
        is_closing = self._closed and self._left is not None and self._left is not self._ended
        log = self._left if is_closing else self._attached()
        if log is not None:
            await log.sink.flush()

    async def drain(self) -> None:
        """Wait until no more than ``max_queue`` events are pending. Raises as :meth:`flush`."""
        log = self._log or self._left
        while log is not None and len(log.sink) > self._max_queue:
            await log.sink.flush(sync=False)

    async def close(self) -> None:
        """Write the pending events, and ``STOP`` if this writer started a session, and close the file.

        The file stays open for other writers of the directory. Closes even if it fails or is cancelled;
        a cancelled call does not wait for the disk. A second call does nothing. Later ``add_*`` calls
        only warn.

        Raises:
            OSError: a write failed. A note has the number of lost events.
        """
        if not self._closed:
            log = self._log if self._first is None else self._attached()
            self._closed, self._left, self._log = True, log, None
            if log is not None:
                log.leave(self)
        log = self._left
        if log is not None and not log.is_shared:
            if log is not self._ended:
                try:
                    await log.sink.close()
                except asyncio.CancelledError:
                    if lost := log.sink.behind:
                        logger.error(
                            "The disk of %r hangs; up to %d events are lost there.",
                            self._directory,
                            lost,
                        )
                    raise
                finally:
                    self._ended = log
        elif log is not None and (self._flushes or not log.is_recorded):
            try:
                await log.sink.flush()
            finally:
                self._ended = log

    async def reopen(self) -> None:
        """Open again after :meth:`close`. Does nothing if the writer is open. TF1: same name.

        A new file is started, unless the directory has another open writer.
        """
        await self.open()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _put(
        self, tags: Hashable | None, payload: Any, global_step: int | None, encode: Encode = as_is
    ) -> None:
        log = self._log if self._log is not None else self._attached()
        if log is not None:
            log.put((clock.wall(), log.step(global_step), tags, payload, encode))

    def _attached(self) -> EventLog | None:
        """Return the log of the directory, which is joined at the first call; None after a close."""
        if self._closed:
            _warn_closed()
        elif self._log is None:
            self._left = None
            self._log = EventLog.join(self, self._directory, self._make)
            if self._first is not None:
                first, self._first = self._first, None
                self._add_graph(first, None)
        return self._log

    def _graph_entry(self, graph: Any) -> tuple[Any, Encode, tuple[Any, int] | None]:
        """Return the payload of a graph, its encoder and its identity (None for a serialized one)."""
        if isinstance(graph, GraphDef):
            graph = graph.SerializeToString()
        if isinstance(graph, bytes):
            return delimited(GRAPH, graph), as_is, None
        operations = operations_of(graph)  # a snapshot: the graph may grow before it is encoded
        return operations, graph_field, (_reference(graph), len(operations))

    def _add_graph(
        self, given: tuple[Any, Encode, tuple[Any, int] | None], global_step: int | None
    ) -> None:
        payload, encode, identity = given
        log = self._attached()
        if log is not None and (identity is None or identity != log.graph):
            self._put(None, payload, global_step, encode)
            log.graph = identity

    def __repr__(self) -> str:
        state = "closed" if self._closed else "new" if self._log is None else "open"
        return f"<FileWriter {self._logdir!r}, {state}>"


def _warn_closed() -> None:
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("asyncmon.summary."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(
        "Attempting to use a closed FileWriter. The operation will be a noop unless the FileWriter "
        "is explicitly reopened.",
        UserWarning,
        stacklevel=depth,  # the first caller outside of this package
    )


def _reference(graph: Any) -> Any:
    try:
        return ref(graph)
    except TypeError:  # no weak references
        return graph
