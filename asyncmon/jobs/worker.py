"""The work of a queue in one process: it adopts, claims, runs, stops and deletes jobs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
import sqlite3
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from asyncmon.jobs import table
from asyncmon.jobs.child_process import KILL_SECS, Child
from asyncmon.jobs.directories import QueueDirectory
from asyncmon.jobs.execution import Emit, Execution, Kind
from asyncmon.jobs.kinds import KindSpec
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Row, Store
from asyncmon.jobs.table import FINAL, Claim, End, Found, State, StateError
from asyncmon.runtime.run_record import read_record
from asyncmon.system import clock
from asyncmon.system.cancellation import outlast, shielded
from asyncmon.system.error_text import phrase
from asyncmon.system.files import in_thread
from asyncmon.system.signals import server_is_stopping

logger = logging.getLogger(__name__)

POLL_SECS = 0.2
"""The interval in which changes of other processes are noticed."""

ADOPT_SECS = 1.0
"""The longest time between two searches for jobs of dead processes, and for old jobs."""

_LONGEST_PAUSE_SECS = 10.0
_MOST_DELETED = 20  # at once: jobs that wait are claimed in between


class _Runner(Protocol):
    """Runs one attempt: in this loop, or in a child process."""

    step: int | None

    def stop(self, request: str, grace: float) -> None: ...
    async def execute(self, fn: Kind) -> End: ...


class _Attempt(NamedTuple):
    runner: _Runner
    task: asyncio.Task[None]


class Worker:
    """Runs the jobs of a queue in this process, from :meth:`start` until :meth:`close`.

    Args:
        store, directory: of the queue.
        kinds: those of this process.
        max_running: the largest number of running jobs, of all processes.
        grace: the grace period of a stopped job.
        keep: the number of finished jobs to keep, and the seconds to keep them. None: all.
    """

    def __init__(
        self,
        store: Store,
        directory: QueueDirectory,
        kinds: Mapping[str, KindSpec],
        max_running: int,
        grace: float,
        keep: tuple[int | None, float | None],
    ) -> None:
        self.wake = asyncio.Event()
        """Set where there may be something to do."""
        self.mine: dict[str, _Attempt] = {}
        """The jobs that this process runs."""
        self._store = store
        self._directory = directory
        self._kinds = kinds
        self._max_running = max_running
        self._grace = grace
        self._keep, self._keep_secs = keep
        self._owner = f"{socket.gethostname()}:{os.getpid()}:{clock.random_bytes(4).hex()}"
        self._is_closing = False
        self._kept: set[str] = set()  # old jobs that cannot be deleted
        self._serving: asyncio.Task[None]

    def start(self) -> None:
        """Begin to run jobs, in a task."""
        name = f"job queue {self._directory.root.name}"
        self._serving = asyncio.create_task(self._serve(), name=name)

    async def close(self) -> None:
        """Stop the jobs, and wait for them and the loop."""
        self._is_closing = True
        self.wake.set()
        self.stop_all()
        await asyncio.wait([self._serving])
        self.stop_all()  # jobs that the last turn has claimed
        if tasks := [attempt.task for attempt in self.mine.values()]:
            await asyncio.wait(tasks, timeout=self._grace + KILL_SECS)
        for job in self.mine:
            logger.warning("The job %s ignores its stop. It is lost when this process ends.", job)

    async def _serve(self) -> None:
        """Adopt, claim, stop and delete jobs until :meth:`close`."""
        version, due, pause = None, 0.0, POLL_SECS
        while not self._is_closing:
            try:
                if server_is_stopping():
                    # uvicorn closes the queue after the last response: jobs use that time, too.
                    self.stop_all()
                    self._store.changes.notify()
                found = await self._store.read(_data_version)
                now = clock.monotonic()
                if found != version or self.wake.is_set() or now >= due:
                    is_due, version = now >= due, found
                    self.wake.clear()
                    self._store.changes.notify()
                    await self._take_turn()
                    if is_due:
                        due = now + ADOPT_SECS
                        await self._delete_old()
                pause = POLL_SECS
            except Exception as problem:
                pause = min(2 * pause, _LONGEST_PAUSE_SECS)
                logger.warning(
                    "The job queue cannot use %s (%s). It tries again in %.1f s.",
                    self._directory.table, phrase(problem), pause,
                )  # fmt: skip
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), pause)

    def _room(self) -> int:
        return 0 if self._is_closing or server_is_stopping() else self._max_running

    async def _take_turn(self) -> None:
        claims: list[Claim] = []
        try:
            take_turn = partial(
                table.take_turn,
                now=clock.wall(), owner=self._owner, mine=frozenset(self.mine),
                kinds=tuple(self._kinds), room=self._room, lease_of=self._directory.lease,
                record_of=self._record_of, claims=claims,
            )  # fmt: skip
            requests = await self._store.write(take_turn)
        except BaseException:
            for claim in claims:  # not committed
                claim.lease.release()
            raise
        for claim in claims:
            self._start(claim)
        for job, request in requests:
            if job in self.mine:
                self.mine[job].runner.stop(request, self._grace)
        if self._is_closing:
            self.stop_all()

    def _record_of(self, row: Row) -> Found:
        """Return what the run record says of an attempt. Blocking."""
        record = read_record(str(self._directory.run(row["name"])))
        if record is None or record.job is None or record.job.get("id") != row["id"]:
            return Found()
        is_last = record.job.get("attempt") == row["attempt"]
        return Found(is_last and record.state == "preempted", record.saved)

    async def _delete_old(self) -> None:
        if self._keep is None and self._keep_secs is None:
            return
        before = -1.0 if self._keep_secs is None else clock.wall() - self._keep_secs
        keep = math.inf if self._keep is None else self._keep
        old = await self._store.read(
            lambda db: db.execute(
                "SELECT id FROM (SELECT id, ended, row_number() OVER (ORDER BY ended DESC, seq DESC)"
                f" AS place FROM jobs WHERE state IN {table.any_of(FINAL)})"
                " WHERE place > ? OR ended < ? LIMIT ?",
                (keep, before, _MOST_DELETED + len(self._kept)),
            ).fetchall()
        )
        for job in [row["id"] for row in old if row["id"] not in self._kept]:
            try:
                await self.delete(job)
            except (StateError, KeyError):
                continue  # another process deletes it
            except OSError as problem:
                self._kept.add(job)
                logger.warning("The job %s is not deleted: %s.", job, phrase(problem))

    # -- attempts

    def stop_all(self) -> None:
        for attempt in list(self.mine.values()):
            attempt.runner.stop("shutdown", self._grace)

    def _start(self, claim: Claim) -> None:
        row, lease = claim
        logger.info("The job %r begins, attempt %d.", row["name"], row["attempt"])
        spec = self._kinds[row["kind"]]
        path, emit = self._directory.run(row["name"]), self._emit_for(row)
        runner: _Runner
        if spec.executor == "process":
            runner = Child(row, path, emit, lease, self._grace)
        else:
            runner = Execution(row, path, emit)
        task = asyncio.create_task(self._run(claim, runner, spec), name=f"job {row['name']}")
        self.mine[row["id"]] = _Attempt(runner, task)

    async def _run(self, claim: Claim, runner: _Runner, spec: KindSpec) -> None:
        row = claim.row
        ended = End(State.LOST, "its task was cancelled")
        try:
            await in_thread(self._directory.prepare, row["id"], row["name"])
            # A stop cancels this task, and not the record of the end.
            body = asyncio.create_task(
                runner.execute(spec.fn), name=f"job {row['name']}, {row['kind']}"
            )
            cancelled = await outlast(body, cancel_after=0)
            ended = body.result()._replace(step=runner.step)
            if cancelled is not None:
                raise cancelled
        except Exception as error:
            logger.exception("The job %r was not run.", row["name"])
            ended = End(State.FAILED, "error", phrase(error))
        finally:
            await shielded(self._end, claim, ended, name=f"end of job {row['name']}")

    async def _end(self, claim: Claim, ended: End) -> None:
        row, lease = claim
        pause, found = POLL_SECS, Found()
        if ended.state == State.LOST:
            found = await in_thread(self._record_of, row)
        while True:  # first the table, then the lease: else another process would run the job again
            try:
                write = partial(table.end, row=row, owner=self._owner, ended=ended, found=found)
                if not await self._store.write(partial(write, now=clock.wall())):
                    logger.error("The job %r has another owner: its lease was broken.", row["name"])
                break
            except sqlite3.Error as problem:
                logger.warning(
                    "The end of the job %r is not recorded: %s. It is tried again in %.1f s.",
                    row["name"], phrase(problem), pause,
                )  # fmt: skip
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECS)
            except RuntimeError:  # the queue did not wait for it any longer
                break
        logger.info("The job %r is %s: %s.", row["name"], ended.state, ended.error or ended.cause)
        lease.release(remove=ended.state in FINAL)
        self.mine.pop(row["id"], None)
        self.wake.set()
        self._store.changes.notify()

    def _emit_for(self, row: Row) -> Emit:
        def emit(kind: str, data: Mapping[str, Any]) -> None:
            write = partial(
                table.progress, now=clock.wall(), row=row, owner=self._owner, kind=kind, data=data
            )
            self._store.write(write).add_done_callback(_log_failure)

        return emit

    # -- deletion

    async def delete(self, key: str) -> None:
        """See :meth:`JobQueue.delete`."""
        row = await self._store.read(partial(table.find, key=key))
        job, name = row["id"], row["name"]
        discarded: list[bool] = []

        def delete(db: sqlite3.Connection) -> bool:
            table.delete(db, job)
            lease = Lease.take(self._directory.lease(job))
            if lease is None:
                raise StateError(f"A process of the job {name!r} has not ended yet.")
            try:
                discarded.append(self._directory.discard(job, name))
            finally:
                lease.release(remove=True)
            return discarded[-1]

        for pause in (0.01, 0.05, 0.2, 0.5, None):  # its end is recorded before its lease is released
            try:
                is_own = await self._store.write(delete)
                break
            except StateError:
                if pause is None or row["state"] not in FINAL:
                    raise
                await asyncio.sleep(pause)
            except sqlite3.Error:
                if any(discarded):
                    await in_thread(self._directory.restore, job, name)
                raise
        if is_own:
            await in_thread(self._directory.delete, job)


def _data_version(db: sqlite3.Connection) -> int:
    version: int = db.execute("PRAGMA data_version").fetchone()["data_version"]
    return version


def _log_failure(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        logger.warning("An event of a job is not recorded: %s.", phrase(error))
