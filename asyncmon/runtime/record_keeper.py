"""The record of an open session: its present content, and its file in the saved directories."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import socket
from collections.abc import Mapping
from typing import Any

import google_crc32c
import msgspec

from asyncmon.checkpoint.directory import Claims, Directory
from asyncmon.checkpoint.directory_lock import two_trainers
from asyncmon.checkpoint.manifest import RECORD_NAME
from asyncmon.checkpoint.saveable_session import describe
from asyncmon.checkpoint.store import Store
from asyncmon.errors import FailedPreconditionError, OpError
from asyncmon.runtime.gate import Gate
from asyncmon.runtime.observation import Observers, observers_of_caller
from asyncmon.runtime.run_record import RunRecord, decode_record, is_foreign, writing
from asyncmon.runtime.saves import Saves
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.outcome import Outcome
from asyncmon.runtime.stop.stop import RunState
from asyncmon.system import clock, portable
from asyncmon.system.cancellation import running_loop
from asyncmon.system.error_text import encodable, phrase
from asyncmon.system.files import in_thread, in_thread_abandonable

logger = logging.getLogger(__name__)

END_SECS = 5.0
"""The longest time of the last write: a disk or a store may hang. The grace period may be shorter."""


class DirectoryClaim:
    """The claim of the directories that the savers of one session write.

    Only one session of all processes has a directory at a time.
    """

    def __init__(self) -> None:
        self.stores: dict[Directory, Store] = {}
        self._claims = Claims(None)
        self._owners: dict[Directory, object] = {}

    async def claim(self, place: Directory, owner: object) -> None:
        """Make and lock a directory for one hook of the session, and clean up after a crash.

        Raises:
            FailedPreconditionError: another process has the directory.
            ValueError: another session of this process has it, or another hook of this session.
        """
        if self._owners.setdefault(place, owner) is not owner:
            raise two_trainers(place.path)
        try:
            loop = asyncio.get_running_loop()
            self.stores[place] = await in_thread(self._claims.claim, place, loop)
        except OpError as error:  # another one is left to the first save
            if isinstance(error, FailedPreconditionError):
                raise
        else:
            await self.claimed(place)

    async def claimed(self, place: Directory) -> None:
        """A directory was claimed."""

    async def leave(self, place: Directory, owner: object) -> None:
        """Release the directory of a hook that does not save any more. See :meth:`claim`."""
        if self._owners.pop(place, owner) is owner:
            await in_thread(self.release)

    def release(self) -> None:
        """Release all directories. Blocking, but only for the time of a system call."""
        self.stores.clear()
        self._claims.release()


class RecordKeeper(DirectoryClaim):
    """The record of one session, from its opening on, and its file.

    The file is written at the opening, when the session is open, at each commit, pause and resume, at
    the start of the close and at the end.

    Args:
        observers, gate, stops, saves: of the session.
    """

    def __init__(self, observers: Observers, gate: Gate, stops: StopControl, saves: Saves) -> None:
        super().__init__()
        self.job: dict[str, Any] | None = None
        self._observers, self._gate, self._stops, self._saves = observers, gate, stops, saves
        self._program: str | None = None
        self._metrics: dict[str, float | str] | None = None
        self._earlier: dict[str, float | str] | None = None  # of the record that this one replaces
        self._final: RunRecord | None = None
        self._is_due = False
        self._writing: asyncio.Task[None] | None = None
        self._has_failed = False
        gate.on_change = self.changed
        saves.on_committed.append(lambda _step: self.changed())
        self._process: Mapping[str, Any] = {}

    # -- its content

    def now(self) -> RunRecord | None:
        """Return the record of this moment; of a closed session the last one."""
        if self._final is not None or self._gate.started is None:
            return self._final
        state: RunState = "paused" if self._gate.paused else "running"
        if self._gate.state is SessionState.OPENING:
            state = "opening"
        stop = self._stops.stop
        if stop is None:
            return self._record(state, None, None)
        return self._record(state, str(stop.cause), stop.text)

    def _record(self, state: RunState, cause: str | None, text: str | None, **others: Any) -> RunRecord:
        saves, observers = self._saves, self._observers
        if not self._process:
            self._process = {
                "pid": os.getpid(), "host": socket.gethostname(), "boot_id": portable.machine_id(),
            }  # fmt: skip
        earlier = None if saves.restored is None else self._earlier
        assert self._gate.started is not None, "the session was opened"
        return RunRecord(
            name=observers.name,
            state=state,
            started=self._gate.started,
            updated=clock.wall(),
            step=observers.step if saves.step_at_end is None else saves.step_at_end,
            saved=saves.step,
            cause=cause,
            text=text,
            metrics=self._metrics or earlier,
            program=self._program,
            job=self.job,
            directory=next((one.path for one in self.stores), None),
            **self._process,
            **others,
        )

    def created(self, raw: Any) -> None:
        """Note the program of a raw session."""
        try:
            text = json.dumps(describe(raw), sort_keys=True, default=repr).encode()
        except Exception as error:  # of the user's describe(): a save raises it
            logger.debug("The program has no fingerprint: %r", error)
        else:
            self._program = f"{google_crc32c.value(text):08x}"

    def evaluated(self, metrics: Mapping[str, float]) -> None:
        """Note the metrics of an evaluation."""
        self._metrics = {
            tag: float(x) if math.isfinite(x) else str(float(x)) for tag, x in metrics.items()
        }

    # -- the file

    async def leave(self, place: Directory, owner: object) -> None:
        """Note that a hook does not save any more. The session keeps the directory to its end."""
        if self._owners.get(place) is owner:
            del self._owners[place]

    async def claimed(self, place: Directory) -> None:
        store = self.stores[place]
        data = await in_thread(_content, store)
        if is_foreign(data):
            logger.warning("%r is no run record, and none is written in %r.", RECORD_NAME, place.path)
            self.stores.pop(place)
            return
        earlier = decode_record(store, data) if data else None
        self._earlier = None if earlier is None else earlier.metrics
        self.changed()

    def changed(self) -> None:
        """Write the record, in a task. Does not block."""
        if self.stores and self._final is None and running_loop() is self._gate.loop:
            self._is_due = True
            if self._writing is None:  # else an earlier record could replace a later one
                self._writing = asyncio.ensure_future(self._write())
                writing.get().add(self._writing)
                self._writing.add_done_callback(writing.get().discard)

    async def _write(self) -> None:
        while self._is_due and (record := self.now()) is not None:
            self._is_due = False
            try:
                await in_thread_abandonable(_put, list(self.stores.values()), record, False)
            except Exception as error:
                self._failed(error)
        self._writing = None

    def _failed(self, error: BaseException) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.warning(
                "The run record of %r was not written: %s. This is logged once.",
                self._observers.name, phrase(error),
            )  # fmt: skip

    async def end(self, outcome: Outcome, state: RunState) -> None:
        """Write how the session has ended, and release its directories."""
        stop, error = outcome
        self._final = self._record(
            state, str(stop.cause), stop.text, ended=clock.wall(),
            error=None if error is None or state != "failed" else phrase(error),
        )  # fmt: skip
        self._is_due = False
        try:
            async with asyncio.timeout(min(max(self._stops.shutdown.grace, 1.0), END_SECS)):
                if self._writing is not None:
                    await asyncio.wait([self._writing])
                if self.stores:
                    await in_thread_abandonable(_put, list(self.stores.values()), self._final, True)
        except Exception as failure:
            self._failed(failure)
        finally:
            await in_thread(self.release)

    def abandon(self) -> None:
        """Release the directories in any case, as the event loop of the session may be closed."""
        if self._final is None and self._gate.started is not None:
            self._final = self._record("lost", None, "the session was not closed in order")
        self.release()


def _content(store: Store) -> bytes:
    try:
        return store.content(RECORD_NAME)
    except OSError:
        return b""


def _put(stores: list[Store], record: RunRecord, durable: bool) -> None:
    for store in stores:
        one = msgspec.structs.replace(record, directory=store.directory)
        # A name or an error may have half a surrogate pair, which msgspec refuses to encode.
        text = json.dumps(msgspec.to_builtins(one), ensure_ascii=False, separators=(",", ":")) + "\n"
        store.put({RECORD_NAME: encodable(text).encode()}, durable=durable)


def claim_of_caller() -> DirectoryClaim:
    """Return the claim of the session that the calling hook belongs to, or a new one."""
    observers = observers_of_caller()
    keeper = None if observers is None else observers.record
    return DirectoryClaim() if keeper is None else keeper
