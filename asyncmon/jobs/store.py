"""The table of jobs: one SQLite file, a thread that writes and a thread that reads."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from asyncmon.monitor.encoding import to_json
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.error_text import encodable

T = TypeVar("T")
Row = dict[str, Any]
Call = Callable[[sqlite3.Connection], Any]

VERSION = 1
_MOST_CALLS = 1_000  # of one transaction
_BUSY_SECS = 10.0
_KEPT_METRICS = 1_000  # events of a job

_SCHEMA = (
    """CREATE TABLE jobs(
        seq INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, name TEXT UNIQUE NOT NULL, kind TEXT NOT NULL,
        params TEXT NOT NULL, priority INTEGER NOT NULL, state TEXT NOT NULL, request TEXT, owner TEXT,
        attempt INTEGER NOT NULL DEFAULT 0, lost INTEGER NOT NULL DEFAULT 0,
        lost_step INTEGER NOT NULL DEFAULT -1, step INTEGER, metrics TEXT NOT NULL DEFAULT '{}',
        rungs TEXT NOT NULL DEFAULT '[]', passed INTEGER NOT NULL DEFAULT -1,
        judged TEXT NOT NULL DEFAULT '{}', cause TEXT, error TEXT,
        submitted REAL NOT NULL, started REAL, ended REAL)""",
    "CREATE INDEX next_job ON jobs(state, priority DESC, seq)",
    """CREATE TABLE events(
        seq INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, at REAL NOT NULL, type TEXT NOT NULL,
        level TEXT NOT NULL, message TEXT NOT NULL, data TEXT NOT NULL)""",
    "CREATE INDEX job_events ON events(job, seq)",
    f"PRAGMA user_version = {VERSION}",
)
_decode = msgspec.json.decode
# dumps() makes one each time
_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode
_JSON = ("params", "metrics", "rungs", "judged", "data")


class Changes:
    """Wakes what waits for changes of jobs, until it is closed."""

    def __init__(self) -> None:
        self.count = 0
        self._is_closed = False
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Note that a job has changed, in any process."""
        self.count += 1
        self._event.set()
        self._event = asyncio.Event()

    def close(self) -> None:
        """End all waits."""
        self._is_closed = True
        self.notify()

    async def wait(self, count: int) -> bool:
        """Wait until there are more than ``count`` changes. False: it is closed."""
        while self.count == count and not self._is_closed:
            await self._event.wait()
        return not self._is_closed


class Store:
    """The connections to the file of a queue. Calls run in threads, those of :meth:`write` in order.

    Args:
        path: the file, which the first call makes.
    """

    def __init__(self, path: Path) -> None:
        self.changes = Changes()
        self._writer = _Connection(path, self.changes.notify)
        self._reader = _Connection(path, None)

    def write(self, fn: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Call ``fn(connection)`` in a transaction, which it shares with all calls that wait.

        The future is done after the commit, which is durable. An error of the call takes back what the
        call has written, and nothing else.

        Raises:
            sqlite3.Error: the disk is full, or the file is locked for 10 seconds. Nothing was written.
        """
        return self._writer.do(fn)

    def read(self, fn: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Call ``fn(connection)`` outside of a transaction."""
        return self._reader.do(fn)

    async def close(self) -> None:
        """Close the file after the calls that wait."""
        for connection in (self._writer, self._reader):
            await connection.close()


class _Connection:
    """A connection in a thread of its own. The calls that wait together are one batch.

    Args:
        path: the file.
        on_commit: called after each transaction. None: the connection only reads.
    """

    def __init__(self, path: Path, on_commit: Callable[[], None] | None) -> None:
        self._path = path
        self._on_commit = on_commit
        self._writes = on_commit is not None
        self._executor = DaemonExecutor("asyncmon jobs")
        self._db: sqlite3.Connection | None = None
        self._waiting: list[tuple[Call, asyncio.Future[Any]]] = []
        self._is_busy = False
        self._is_closed = False

    def do(self, fn: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        if self._is_closed:
            raise RuntimeError("The job queue is closed.")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((fn, future))
        if not self._is_busy:
            self._start()
        return future

    async def close(self) -> None:
        with contextlib.suppress(Exception):  # what opens the file has raised it
            last = self.do(lambda _: None)  # after the pending calls
            self._is_closed = True
            await last
        if self._db is not None:
            await self._executor.call(self._db.close)
            self._db = None
        self._executor.shutdown()

    def _start(self) -> None:
        batch, self._waiting = self._waiting[:_MOST_CALLS], self._waiting[_MOST_CALLS:]
        self._is_busy = bool(batch)
        if batch:
            call = self._executor.start(self._run, [fn for fn, _ in batch])
            call.add_done_callback(partial(self._settle, batch))

    def _settle(self, batch: list[tuple[Call, asyncio.Future[Any]]], call: asyncio.Future[Any]) -> None:
        error = call.exception()
        outcomes = [(None, error)] * len(batch) if error is not None else call.result()
        for (_, future), (value, failure) in zip(batch, outcomes, strict=True):
            if future.done():
                continue  # its caller was cancelled
            if failure is None:
                future.set_result(value)
            else:
                future.set_exception(failure)
        if self._on_commit is not None:
            self._on_commit()
        self._start()

    # -- in the thread

    def _run(self, calls: list[Call]) -> list[tuple[Any, Exception | None]]:
        """Return the results and errors of the calls. An error of the transaction is raised."""
        db = self._db = self._db or self._open()
        if not self._writes:
            return [_outcome(db, call) for call in calls]
        # IMMEDIATE: a transaction that begins as a reader cannot become a writer beside another one.
        db.execute("BEGIN IMMEDIATE")
        try:
            outcomes = []
            for call in calls:
                db.execute("SAVEPOINT one")
                outcome = _outcome(db, call)
                outcomes.append(outcome)
                try:
                    if outcome[1] is not None:
                        db.execute("ROLLBACK TO one")
                    db.execute("RELEASE one")
                except sqlite3.OperationalError as error:
                    # A full disk has ended it, for all calls, and not each call has raised that.
                    what = f"the database has ended the transaction, as on a full disk: {error}"
                    raise outcome[1] or sqlite3.OperationalError(what) from None
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.OperationalError):  # it has ended
                db.execute("ROLLBACK")
            raise
        return outcomes

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(
            self._path, isolation_level=None, timeout=_BUSY_SECS, check_same_thread=False
        )
        try:
            db.row_factory = _as_dict
            # Not WAL: SQLite before 3.51.3 can damage a WAL file that several connections write.
            db.execute("PRAGMA journal_mode = TRUNCATE")
            db.execute("PRAGMA synchronous = FULL")
            if self._writes:
                _make_tables(db, self._path)
        except BaseException:
            db.close()
            raise
        return db


def _outcome(db: sqlite3.Connection, call: Call) -> tuple[Any, Exception | None]:
    try:
        return call(db), None
    except Exception as error:
        return None, error


def _make_tables(db: sqlite3.Connection, path: Path) -> None:
    db.execute("BEGIN IMMEDIATE")
    found = db.execute("PRAGMA user_version").fetchone()["user_version"]
    if found == 0:
        for statement in _SCHEMA:
            db.execute(statement)
    db.execute("COMMIT")
    if found > VERSION:
        raise RuntimeError(
            f"{str(path)!r} has the version {found}, and this asyncmon knows {VERSION}: it was made by "
            "a newer one. Update asyncmon, or use another directory."
        )


def _as_dict(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
    """Return a row by the names of its columns, with JSON as values."""
    names = [column[0] for column in cursor.description]
    return {
        name: _decode(value) if name in _JSON else value
        for name, value in zip(names, values, strict=True)
    }


def json_text(value: Any) -> str:
    """Return JSON that every reader takes: NaN and infinities become strings, half characters ``?``."""
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        text = _encode(json.loads(to_json(value)))
    return encodable(text)  # a row that cannot be decoded would stop the whole queue


def add_event(
    db: sqlite3.Connection,
    job: str,
    now: float,
    kind: str,
    message: str,
    data: Row,
    level: str = "info",
) -> None:
    """Add an event of a job, ``"state"`` or ``"metrics"``. Of the latter the newest 1,000 are kept."""
    db.execute(
        "INSERT INTO events(job, at, type, level, message, data) VALUES (?,?,?,?,?,?)",
        (job, now, kind, level, message, json_text(data)),
    )
    if kind == "metrics":
        db.execute(
            "DELETE FROM events WHERE job = :job AND type = 'metrics' AND seq <="
            " (SELECT seq FROM events WHERE job = :job AND type = 'metrics'"
            " ORDER BY seq DESC LIMIT 1 OFFSET :kept)",
            {"job": job, "kept": _KEPT_METRICS},
        )
