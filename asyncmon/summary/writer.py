"""The writer of event files, for one directory."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from typing import Any, Self
from weakref import ref

from asyncmon.protobuf import delimited
from asyncmon.protobuf.graph_def import GraphDef
from asyncmon.protobuf.run_options import RunMetadata
from asyncmon.summary.event_file import EventFile
from asyncmon.summary.event_queue import (
    GRAPH,
    META_GRAPH,
    SESSION_LOG,
    SUMMARY,
    Backlog,
    Encode,
    Entry,
    Policy,
    as_is,
    scalar_fields,
    summary_tags,
)
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
    serialized,
    summary_bytes,
    text_summary,
)
from asyncmon.summary.writer_task import Pump, State
from asyncmon.system import clock
from asyncmon.system.files import FileCalls

_CALLS = FileCalls()


class FileWriter:
    """Writes events into one file of a directory, for TensorBoard. TF1: ``tf.summary.FileWriter``.

    ``add_*`` are plain calls: they put an event into a queue and never touch the disk. A task of the
    writer takes them from there, when ``max_queue`` wait (at most once a second) or one has waited
    ``flush_secs``, and writes whole records in a worker thread; what is written survives the death of
    the process.

    Construction only remembers. The file is made by ``async with``, by ``await open()`` or soon after
    the first event; what is added before an event loop runs waits for one. ``close`` writes what is
    left; a loop that ends without it is given a moment to do so.

    If the disk refuses, nothing is lost: the events are kept and tried again, the file is repaired if a
    record was cut, and the error is logged. It is raised by the next ``flush``, ``drain`` or ``close``
    and, with policy ``"block"``, by the next ``add_*`` (whose event is not taken then); once it was
    raised the writer goes on, and a next failure is raised again.

    Args:
        logdir: the directory; made if it is missing.
        graph: a graph to begin the file with, as :meth:`add_graph` takes it.
        max_queue: how many events wait at most before they are written, and, while the disk is
            busy, before ``policy`` decides.
        flush_secs: how many seconds an event waits at most before it is written.
        graph_def: a ``GraphDef``, serialized or not, to begin the file with, instead of ``graph``.
        filename_suffix: the end of the file's name.
        session: must be None: events are not written by operations of a graph.
        policy: what to do with events when the disk is behind. ``"block"`` keeps them all, and
            ``await writer.drain()`` waits until no more than ``max_queue`` wait; ``"drop_oldest"``
            drops the oldest values; ``"coalesce"`` keeps the newest of each tag. :attr:`dropped`
            counts, and the scalar ``asyncmon/dropped_events`` shows, what was lost. Session logs and
            graphs are always kept.
        calls: the system calls the file is written with.

    Raises:
        TypeError, ValueError: an argument that cannot be. The directory is looked at when it is opened.

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
        policy: Policy = "block",
        calls: FileCalls = _CALLS,
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
        file = EventFile(os.path.abspath(self._logdir), filename_suffix or "", calls)
        self._backlog = Backlog(policy, max_queue)
        self._pump = Pump(file, self._backlog, flush_secs, report=policy == "block")
        self._run_tags: set[str] = set()
        self._graph: tuple[Any, int] | None = None  # the last one, and how many nodes it had
        self._started = False
        self._last_step = -1  # the greatest one since the last START
        for given in (graph, graph_def):
            if given is not None:
                entry, self._graph = self._graph_entry(given, None)
                self._backlog.put(entry)

    @property
    def dropped(self) -> int:
        """How many events a dropping policy has cost so far."""
        return self._backlog.dropped

    @property
    def closed(self) -> bool:
        """True after :meth:`close`, until :meth:`reopen`."""
        return self._pump.state in (State.CLOSING, State.CLOSED)

    @property
    def path(self) -> str | None:
        """The event file, once it is open."""
        return self._pump.path

    def get_logdir(self) -> str:
        """Return the directory, as it was given. TF1: same name."""
        return self._logdir

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        """Add one number, a Python or numpy scalar; stored as float32."""
        self._pump.put(
            (clock.wall(), self._step(global_step), tag, scalar_number(tag, value), scalar_fields)
        )

    def add_histogram(self, tag: str, values: Any, global_step: int | None = None) -> None:
        """Add the distribution of numbers of any shape.

        It is computed in the writer's thread, from a copy, unless the array is one that nobody can
        write to. NaN or an infinity among the numbers leaves it out, with one warning a tag.

        Raises:
            TypeError: these are no real numbers.
        """
        array = frozen_array(values)
        check_numbers(array.dtype)
        self._put(tag, array, global_step, histogram_field)

    def add_image(
        self, tag: str, image: Any, global_step: int | None = None, max_outputs: int = 3
    ) -> None:
        """Add an image, as a PNG that is made in the writer's thread.

        Args:
            tag: the tag; those of a batch are ``tag/image/0`` and so on, as TF1's op has them.
            image: uint8, or floats, which are scaled (see
                :func:`~asyncmon.summary.media.to_pixels`), of shape ``[height, width]``,
                ``[height, width, channels]`` or, a batch,
                ``[n, height, width, channels]``; 1, 3 or 4 channels.
            global_step: the step.
            max_outputs: how many of a batch are written.

        Raises:
            TypeError, ValueError: the dtype or the shape is another one.
        """
        array = frozen_array(image)
        images = batch_of_images(array)
        check_images(tag, images.shape, images.dtype)
        limit = max_outputs if array.ndim == 4 else 0
        self._put(tag, (images, limit), global_step, images_field)

    def add_text(self, tag: str, text: Any, global_step: int | None = None) -> None:
        """Add a string, which TensorBoard renders as Markdown, or nested lists of strings, a table."""
        self._put(tag, delimited(SUMMARY, text_summary(tag, text)), global_step)

    def add_hparams(
        self, hparams: Mapping[str, HParam], metrics: Mapping[str, float] | None = None
    ) -> None:
        """Add the hyperparameters of this run, for TensorBoard's HParams page.

        Args:
            hparams: by name; bools, numbers or strings.
            metrics: the run's results by tag, added as scalars. Every scalar of the run is a metric
                there, so this is for what is not added anyway.

        Raises:
            TypeError: a value is none of these.
        """
        summary = hparams_summary(hparams, clock.wall())
        self._put(None, delimited(SUMMARY, summary), None)
        for tag, value in (metrics or {}).items():
            self.add_scalar(tag, value)

    def add_summary(self, summary: Summary | bytes, global_step: int | None = None) -> None:
        """Add a :class:`Summary`, or the bytes that running a summary op returned. TF1: same name.

        Raises:
            TypeError: something else was passed, for example a str.
            ValueError: the bytes are no summary.
        """
        data = summary_bytes(summary)
        tags = summary_tags(data)
        if tags:
            self._put(tags, delimited(SUMMARY, data), global_step)

    def add_event(self, event: Event) -> None:
        """Add an event as it is, with its own time and step. TF1: same name."""
        if not isinstance(event, Event):
            raise TypeError(f"An Event was expected, not {type(event).__name__}: {event!r}.")
        content = Event.FromString(event.SerializeToString())
        content.ClearField("wall_time")
        content.ClearField("step")
        what = content.SerializeToString()
        self._pump.put((event.wall_time, self._step(event.step), None, what, as_is))
        self._note(event.session_log, event.step)

    def add_session_log(self, session_log: SessionLog, global_step: int | None = None) -> None:
        """Add the begin or the end of a session, or a checkpoint. TF1: same name."""
        if not isinstance(session_log, SessionLog):
            raise TypeError(f"A SessionLog was expected, not {type(session_log).__name__}.")
        self._put(None, delimited(SESSION_LOG, session_log.SerializeToString()), global_step)
        self._note(session_log, global_step)

    def start(self, global_step: int | None = None) -> None:
        """Say that a session begins, having done ``global_step`` steps. Any number of callers may.

        Writes ``START``, with the step that comes next, once; and once more when the session begins
        anew at an earlier step than was written since, after a recovery: TensorBoard then forgets what
        the lost steps wrote.
        """
        first = 0 if global_step is None else int(global_step) + 1
        if not self._started or (global_step is not None and self._last_step >= first):
            self.add_session_log(SessionLog(status=SessionLog.START), first)

    def add_graph(
        self, graph: Any = None, global_step: int | None = None, graph_def: Any = None
    ) -> None:
        """Add a graph, for TensorBoard's graph page; the same one only once. TF1: same name.

        Args:
            graph: an object with ``get_operations()`` (see :mod:`asyncmon.protobuf.graph_def`), taken
                as it is now and encoded in the writer's thread; or a ``GraphDef``, serialized or not.
            global_step: the step the event belongs to.
            graph_def: the graph, by TF1's older name.

        Raises:
            TypeError: it is neither.
            ValueError: both are given.
        """
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        graph = graph_def if graph is None else graph
        entry, graph_as_it_is = self._graph_entry(graph, global_step)
        if graph_as_it_is is None or graph_as_it_is != self._graph:
            self._pump.put(entry)
            self._graph = graph_as_it_is

    def add_meta_graph(self, meta_graph_def: Any, global_step: int | None = None) -> None:
        """Add a serialized ``MetaGraphDef``, or a graph, which becomes one. TF1: same name."""
        if isinstance(meta_graph_def, bytes):
            self._put(None, delimited(META_GRAPH, meta_graph_def), global_step)
        else:
            self._put(None, operations_of(meta_graph_def), global_step, meta_graph_field)

    def add_run_metadata(
        self, run_metadata: RunMetadata | bytes, tag: str, global_step: int | None = None
    ) -> None:
        """Add what a traced step took. TF1: same name.

        Args:
            run_metadata: ``am.graph.RunMetadata`` as a traced run filled it, or a serialized one.
            tag: under which TensorBoard's graph page offers it.
            global_step: the traced step.

        Raises:
            ValueError: the tag was used already.
        """
        if tag in self._run_tags:
            raise ValueError("The provided tag was already used for this event type")
        # a caller may pass the same object to the next run, which fills it anew
        nodes = run_metadata if isinstance(run_metadata, bytes) else tuple(run_metadata.nodes)
        self._put(None, (tag, nodes), global_step, run_field)
        self._run_tags.add(tag)

    async def open(self) -> None:
        """Make the directory and the file now. A second call does nothing.

        Raises:
            OSError: the directory or the file cannot be made; the message names it.
        """
        await self._pump.open()

    def write_soon(self) -> None:
        """Begin to write what waits now, but at most once a second. Raises nothing."""
        self._pump.write_soon()

    async def flush(self) -> None:
        """Wait until everything added so far is on the disk (fsync).

        Raises:
            OSError: the disk refused; the events are kept, and tried again.
        """
        await self._pump.flush()

    async def drain(self) -> None:
        """Wait until no more than ``max_queue`` events wait. Returns at once when that is so.

        Raises:
            OSError: the disk refused; the events are kept, and tried again.
        """
        await self._pump.drain()

    async def close(self) -> None:
        """Write what is left, ``STOP`` if a session was started, and close the file.

        Closes even when it fails or is cancelled: a cancelled close leaves the disk to its thread and
        does not wait. A second call does nothing; later ``add_*`` do nothing and warn.

        Raises:
            OSError: the disk refused; a note says how many events were lost.
        """
        if self._started and not self.closed:
            stop = delimited(SESSION_LOG, SessionLog(status=SessionLog.STOP).SerializeToString())
            self._pump.put((clock.wall(), 0, None, stop, as_is), told=False)
        self._started, self._graph = False, None
        self._run_tags.clear()
        await self._pump.close()

    async def reopen(self) -> None:
        """Begin a new file after :meth:`close`; an open writer goes on. TF1: same name."""
        await self._pump.open()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _put(
        self, tags: Hashable | None, payload: Any, global_step: int | None, encode: Encode = as_is
    ) -> None:
        self._pump.put((clock.wall(), self._step(global_step), tags, payload, encode))

    def _step(self, global_step: int | None) -> int:
        if global_step is None:
            return 0
        step = int(global_step)
        if step > self._last_step:
            self._last_step = step
        return step

    def _note(self, session_log: SessionLog, step: int | None) -> None:
        if session_log.status == SessionLog.START:
            self._started = True
            self._last_step = (step or 0) - 1
        elif session_log.status == SessionLog.STOP:
            self._started = False

    def _graph_entry(self, graph: Any, global_step: int | None) -> tuple[Entry, tuple[Any, int] | None]:
        """Return the entry of a graph, and what it is known by."""
        now, step, graph = clock.wall(), self._step(global_step), serialized(graph)
        if isinstance(graph, bytes):
            return (now, step, None, delimited(GRAPH, graph), as_is), None
        operations = operations_of(graph)  # those added later are not of this event
        return (now, step, None, operations, graph_field), (_reference(graph), len(operations))

    def __repr__(self) -> str:
        return f"<FileWriter {self._logdir!r}, {self._pump.state.value}>"


def _reference(graph: Any) -> Any:
    try:
        return ref(graph)
    except TypeError:  # cannot be referred to weakly
        return graph
