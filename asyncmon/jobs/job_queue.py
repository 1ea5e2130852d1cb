"""The queue: it submits jobs, runs them in this process or in children, and shares with others."""

from __future__ import annotations

import builtins
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from asyncmon.jobs import table
from asyncmon.jobs.directories import QueueDirectory
from asyncmon.jobs.execution import Kind
from asyncmon.jobs.job import Event, Job
from asyncmon.jobs.kinds import Executor, KindSpec, kind_spec
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Changes, Row, Store
from asyncmon.jobs.table import Spec, State
from asyncmon.jobs.worker import Worker
from asyncmon.system import clock
from asyncmon.system.cancellation import shielded
from asyncmon.system.files import in_thread

K = TypeVar("K", bound=Kind)
T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
# the same text for equal parameters
_encode = json.JSONEncoder(sort_keys=True, allow_nan=False, ensure_ascii=False).encode
_MOST_PRIORITY = 1_000_000_000
_DAY_SECS = 24 * 3600.0


class _Phase(Enum):
    NEW = "not open: use it in `async with`"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class JobQueue:
    """A persistent queue of jobs in a directory, which several processes of one host share.

    A job is a call of a *kind*, an ``async def`` function, with parameters. At most one process runs a
    job at a time, its end is recorded once, and the body of its kind is called at least once: after the
    death of a process it is called again, and its sessions continue from their last checkpoints.

    ``async with`` runs jobs: new ones, and jobs that were queued, preempted, or lost with their
    process. Leaving the block preempts the running jobs: each saves, ends within the grace period, and
    is continued by the next process. A server (uvicorn) that is stopped by a signal preempts them at
    once. A job that ignores its cancellation is left after another 5 seconds, and counts as lost when
    its process ends. The queue handles no signals, and neither do sessions of jobs.

    Args:
        root: the directory, made if it is missing. On a local disk.
        max_running: the largest number of running jobs, of all processes on the directory.
        executor: where kinds run that do not have an executor of their own, see :meth:`kind`. None:
            ``"process"`` for kinds whose module has imported torch, ``"inline"`` for others.
        grace: the time in seconds that a stopped job has to save and end, before it is cancelled.
        keep: the number of finished jobs to keep. Older ones are deleted as by :meth:`delete`.
        keep_days: the number of days to keep finished jobs.

    Raises:
        ValueError: an argument is out of its range.
        OSError: out of ``async with``: the directory cannot be made, or is on a network file system.

    Example::

        queue = am.jobs.JobQueue("jobs", max_running=3)

        @queue.kind("digits")
        async def train(job):
            async with am.MonitoredTrainingSession(checkpoint_dir=job.directory) as sess:
                ...

        async with queue:
            job = await queue.submit("digits", {"rate": 0.1}, name="digits-1")
            print((await job.wait()).outcome)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        max_running: int = 1,
        executor: Executor | None = None,
        grace: float = 10.0,
        keep: int | None = None,
        keep_days: float | None = None,
    ) -> None:
        if max_running < 1:
            raise ValueError(f"max_running must be 1 or more, got {max_running!r}.")
        if executor not in ("inline", "process", None):
            raise ValueError(f"executor must be 'inline', 'process' or None, got {executor!r}.")
        for name, value in (("grace", grace), ("keep", keep), ("keep_days", keep_days)):
            if value is not None and not value >= 0:
                raise ValueError(f"{name} must be 0 or more, got {value!r}.")
        self.root = Path(root).absolute()
        self.max_running = max_running
        self.grace = clock.seconds("grace", grace)
        self._kinds: dict[str, KindSpec] = {}
        self._executor = executor
        self._keep = keep, None if keep_days is None else keep_days * _DAY_SECS
        self._directory = QueueDirectory(self.root)
        self._phase = _Phase.NEW
        self._store: Store
        self._worker: Worker | None = None

    def __repr__(self) -> str:
        running = 0 if self._worker is None else len(self._worker.mine)
        return f"<JobQueue {str(self.root)!r}: {self._phase.name.lower()}, runs {running}>"

    def kind(self, name: str, *, executor: Executor | None = None) -> Callable[[K], K]:
        """Register a kind of job: a decorator of an ``async def`` function of one argument.

        Args:
            name: letters, digits and ``. _ -``.
            executor: ``"process"`` runs each job in a child process, so that a step in Python holds up
                no other one and a crash ends that job only. Start and imports take about a second. The
                child imports the module of the function, which must be at its top level. stdout and
                stderr are appended to ``job.log`` in the job's directory. ``"inline"`` runs it in this
                event loop. None: that of the queue.

        Raises:
            ValueError: the name has other characters or is registered; a kind for a child process is
                inside of a function, or in a module that cannot be imported.
            TypeError: it is no ``async def`` function.
        """
        _check_name(name)
        if name in self._kinds:
            raise ValueError(f"The kind {name!r} is registered already.")

        def register(fn: K) -> K:
            self._kinds[name] = kind_spec(fn, executor or self._executor)
            if self._worker is not None:
                self._worker.wake.set()
            return fn

        return register

    # -- open and close

    async def __aenter__(self) -> Self:
        if self._phase not in (_Phase.NEW, _Phase.CLOSED):
            raise RuntimeError(f"The queue {str(self.root)!r} is {self._phase.value}.")
        await in_thread(self._directory.open)
        store = Store(self._directory.table)
        try:
            await store.write(lambda _: None)  # makes the table
        except BaseException:
            await shielded(store.close, name="closing the job queue")
            raise
        self._store, self._phase = store, _Phase.OPEN
        self._worker = Worker(
            store, self._directory, self._kinds, self.max_running, self.grace, self._keep
        )
        self._worker.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await shielded(self._close, name="closing the job queue")

    async def _close(self) -> None:
        if self._phase is not _Phase.OPEN:
            return
        self._phase = _Phase.CLOSING
        await self._opened().close()
        self._phase = _Phase.CLOSED
        self._store.changes.close()
        await self._store.close()

    def _opened(self) -> Worker:
        if self._phase not in (_Phase.OPEN, _Phase.CLOSING) or self._worker is None:
            raise RuntimeError(f"The queue {str(self.root)!r} is {self._phase.value}.")
        return self._worker

    # -- submit

    async def submit(
        self,
        kind: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        priority: int = 0,
    ) -> Job:
        """Queue a job, and return it once that is durable.

        With the name of a job of the same kind and parameters, return that job, in any state.

        Args:
            kind: the name of a kind of this process.
            params: values of JSON by name.
            name: of the job and its directory, unique in the queue. Default: its id.
            priority: higher ones run first; the same in the order of submission.

        Raises:
            LookupError: the kind is unknown.
            ValueError, TypeError: the parameters are no JSON (NaN is none), the name has other
                characters than letters, digits and ``. _ -``, or the priority is out of range.
            FileExistsError: another job has the name.
            sqlite3.OperationalError: the disk is full. The job is not queued.
            RuntimeError: the queue is not open.
        """
        return (await self._submit([self._spec(kind, params, name, priority)]))[0][0]

    async def submit_many(
        self, kind: str, params: Iterable[Mapping[str, Any] | None], *, priority: int = 0
    ) -> builtins.list[Job]:
        """Queue a job for each of several parameters: all or, after an error, none.

        Raises:
            LookupError, ValueError, TypeError, sqlite3.OperationalError, RuntimeError: see
                :meth:`submit`.
        """
        specs = [self._spec(kind, each, None, priority) for each in params]
        return [job for job, _ in await self._submit(specs)]

    async def _submit(self, specs: Sequence[Spec]) -> builtins.list[tuple[Job, bool]]:
        """Queue jobs in one transaction. Return each with whether it is new."""
        now = clock.wall()
        found = await self._write(lambda db: [table.insert(db, now, spec) for spec in specs])
        return [(Job(self, row), is_new) for row, is_new in found]

    def _spec(
        self, kind: str, params: Mapping[str, Any] | None, name: str | None, priority: int = 0,
        rungs: tuple[int, ...] = (),
    ) -> Spec:  # fmt: skip
        """Return a checked job for :meth:`_submit`. Raises as :meth:`submit` does."""
        if kind not in self._kinds:
            known = ", ".join(sorted(map(repr, self._kinds))) or "none"
            raise LookupError(f"There is no kind {kind!r}; there are: {known}.")
        if params is not None and not isinstance(params, Mapping):
            raise TypeError(f"params must be values by name, got {params!r}.")
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"priority must be a whole number, got {priority!r}.")
        if abs(priority) > _MOST_PRIORITY:
            raise ValueError(f"priority must be within {_MOST_PRIORITY:,} of 0, got {priority!r}.")
        try:
            text = _encode(dict(params or {}))
        except (TypeError, ValueError) as error:
            raise type(error)(f"params must be values of JSON, got {params!r}: {error}") from None
        if not text.isascii():
            text.encode()  # half a surrogate pair raises ValueError
        new = f"{kind}-{clock.random_bytes(6).hex()}"
        if name is not None:
            _check_name(name)
        return Spec(new, kind, text, name or new, priority, rungs)

    # -- look

    async def get(self, key: str) -> Job:
        """Return the job of an id or a name. Raises KeyError, and RuntimeError if it is not open."""
        return Job(self, await self._read_row(key))

    async def list(
        self, state: str | None = None, kind: str | None = None, limit: int = 100, after: int = 0
    ) -> list[Job]:
        """Return jobs in the order of their submission.

        Args:
            state: only those in this state.
            kind: only those of this kind.
            limit: the largest number.
            after: the ``number`` of the last job of the page before.
        """
        rows = await self._read(
            lambda db: db.execute(
                "SELECT * FROM jobs WHERE seq > :after AND (:state IS NULL OR state = :state)"
                " AND (:kind IS NULL OR kind = :kind) ORDER BY seq LIMIT :limit",
                {"after": after, "state": state, "kind": kind, "limit": limit},
            ).fetchall()
        )
        return [Job(self, row) for row in await self._seen(rows)]

    async def delete(self, job: Job) -> None:
        """Delete a finished job: its directory, its row and its events. Follows no symbolic link.

        A directory that was there before its job is kept. A second call raises KeyError.

        Raises:
            StateError: the job has not ended.
        """
        await shielded(self._opened().delete, job.id, name="deleting a job")

    # -- what jobs use

    async def _read_row(self, key: str) -> Row:
        """Return the row of an id or a name."""
        return (await self._seen([await self._read(lambda db: table.find(db, key))]))[0]

    async def _read_events(self, job: str, after: int, limit: int) -> builtins.list[Event]:
        """Return the events of a job after one."""
        rows = await self._read(
            lambda db: db.execute(
                "SELECT seq AS id, at AS created_at, type, level, message, data FROM events"
                " WHERE job = ? AND seq > ? ORDER BY seq LIMIT ?",
                (job, after, limit),
            ).fetchall()
        )
        return [Event(**row) for row in rows]

    async def _request(self, job: str, what: str) -> Row:
        """Request a pause or a cancellation."""
        now = clock.wall()
        return await self._write(lambda db: table.request(db, now, job, what))

    async def _resume(self, job: str, passed: int | None = None) -> Row:
        """Queue a paused job again."""
        now = clock.wall()
        return await self._write(lambda db: table.resume(db, now, job, passed))

    @property
    def _changes(self) -> Changes:
        return self._store.changes

    async def _write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        worker = self._opened()
        found = await self._store.write(fn)
        worker.wake.set()
        return found

    async def _read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        self._opened()
        return await self._store.read(fn)

    async def _seen(self, rows: builtins.list[Row]) -> builtins.list[Row]:
        """Return rows as readers see them: ``lost`` if no process runs an active job any more."""
        mine = self._opened().mine
        for number, row in enumerate(rows):
            if row["state"] not in table.ACTIVE or row["id"] in mine:
                continue
            if await in_thread(self._is_free, row["id"]):
                again = await self._read(partial(table.find, key=row["id"]))
                same = (again["attempt"], again["state"] in table.ACTIVE) == (row["attempt"], True)
                rows[number] = {**again, "state": State.LOST} if same else again
        return rows

    def _is_free(self, job: str) -> bool:
        lease = Lease.take(self._directory.lease(job))
        if lease is not None:
            lease.release()
        return lease is not None


def _check_name(name: str) -> None:
    if not isinstance(cast("object", name), str) or not _NAME.match(name):
        raise ValueError(
            f"A name has up to 80 letters, digits and . _ -, and begins with a letter or a digit; got"
            f" {name!r}."
        )
