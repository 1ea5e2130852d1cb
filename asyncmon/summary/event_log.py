"""The events of one directory in this process: one queue and one file for all of its writers."""

from __future__ import annotations

import logging
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakSet, ref

from asyncmon.protobuf import delimited
from asyncmon.summary.entries import SESSION_LOG, Entry, as_is, may_be_dropped, scalar_fields
from asyncmon.summary.event_file import EventFile, next_number, number_of
from asyncmon.summary.events import SessionLog
from asyncmon.summary.sink_thread import MOST_PENDING, SinkThread
from asyncmon.system import clock, portable
from asyncmon.system.process_local import ProcessLocal

logger = logging.getLogger(__name__)

DROPPED_TAG = "asyncmon/dropped_events"
"""The tag of a scalar that counts the events that were dropped."""

_MOST_TAPPED = 50_000  # entries that no reader takes
_MOST_TAPPED_BYTES = 64 << 20  # of their arrays and encoded summaries


class Tap:
    """The events that writers of this process add to a directory from now on, in memory.

    Attributes:
        written: the bytes of earlier events in the open file, by its name.
        is_lost: whether there were too many. The tap then gets no more.
    """

    def __init__(self, written: dict[str, int], events: Iterable[Entry | bytes]) -> None:
        self._events: deque[Entry | bytes] = deque(events)
        self._bytes = 0
        self.written = written
        self.is_lost = False
        self._next_file = next_number()

    def limit(self, name: str) -> float:
        """Return the number of bytes of a file that hold earlier events."""
        number = number_of(name)
        if number is not None and number > self._next_file:
            return 0
        return self.written.get(name, math.inf)

    def add(self, entry: Entry) -> None:
        """Keep an entry, unless there are too many, or they are too large."""
        self._bytes += _size(entry[3])
        full = len(self._events) >= _MOST_TAPPED or self._bytes > _MOST_TAPPED_BYTES
        self.is_lost = self.is_lost or full
        if self.is_lost:
            self._events.clear()
        else:
            self._events.append(entry)

    def take(self) -> list[Entry | bytes]:
        """Remove and return all entries, and serialized events. Thread-safe."""
        self._bytes = 0
        taken: list[Entry | bytes] = []
        with suppress(IndexError):  # at the end; another thread may clear the deque at any time
            while True:
                taken.append(self._events.popleft())
        return taken


def _size(payload: Any) -> int:
    """Return the size of bytes, of an array, or of the array in a tuple; 0 for anything else."""
    data = payload[0] if isinstance(payload, tuple) else payload
    return len(data) if isinstance(data, bytes) else getattr(data, "nbytes", 0)


class EventLog:
    """The queue, the file and the session of a directory, shared by the writers that joined.

    A directory has at most one open log per process, so that its events are in one file in the order
    in which they were added. The last writer to leave closes the file.

    Attributes:
        file: the file.
        sink: the queue and the thread of the file.
        run_tags: the tags of traced steps in the file.
        graph: the last graph, and its number of nodes.
    """

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _open: ClassVar[ProcessLocal[dict[str, EventLog]]] = ProcessLocal(dict)
    # By directory, also without a log.
    _tapped: ClassVar[ProcessLocal[dict[str, tuple[ref[Tap], ...]]]] = ProcessLocal(dict)
    # Of closed logs: the last step added outside a session.
    _kept: ClassVar[ProcessLocal[dict[str, int]]] = ProcessLocal(dict)

    def __init__(self, path: str, file: EventFile, batch: int, secs: float) -> None:
        self.file = file
        self.sink = SinkThread[Entry](
            f"the events of {file.directory!r}",
            self,
            secs=secs,
            batch=batch,
            most=MOST_PENDING,
            may_drop=may_be_dropped,
        )
        self._counted = 0  # the dropped events of the last DROPPED_TAG
        self.run_tags: set[str] = set()
        self.graph: tuple[Any, int] | None = None
        self._path = path
        self._taps = self._tapped.get().get(path, ())
        self._writers: WeakSet[Any] = WeakSet()
        self._starters: WeakSet[Any] = WeakSet()  # the writers that record a session
        #   events:  points before it | START | points of the session | STOP | points after it
        #   step:          _kept_step |                    _last_step |                 _kept_step
        #                             |<--------- _started ---------->|        the largest so far
        self._started = False
        self._last_step = -1
        self._kept_step = self._kept.get().pop(path, -1)

    @classmethod
    def join(cls, writer: Any, directory: str, make: Callable[[str], EventLog]) -> EventLog:
        """Return the log of a directory for one more writer; a new one if none is open."""
        path = os.path.realpath(directory)
        with cls._lock:
            log = cls._open.get().get(path)
            if log is None:
                log = cls._open.get()[path] = make(path)
            log._writers.add(writer)
            return log

    @classmethod
    def tap(cls, directory: str) -> Tap | None:
        """Return the events that are added to a directory from now on, also by later logs.

        None while a write is in progress.
        """
        path = os.path.realpath(directory)
        with cls._lock:
            log = cls._open.get().get(path)
            found = ({}, []) if log is None else log._progress()
            if found is None:
                return None
            tap = Tap(*found)
            taps = (*(one for one in cls._tapped.get().get(path, ()) if one() is not None), ref(tap))
            cls._tapped.get()[path] = taps
            if log is not None:
                log._taps = taps
            return tap

    def put(self, entry: Entry) -> None:
        """Add an entry. Does not block; thread-safe."""
        self.sink.put(entry)
        for one in self._taps:
            if (tap := one()) is not None:
                tap.add(entry)

    def leave(self, writer: Any) -> None:
        """Remove a writer. The last one that recorded a session adds ``STOP``."""
        with self._lock:
            self._writers.discard(writer)
            self._starters.discard(writer)
            if self._started and not self._starters:
                self._started = False
                stop = delimited(SESSION_LOG, SessionLog(status=SessionLog.STOP).SerializeToString())
                self.put((clock.wall(), 0, None, stop, as_is))
            if not self._writers and self._open.get().get(self._path) is self:
                del self._open.get()[self._path]
                if self._kept_step >= 0:
                    self._kept.get()[self._path] = self._kept_step

    @property
    def is_shared(self) -> bool:
        """Whether a writer has not left."""
        return bool(self._writers)

    @property
    def is_recorded(self) -> bool:
        """Whether a writer that records the session has not left."""
        return bool(self._starters)

    def step(self, global_step: int | None) -> int:
        """Return the step of an event that is added now; 0 for None."""
        if global_step is None:
            return 0
        step = int(global_step)
        if step > self._last_step:
            self._last_step = step
            if not self._started:
                self._kept_step = step
        return step

    def needs_start(self, first: int) -> bool:
        """Return whether a session that begins with a step needs a ``START``.

        A session that has started needs another one only after a recovery to an earlier step.
        """
        return not self._started or self._last_step >= first

    def start_step(self, first: int | None) -> int:
        """Return the step for the ``START`` of a session that begins with a step."""
        # Readers drop the points from there on. Points added before the session belong to this run, and
        # are kept.
        return first or 0 if self._started else max(first or 0, self._kept_step + 1)

    def session(self, writer: Any, session_log: SessionLog, step: int | None) -> None:
        """Follow a session log that was added."""
        if session_log.status == SessionLog.START:
            self._started, self._last_step, self._kept_step = True, (step or 0) - 1, -1
            self.record_session(writer)
        elif session_log.status == SessionLog.STOP:
            self._started = False

    def record_session(self, writer: Any) -> None:
        """Note that a writer records the session. ``STOP`` follows when the last one leaves."""
        self._starters.add(writer)

    # -- the target of the sink -----------------------------------------------------------------------

    @property
    def unwritten(self) -> int:
        """The number of events of a failed write."""
        return self.file.unwritten

    def write(self, records: list[Entry], sync: bool) -> None:
        """Append entries to the file, and the count of dropped ones. Blocking."""
        if self.sink.dropped != self._counted:
            if not self._counted:
                logger.warning(
                    "The disk of %r is behind, and events are dropped. %r counts them.",
                    self.file.directory,
                    DROPPED_TAG,
                )
            self._counted = dropped = self.sink.dropped
            step = records[-1][1] if records else 0
            records.append((clock.wall(), step, DROPPED_TAG, float(dropped), scalar_fields))
        self.file.write(records, sync)

    def close(self) -> None:
        """Close the file. Blocking."""
        self.file.close()

    def forget(self) -> None:
        """Begin a new file in a child process."""
        self.file.forget()

    def _progress(self) -> tuple[dict[str, int], list[Entry | bytes]] | None:
        found = self.sink.snapshot(self.file.progress)
        if found is None:
            return None
        (written, kept), pending = found
        return None if written is None else (written, [*kept, *pending])

    @classmethod
    def _forked(cls) -> None:
        """Start with new files in a child process; the pending events are the parent's."""
        cls._lock = threading.RLock()  # a thread of the parent may hold it
        cls._kept.get().clear()
        for log in cls._open.get().values():
            log.run_tags.clear()
            log.graph, log._started, log._last_step, log._kept_step = None, False, -1, -1


portable.after_fork_in_child(EventLog._forked)
