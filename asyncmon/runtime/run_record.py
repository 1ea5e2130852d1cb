"""The record of a run: its name, its state and its end, as a value and as the file ``run.json``.

The session that owns the saver of a directory writes the file there, with the lock of the directory,
which it holds until its end is written. So a record without an end, in a directory that is not locked,
is that of a process that died: the run is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.directory_lock import is_held
from asyncmon.checkpoint.manifest import RECORD_NAME
from asyncmon.checkpoint.manifest_reader import read_manifest
from asyncmon.checkpoint.state_file import STATE_NAME, read_state
from asyncmon.checkpoint.store import Store
from asyncmon.errors import OpError
from asyncmon.runtime.stop.stop import RunState
from asyncmon.system import clock
from asyncmon.system.files import in_thread
from asyncmon.system.folders import folders
from asyncmon.system.process_local import ProcessLocal
from asyncmon.system.urls import is_url, require_local

logger = logging.getLogger(__name__)

VERSION = 1

SILENT_SECS = 3600.0
"""The state of a run in an object store, which has no lock, is unknown after this time."""

Step = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # a damaged record must not reach a database

ENDED: frozenset[RunState] = frozenset(("completed", "stopped", "preempted", "cancelled", "failed"))
"""The states that a session ends in."""


class RunRecord(Struct, frozen=True, kw_only=True, tag_field="format", tag="asyncmon.run"):
    """The record of a run. Times are in seconds since 1970.

    ``sess.outcome`` is one, and ``run_record`` and ``runs`` read them.
    """

    name: str
    """The name of the session, see ``MonitoredSession.name``."""
    state: RunState
    """``opening``, ``running`` or ``paused``; ``completed`` by the end of the body or the data, or by a
    hook's stop; ``stopped`` by a request; ``preempted``: to be started again, as after a signal;
    ``cancelled``; ``failed``. Readers infer ``lost``: its process died; and ``unknown``: in an object
    store, not written for an hour."""
    started: float
    updated: float
    """When this was written."""
    ended: float | None = None
    step: Step | None = None
    """The global step when this was written; of a lost run that of the last checkpoint."""
    saved: Step | None = None
    """The global step of the last checkpoint."""
    cause: str | None = None
    """What ended the run, or asked for its end, see ``asyncmon.runtime.stop.Cause``."""
    text: str | None = None
    """The same for people."""
    error: str | None = None
    """The error of a run that failed, with its type."""
    metrics: dict[str, float | str] | None = None
    """The metrics of the last evaluation. A number that is not finite is a text, ``"nan"``."""
    program: str | None = None
    """A fingerprint of the program's description, which differs for programs with other steps."""
    pid: int
    host: str
    boot_id: str | None = None
    """The boot of the machine and the namespace of process ids that ``pid`` belongs to."""
    job: dict[str, Any] | None = None
    """The ``id``, ``name``, ``kind`` and ``attempt`` of the job of ``asyncmon.jobs`` that ran it."""
    version: int = VERSION
    directory: str | None = None
    """The directory of the record."""

    @property
    def is_final(self) -> bool:
        """Whether the session has ended, and written so."""
        return self.state in ENDED


writing: ProcessLocal[set[asyncio.Task[None]]] = ProcessLocal(set)
"""The writes of sessions of this process, which its readers wait for."""

_WRITE_SECS = 1.0

_decoder = msgspec.json.Decoder(RunRecord)


async def run_record(directory: str | os.PathLike[str]) -> RunRecord | None:
    """Return the record of the run in a directory, or None if there is none.

    The state of a run whose process died is ``"lost"``. A damaged record is logged, and None. Reading
    disturbs no session.

    Args:
        directory: the ``checkpoint_dir`` of a session, a path or URL.
    """
    await _written()
    return await in_thread(read_record, os.fspath(directory))


async def runs(directory: str | os.PathLike[str] = ".") -> list[RunRecord]:
    """Return the records of all runs in a directory and below it, by their paths.

    Up to 20,000 folders are searched, the nearest ones first, without hidden ones and links. Damaged
    records are left out, with a warning each.

    Args:
        directory: a local path.

    Raises:
        ValueError: it is a URL.

    Example::

        for run in await am.runs("runs"):
            print(run.name, run.state, run.step)
    """
    path = os.fspath(directory)
    require_local(path, "The records of many runs")
    await _written()
    return await in_thread(_read_all, path)


async def _written() -> None:
    """Wait for the writes of this event loop, so that a program reads what its session was last."""
    loop = asyncio.get_running_loop()
    if pending := {task for task in writing.get() if task.get_loop() is loop}:
        await asyncio.wait(pending, timeout=_WRITE_SECS)


def _read_all(root: str) -> list[RunRecord]:
    def refused(error: OSError) -> None:
        logger.warning("Not all runs in %r are listed: %s", root, error)

    found = [
        path
        for path, entries in folders(root, refused)
        if any(entry.name == RECORD_NAME for entry in entries)
    ]
    return [one for path in sorted(found) if (one := read_record(path)) is not None]


def read_record(directory: str) -> RunRecord | None:
    """See :func:`run_record`. Blocking."""
    store = locations.open_store(locations.resolved(directory))
    record = written_record(store)
    if record is None or record.is_final:
        return record
    if is_url(directory):
        is_silent = clock.wall() - record.updated > SILENT_SECS
        return replace(record, state="unknown") if is_silent else record
    if is_held(directory) is not False:
        return record
    # A session writes its end before it releases the lock: it may have done both since the first look.
    record = written_record(store)
    if record is None or record.is_final:
        return record
    saved = _last_saved(store)
    last = record if saved is None else replace(record, step=saved, saved=saved)
    return replace(last, state="lost")


def written_record(store: Store) -> RunRecord | None:
    """Return the record in the file as it is, or None. A damaged one is logged. Blocking."""
    try:
        data = store.content(RECORD_NAME)
    except FileNotFoundError:
        return None
    except OSError as error:
        _log_unreadable(store, error)
        return None
    return decode_record(store, data)


def decode_record(store: Store, data: bytes) -> RunRecord | None:
    """Return the record in the content of its file, or None. A damaged one is logged."""
    if is_foreign(data):
        return None
    try:
        return replace(_decoder.decode(data), directory=store.directory)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _log_unreadable(store, error)
        return None


def is_foreign(data: bytes) -> bool:
    """Return whether a file is no run record: another program's, or the manifest of a checkpoint."""
    return b'"asyncmon.run"' not in data and bool(data.strip(b"\0"))  # zeros: after a power failure


def _log_unreadable(store: Store, error: Exception) -> None:
    where = locations.join(store.directory, RECORD_NAME)
    logger.warning("The run record %s is not readable: %s", where, error)


def _last_saved(store: Store) -> int | None:
    """Return the step of the checkpoint that a restart continues with, if it can be read."""
    state = read_state(store, STATE_NAME)
    if state is None or not state.model_checkpoint_path:
        return None
    directory, basename = locations.split(state.model_checkpoint_path)
    with contextlib.suppress(OSError, OpError):
        return read_manifest(
            locations.open_store(directory), basename, state.model_checkpoint_path
        ).step
    return None
