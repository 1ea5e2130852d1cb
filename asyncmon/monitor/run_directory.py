"""A run that is read from its directory: event files and checkpoints."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import stat
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np

from asyncmon import checkpoint
from asyncmon.checkpoint import locations
from asyncmon.checkpoint.finding import main_files
from asyncmon.checkpoint.manifest import RECORD_NAME
from asyncmon.checkpoint.manifest_reader import read_manifest
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.store import Store
from asyncmon.checkpoint.tf_checkpoint import index_name, is_part
from asyncmon.errors import OpError
from asyncmon.monitor.media import Histogram, Media, Picture, config_of, media_of
from asyncmon.monitor.run import Action, ActionError, CheckpointFacts, Details, Status
from asyncmon.monitor.scalars import Scalars, Series
from asyncmon.runtime.run_record import RunRecord, read_record
from asyncmon.summary.entries import Entry, as_is, encode_entry, scalar_fields
from asyncmon.summary.event_log import EventLog, Tap
from asyncmon.summary.events import Event, SessionLog
from asyncmon.summary.reader import EventTail, is_event_file
from asyncmon.summary.scalars import Scalar, ScalarRecords, restarted_at, scalars_of
from asyncmon.system import clock
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

SILENT_SECS = 300.0
"""Seconds without a write after which a session is shown as silent: it may have been killed."""

_Added = Series | tuple[int, float, Histogram | Picture | str]
# Points or a record of a tag; or the first step of a session, which replaces older ones from there.
_Change = tuple[str, _Added] | int


class RunDirectory:
    """A run, read from its files. Each refresh continues in the event files, in a worker thread.

    The directories of one run may share one :class:`Scalars` and one :class:`Media`.

    Args:
        path: a directory; it need not exist yet. Symbolic links in it are skipped.
        name: the displayed name; by default that of the directory.
        scalars: the columns to add to.
        media: the histograms, images and texts to add to.
        prefix: a prefix for the tags in these columns, such as ``"eval/"``.
        poll_secs: seconds between two reads while there are viewers.
        live: this process writes the events. Files are read once; later events come from the writers.

    Example::

        run = RunDirectory("runs/1")
        await run.refresh()
        print(run.status().step, run.scalars.tags())
    """

    kind: Literal["directory"] = "directory"

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        scalars: Scalars | None = None,
        media: Media | None = None,
        prefix: str = "",
        poll_secs: float = 1.0,
        live: bool = False,
    ) -> None:
        self.path = os.path.abspath(path)
        self.name = name or os.path.basename(self.path) or self.path
        self.scalars = Scalars() if scalars is None else scalars
        self.media = Media() if media is None else media
        self.poll_secs = poll_secs
        self._prefix = prefix
        self._tags: set[str] = set()
        self._media_tags: set[str] = set()
        self._files = _EventFiles(self.path)
        self._checkpoints = CheckpointTable(self.path)
        self._live = live
        self._record = _Record(self.path)

    async def refresh(self) -> None:
        """Read the records appended to the event files. A damaged file is read up to the damage."""
        if self._live:
            self._files.tap()
        else:
            await in_thread(self._record.read)
        more = True
        while more:
            self._apply()  # including the records read by a cancelled call
            more = await in_thread(self._files.read)
        self._apply()

    def _apply(self) -> None:
        while self._files.changes:
            change = self._files.changes.popleft()
            if isinstance(change, int):
                self.scalars.purge(change, self._tags)
                self.media.purge(change, self._media_tags)
                continue
            tag, added = self._prefix + change[0], change[1]
            if isinstance(added, Series):
                self._tags.add(tag)
                self.scalars.extend(tag, added)
            else:
                self._media_tags.add(tag)
                self.media.add(tag, *added)

    def status(self) -> Status:
        files, record = self._files, self._record.found
        if record is not None:
            return _status_of(record, files)
        state = {None: "unknown", True: "running", False: "stopped"}[files.runs]
        if state == "running" and files.updated and clock.wall() - files.updated > SILENT_SECS:
            state = "silent"
        return Status(
            state=state,
            step=files.step,
            rate=files.rate() if state == "running" else None,
            started=files.started,
            updated=files.updated,
        )

    @property
    def damages(self) -> Sequence[str]:
        """Why event files are not read to their end, each with its file and place."""
        return list(self._files.damages.values())

    @property
    def config(self) -> Mapping[str, Any]:
        """The hyperparameters in the event files."""
        return self._files.config

    async def details(self) -> Details:
        return Details(checkpoints=await self._checkpoints.rows())

    async def act(self, action: Action, reason: str | None) -> Mapping[str, Any]:
        self._refuse(action)

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        return await self._checkpoints.verify()

    async def detach(self, hook: str) -> None:
        self._refuse("detach a hook")

    def _refuse(self, what: str) -> NoReturn:
        raise ActionError(
            f"{self.name!r} is read from its directory, so it is not possible to {what} here. The "
            "process that trains can, through a monitor that shows the session itself."
        )


def _status_of(record: RunRecord, files: _EventFiles) -> Status:
    """Return the row of a run with a record: its events may be newer than that."""
    is_over = record.is_final or record.state in ("lost", "unknown")
    steps = [step for step in (record.step, files.step) if step is not None]
    return Status(
        state="stopped" if is_over else "running",
        step=record.step if is_over and record.step is not None else max(steps, default=None),
        rate=None if is_over else files.rate(),
        stop_reason=record.text,
        stop_cause=record.cause,
        last_error=record.error,
        outcome=record.state if is_over else None,
        paused=record.state == "paused",
        started=record.started,
        updated=record.ended or max(record.updated, files.updated or 0.0),
        metrics=record.metrics,
    )


class _Record:
    """The run record of a directory."""

    def __init__(self, directory: str) -> None:
        self.found: RunRecord | None = None
        self._store = locations.open_store(directory)
        self._read: Any = None

    def read(self) -> None:
        """Read the record if it has changed, or if its process may have died. Blocking."""
        now = self._store.fingerprint([RECORD_NAME])
        if now != self._read or (self.found is not None and not self.found.is_final):
            self._read = now
            self.found = None if now is None else read_record(self._store.directory)


class _EventFiles:
    """Reads the event files of a directory in the order of their names. Methods block."""

    def __init__(self, directory: str) -> None:
        self.changes: deque[_Change] = deque()
        self.config: dict[str, Any] = {}
        self.runs: bool | None = None
        self.step: int | None = None
        self.started: float | None = None
        self.updated: float | None = None
        self._directory = Path(directory)
        self._tails: dict[str, EventTail] = {}
        self._scalars = ScalarRecords()
        self.damages: dict[str, str] = {}
        self._progress: deque[tuple[float, int]] = deque(maxlen=30)
        self._tap: Tap | None = None
        self._is_read = False  # all that was written before the tap

    def rate(self) -> float | None:
        """Return the steps per second over the last reads."""
        if len(self._progress) < 2:
            return None
        (began, first), (ended, last) = self._progress[0], self._progress[-1]
        return (last - first) / (ended - began) if ended > began and last > first else None

    def tap(self) -> None:
        """Take further events from the writers of this process. Does not block."""
        if self._tap is not None and self._tap.is_lost:
            self._tap = None
            self._reset()  # reads the files again
        if self._tap is None:
            self._tap = EventLog.tap(str(self._directory))

    def read(self) -> bool:
        """Read new records, at most one chunk; return whether there are more."""
        if not self._is_read:
            more = self._read_files()
            self._is_read = self._tap is not None and not more
            return more
        assert self._tap is not None, "set before"
        self._take(event for entry in self._tap.take() if (event := self._added(entry)) is not None)
        return False

    def _added(self, entry: Entry | bytes) -> Event | Scalar | None:
        """Return an event that was added by a writer; None if it has nothing to show."""
        if isinstance(entry, bytes):
            return Event.FromString(entry)
        wall_time, step, tags, payload, encode = entry
        if encode is scalar_fields:
            return Scalar(wall_time, step, str(tags), float(np.float32(payload)))
        if encode is not as_is and tags is None:
            return None
        data = encode_entry(entry)
        return None if data is None else Event.FromString(data)

    def _read_files(self) -> bool:
        sizes = self._sizes()
        if any(sizes.get(name, -1) < tail.position for name, tail in self._tails.items()):
            self._reset()  # a file was deleted or rewritten
        limit = (lambda name: math.inf) if self._tap is None else self._tap.limit
        for name, size in sizes.items():
            tail = self._tails.get(name)
            if tail is None:
                tail = self._tails[name] = EventTail(str(self._directory / name))
            if min(size, limit(name)) > tail.position and name not in self.damages:
                self._read_chunk(name, tail, limit(name))
                if tail.position < min(size, limit(name)) and name not in self.damages:
                    return True
        return False

    def _reset(self) -> None:
        self._tails.clear()
        self.damages.clear()
        self._progress.clear()
        self._is_read = False
        self.config = {}
        self.runs = self.step = self.started = self.updated = None
        self.changes.append(-1)

    def _sizes(self) -> dict[str, int]:
        try:
            with os.scandir(self._directory) as entries:
                found = [
                    (entry.name, facts.st_size)
                    for entry in entries
                    if is_event_file(entry.name)
                    and stat.S_ISREG((facts := entry.stat(follow_symlinks=False)).st_mode)
                ]
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return dict(sorted(found))

    def _read_chunk(self, name: str, tail: EventTail, limit: float) -> None:
        try:
            data = tail.read(limit)
            self._take(tail.decoded(data, lambda record: self._decoded(tail, record)))
            tail.check()
        except (OpError, OSError) as error:
            self.damages[name] = str(error)
            logger.warning("The monitor reads %r no further: %s", str(self._directory / name), error)

    def _decoded(self, tail: EventTail, record: bytes) -> Event | Scalar:
        found = self._scalars.decode(record)
        if found is not None:
            return found
        event = tail.event(record)
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                self._scalars.learn(value.tag)
        return event

    def _take(self, events: Iterable[Event | Scalar]) -> None:
        points: dict[str, tuple[list[int], list[float], list[float]]] = {}
        for event in events:
            scalars = [event] if isinstance(event, Scalar) else scalars_of(event)
            for wall_time, step, tag, value in scalars:
                steps, values, times = points.setdefault(tag, ([], [], []))
                steps.append(step)
                values.append(value)
                times.append(wall_time)
            if isinstance(event, Scalar):
                self._moved(event)
            elif event.HasField("summary"):
                self._moved(event)
                self._media(event)
            elif event.HasField("session_log"):
                self._session(event, points)
        self._flush(points)
        if self.step is not None and self.updated is not None:
            self._progress.append((self.updated, self.step))

    def _media(self, event: Event) -> None:
        for tag, content in media_of(event):
            self.changes.append((tag, (event.step, event.wall_time, content)))
        if config := config_of(event):
            self.config = {**self.config, **config}

    def _moved(self, event: Event | Scalar) -> None:
        # The records of other programs may be out of order, as those of an evaluation.
        self.step = event.step if self.step is None else max(self.step, event.step)
        self.updated = event.wall_time
        if self.started is None:
            self.started = event.wall_time

    def _session(self, event: Event, points: Any) -> None:
        status, first = event.session_log.status, restarted_at(event)
        if first is not None:
            self._flush(points)
            self.changes.append(first)
            self._progress.clear()
            self.runs, self.started, self.step = True, event.wall_time, first
        elif status == SessionLog.STOP:
            self.runs = False
        if status == SessionLog.STOP and not event.step:
            self.updated = event.wall_time  # the writer's STOP has no step
        else:
            self._moved(event)

    def _flush(self, points: dict[str, tuple[list[int], list[float], list[float]]]) -> None:
        for tag, (steps, values, times) in points.items():
            self.changes.append((tag, Series(np.array(steps), np.array(values), np.array(times))))
        points.clear()


class _Known(NamedTuple):
    """The row of a checkpoint and its files; the row is None if the file is no checkpoint."""

    row: CheckpointFacts | None
    files: tuple[str, ...]
    fingerprint: Any  # of the files


class CheckpointTable:
    """The checkpoints in a directory, asyncmon's and TensorFlow's, the newest first.

    A checkpoint is read once, and again when one of its files has changed. Symbolic links are skipped.

    Args:
        directory: a local directory.
    """

    def __init__(self, directory: str) -> None:
        self._store = locations.open_store(directory)
        self._read: dict[str, _Known] = {}  # by the main file's name
        self._lock = asyncio.Lock()  # a scan reuses the earlier rows and verdicts
        self._verifying = asyncio.Lock()

    async def rows(self) -> tuple[CheckpointFacts, ...]:
        """Return all checkpoints, with the verdicts of :meth:`verify` for unchanged files."""
        state = await in_thread(read_state, self._store, STATE_NAME)
        kept = {os.path.basename(path) for path in state.all_model_checkpoint_paths} if state else set()
        found = await self._scanned()
        rows = [replace(row, kept=os.path.basename(row.path) in kept) for row in found]
        return tuple(sorted(rows, key=lambda row: (row.saved or 0.0, row.step or 0), reverse=True))

    async def verify(self) -> tuple[CheckpointFacts, ...]:
        """Read every byte of each checkpoint without a verdict; return the rows with the verdicts.

        Concurrent calls read each checkpoint once.
        """
        await self._scanned()
        for name in list(self._read):
            async with self._verifying:
                known = self._read.get(name)
                if known is None or known.row is None or known.row.verified is not None:
                    continue
                for found in await checkpoint.verify(known.row.path):
                    row = replace(known.row, verified=found.problem is None, problem=found.problem)
                    async with self._lock:
                        if self._read.get(name) == known:
                            self._read[name] = known._replace(row=row)
        return await self.rows()

    async def _scanned(self) -> list[CheckpointFacts]:
        async with self._lock:
            return await in_thread(self._scan)

    def _scan(self) -> list[CheckpointFacts]:
        names = self._store.names()
        before, self._read = self._read, {}
        for name, basename in main_files(names):
            if os.path.islink(os.path.join(self._store.directory, name)):
                continue
            known = before.get(name)
            found = known and self._store.fingerprint(known.files)
            if known is None or found is None or found != known.fingerprint:
                row, files = _row(self._store, name, basename, names)
                known = _Known(row, files, self._store.fingerprint(files))
            self._read[name] = known
        return [known.row for known in self._read.values() if known.row is not None]


def _row(
    store: Store, name: str, basename: str, names: list[str]
) -> tuple[CheckpointFacts | None, tuple[str, ...]]:
    """Return the row of a checkpoint, from its manifest, and its files. Blocking."""
    path = locations.join(store.directory, basename)
    try:
        if name == index_name(basename):
            parts = tuple(part for part in names if is_part(part, basename))
            size = sum(os.path.getsize(os.path.join(store.directory, part)) for part in parts)
            step = re.search(r"-(\d+)$", basename)
            saved = store.mtime(name)
            return CheckpointFacts(
                path=path, step=int(step[1]) if step else None, saved=saved, bytes=size
            ), parts
        manifest = read_manifest(store, basename, path)
    except FileNotFoundError:
        return None, (name,)  # deleted since it was listed
    except (OpError, OSError) as error:
        if f"{basename}.safetensors" not in names:
            return None, (name,)  # some other JSON file
        facts = CheckpointFacts(path=path, saved=store.mtime(name), verified=False, problem=str(error))
        return facts, (name,)
    files = [file.name for file in manifest.files]
    missing = [file for file in files if file not in names]
    return CheckpointFacts(
        path=path,
        step=manifest.step,
        saved=manifest.wall_time,
        bytes=manifest.nbytes,
        verified=False if missing else None,
        problem=f"{', '.join(missing)} is missing" if missing else None,
    ), (name, *files)
