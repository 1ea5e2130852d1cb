"""The states of jobs, and the transactions that change them.

::

    queued --claim--> opening --session open--> running --end--> completed stopped cancelled failed
       ^                 |                         |
       +-- resume -- paused <------ pause ---------+
       claimed again:  preempted (a shutdown), lost (the process died)

A request to a job that a process runs is a column, not a state: the end says what really happened.
Every function here is called in a transaction of the :class:`~asyncmon.jobs.store.Store`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Row, add_event, json_text
from asyncmon.system.error_text import encodable


class State(StrEnum):
    """The state of a job. Compares equal to its text."""

    QUEUED = "queued"
    OPENING = "opening"
    """A process runs the kind, and no session of it is open yet."""
    RUNNING = "running"
    PAUSED = "paused"
    """Saved and ended, until :meth:`Job.resume`."""
    PREEMPTED = "preempted"
    """Saved and ended by a shutdown. The next process with room continues it."""
    LOST = "lost"
    """Its process died. The next process with room continues it."""
    COMPLETED = "completed"
    """The kind returned."""
    STOPPED = "stopped"
    """The kind returned, after a stop of its session that was requested elsewhere."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    """The kind raised an error, or its process died too often."""


CLAIMABLE = (State.QUEUED, State.PREEMPTED, State.LOST)
ACTIVE = (State.OPENING, State.RUNNING)
FINAL = (State.COMPLETED, State.STOPPED, State.CANCELLED, State.FAILED)

RANK = {"shutdown": 1, "pause": 2, "cancel": 3}
"""The requests to a running job. A higher one replaces a lower one."""
AFTER = {"shutdown": State.PREEMPTED, "pause": State.PAUSED, "cancel": State.CANCELLED}
"""The state of a job that ends by a request."""

ALONE = 2
"""The number of losses without a new step after which a job runs alone."""
MOST_LOST = 5
"""The number of losses without a new step after which a job has failed."""


class StateError(RuntimeError):
    """The state of a job does not allow this."""


class Spec(NamedTuple):
    """A job to be inserted."""

    id: str
    kind: str
    params: str
    """JSON with sorted keys."""
    name: str
    priority: int = 0
    rungs: tuple[int, ...] = ()
    """The steps at which a sweep judges it."""


class End(NamedTuple):
    """How an attempt has ended."""

    state: State
    cause: str
    error: str | None = None
    step: int | None = None
    """The newest saved step."""


class Found(NamedTuple):
    """What the run record says of an attempt whose process is dead."""

    preempted: bool = False
    """Whether it has saved and ended in order, as a child process does whose parent has died."""
    saved: int | None = None
    """The newest saved step."""


class Claim(NamedTuple):
    """A job that this process runs now."""

    row: Row
    lease: Lease


def any_of(states: Collection[str]) -> str:
    return "(" + ",".join(f"'{state}'" for state in states) + ")"


def insert(db: sqlite3.Connection, now: float, spec: Spec) -> tuple[Row, bool]:
    """Insert a job and return its row and True, or return that of an equal one and False.

    Raises:
        FileExistsError: another job has its name.
    """
    old = None
    if spec.name != spec.id:
        old = db.execute("SELECT * FROM jobs WHERE name = ?", (spec.name,)).fetchone()
    if old is not None:
        same = (old["kind"], old["params"], old["rungs"])
        if same != (spec.kind, json.loads(spec.params), list(spec.rungs)):
            raise FileExistsError(
                f"There is a job {spec.name!r} already, of the kind {old['kind']!r} with the parameters"
                f" {old['params']!r}. Use another name, or delete that job."
            )
        return old, False
    row = db.execute(
        "INSERT INTO jobs(id, name, kind, params, priority, state, rungs, submitted)"
        " VALUES (?,?,?,?,?,'queued',?,?) RETURNING *",
        (spec.id, spec.name, spec.kind, spec.params, spec.priority, json.dumps(spec.rungs), now),
    ).fetchone()
    add_event(db, spec.id, now, "state", "queued", {"state": "queued"})
    return row, True


def find(db: sqlite3.Connection, key: str) -> Row:
    """Return the row of an id or a name. Raises KeyError."""
    # A job may be named like the id of another one.
    row: Row | None = db.execute(
        "SELECT * FROM jobs WHERE id = :key OR name = :key ORDER BY id != :key LIMIT 1", {"key": key}
    ).fetchone()
    if row is None:
        raise KeyError(f"There is no job {key!r}.")
    return row


def request(db: sqlite3.Connection, now: float, job: str, what: str) -> Row:
    """Request the pause or the cancellation of a job. A waiting one has it at once.

    Raises:
        StateError: it has ended.
        KeyError: it was deleted.
    """
    row = find(db, job)
    if row["state"] in FINAL:
        raise StateError(f"The job {row['name']!r} is {row['state']}.")
    if row["state"] in ACTIVE:  # its owner does it, or the process that finds the owner dead
        if RANK[what] > RANK.get(row["request"], 0):
            db.execute("UPDATE jobs SET request = ? WHERE id = ?", (what, row["id"]))
    elif row["state"] != AFTER[what]:
        set_state(db, now, row["id"], End(AFTER[what], what))
    return find(db, job)


def resume(db: sqlite3.Connection, now: float, job: str, passed: int | None = None) -> Row:
    """Queue a paused job again.

    Args:
        passed: the rung of a sweep that it has passed.

    Raises:
        StateError: it is not paused, or not yet.
        KeyError: it was deleted.
    """
    row = find(db, job)
    if row["state"] in ACTIVE and row["request"] == "pause":
        raise StateError(f"The job {row['name']!r} is still pausing. Wait for 'paused'.")
    if row["state"] != State.PAUSED:
        raise StateError(f"The job {row['name']!r} is {row['state']}, not paused.")
    if passed is not None:
        db.execute("UPDATE jobs SET passed = ? WHERE id = ?", (passed, row["id"]))
    set_state(db, now, row["id"], End(State.QUEUED, "resumed"))
    return find(db, job)


def set_state(db: sqlite3.Connection, now: float, job: str, end: End) -> None:
    """Set a state that no process owns, with its event."""
    ended = now if end.state in FINAL else None
    end = end._replace(cause=encodable(end.cause))  # the text of a user's stop
    db.execute(
        "UPDATE jobs SET state = ?, cause = ?, error = ?, ended = ?, owner = NULL, request = NULL"
        " WHERE id = ?",
        (end.state, end.cause, end.error, ended, job),
    )
    level = {State.FAILED: "error", State.LOST: "warn"}.get(end.state, "info")
    message = f"{end.state}: {end.error or end.cause}"
    add_event(db, job, now, "state", message, end._asdict(), level)


def advance(db: sqlite3.Connection, job: str, step: int | None) -> None:
    """Note the newest saved step. It never goes back: a restart may restore an older one."""
    if step is not None:
        db.execute("UPDATE jobs SET step = max(coalesce(step, 0), ?) WHERE id = ?", (step, job))


def progress(
    db: sqlite3.Connection, now: float, row: Row, owner: str, kind: str, data: Mapping[str, Any]
) -> None:
    """Record what a running attempt reports, unless it is over."""
    job = row["id"]
    present = db.execute(
        f"SELECT state, metrics, judged FROM jobs WHERE id = ? AND owner = ? AND attempt = ?"
        f" AND state IN {any_of(ACTIVE)}",
        (job, owner, row["attempt"]),
    ).fetchone()
    if present is None:
        return
    if kind == "metrics":
        found = json_text({**present["metrics"], **data["metrics"]})
        db.execute("UPDATE jobs SET metrics = ? WHERE id = ?", (found, job))
        if data.get("rung") is not None:
            judged = {str(data["rung"]): data["metrics"], **present["judged"]}  # the first one counts
            db.execute("UPDATE jobs SET judged = ? WHERE id = ?", (json_text(judged), job))
        add_event(db, job, now, "metrics", f"step {data['step']}", dict(data))
        return
    advance(db, job, data["step"])
    if kind == "running" and present["state"] == State.OPENING:
        db.execute("UPDATE jobs SET state = 'running' WHERE id = ?", (job,))
        message = "running" if data["step"] is None else f"running from step {data['step']}"
        add_event(db, job, now, "state", message, {"state": "running", **data})


def take_turn(
    db: sqlite3.Connection,
    now: float,
    owner: str,
    mine: Collection[str],
    kinds: Collection[str],
    room: Callable[[], int],
    lease_of: Callable[[str], Any],
    record_of: Callable[[Row], Found],
    claims: list[Claim],
) -> list[tuple[str, str]]:
    """Adopt the jobs of dead processes, claim the next ones, and return the requests to own jobs.

    Args:
        owner: this process.
        mine: the jobs that it runs.
        kinds: the kinds of this process.
        room: returns the largest number of running jobs, of all processes; 0 to claim nothing.
        lease_of: returns the path of a job's lease.
        record_of: returns what the run record says of an attempt.
        claims: gets the claims as they are made. Their leases must be released if the commit fails.
    """
    active = db.execute(f"SELECT * FROM jobs WHERE state IN {any_of(ACTIVE)}").fetchall()
    requests = [(row["id"], row["request"]) for row in active if row["id"] in mine and row["request"]]
    running = []
    for row in active:
        lease = None
        if row["id"] not in mine and row["owner"] != owner:
            lease = Lease.take(lease_of(row["id"]))
        if lease is None:
            running.append(row)
            continue
        try:  # its processes are dead
            adopt(db, now, row, record_of(row))
        finally:
            lease.release()
    _claim(db, now, owner, kinds, room(), running, lease_of, claims)
    return requests


def _claim(
    db: sqlite3.Connection,
    now: float,
    owner: str,
    kinds: Collection[str],
    room: int,
    running: list[Row],
    lease_of: Callable[[str], Any],
    claims: list[Claim],
) -> None:
    waiting = db.execute(
        f"SELECT id, lost, lost_step, step FROM jobs WHERE state IN {any_of(CLAIMABLE)}"
        f" AND kind IN ({','.join('?' * len(kinds))}) ORDER BY priority DESC, seq LIMIT ?",
        (*kinds, room + 10),
    ).fetchall()
    for row in waiting:
        if len(running) >= room or any(map(_runs_alone, running)):
            return
        if running and _runs_alone(row):
            return  # the running ones end first: without this it would wait for ever in a busy queue
        lease = Lease.take(lease_of(row["id"]))
        if lease is None:
            continue  # a process of an earlier attempt has not ended
        try:
            new = db.execute(
                "UPDATE jobs SET state = 'opening', owner = ?, attempt = attempt + 1, cause = NULL,"
                " error = NULL, started = coalesce(started, ?) WHERE id = ? RETURNING *",
                (owner, now, row["id"]),
            ).fetchone()
            data = {"state": "opening", "attempt": new["attempt"], "owner": owner}
            add_event(db, row["id"], now, "state", f"opening, attempt {new['attempt']}", data)
        except BaseException:
            lease.release()
            raise
        claims.append(Claim(new, lease))
        running.append(new)


def _runs_alone(row: Row) -> bool:
    """Return whether a job may be what kills its process: several losses, and no new step since."""
    return bool(row["lost"] >= ALONE) and (row["step"] or 0) <= row["lost_step"]


def adopt(
    db: sqlite3.Connection,
    now: float,
    row: Row,
    found: Found,
    why: str = "its process died",
) -> None:
    """Decide about a job whose attempt has no end.

    Args:
        row: its row, active.
        found: what its run record says.
        why: for people.
    """
    job = row["id"]
    advance(db, job, found.saved)  # the process may have died between a commit and its record here
    step = max(row["step"] or 0, found.saved or 0)
    if row["request"] is not None:  # not run again only to be stopped
        set_state(db, now, job, End(AFTER[row["request"]], row["request"]))
        return
    if found.preempted:
        set_state(db, now, job, End(State.PREEMPTED, "shutdown"))
        return
    lost = 1 if step > row["lost_step"] else row["lost"] + 1
    db.execute(
        "UPDATE jobs SET lost = ?, lost_step = max(lost_step, ?) WHERE id = ?", (lost, step, job)
    )
    if lost >= MOST_LOST:
        text = f"Its process died {lost} times at step {step} ({why})."
        set_state(db, now, job, End(State.FAILED, "lost", text))
    else:
        set_state(db, now, job, End(State.LOST, why))


def end(db: sqlite3.Connection, now: float, row: Row, owner: str, ended: End, found: Found) -> bool:
    """Record the end of an attempt. False: another process owns the job, so its lease was broken."""
    job = row["id"]
    present = db.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
    if present is None or (present["owner"], present["attempt"]) != (owner, row["attempt"]):
        return False
    advance(db, job, ended.step)
    if ended.state == State.LOST:
        adopt(db, now, find(db, job), found, ended.cause)
    else:
        set_state(db, now, job, ended)
    return True


def delete(db: sqlite3.Connection, job: str) -> None:
    """Delete the row and the events of a job that has ended.

    Raises:
        StateError: it has not.
        KeyError: it was deleted.
    """
    row = find(db, job)
    if row["state"] not in FINAL:
        raise StateError(f"The job {row['name']!r} is {row['state']}: cancel it first.")
    db.execute("DELETE FROM events WHERE job = ?", (row["id"],))
    db.execute("DELETE FROM jobs WHERE id = ?", (row["id"],))
