"""What becomes of jobs whose process died: the table of rules, and jobs that run alone."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from asyncmon.jobs import table
from asyncmon.jobs.lease import Lease
from asyncmon.jobs.store import Row, Store
from asyncmon.jobs.table import End, Found, Spec, State

pytestmark = [pytest.mark.asyncio]
NOW = 100.0


class Process:
    """A process on the table, which claims, and may die."""

    def __init__(self, store: Store, leases: Path, owner: str) -> None:
        self.store, self.leases, self.owner = store, leases, owner
        self.mine: dict[str, table.Claim] = {}

    async def turn(self, room: int = 3, record: Found = Found()) -> list[str]:  # noqa: B008 - frozen
        """Take a turn, and return the names of the claimed jobs."""
        claims: list[table.Claim] = []

        def take(db: sqlite3.Connection) -> list[tuple[str, str]]:
            return table.take_turn(
                db, NOW, self.owner, frozenset(self.mine), ("kind",), lambda: room,
                lambda job: self.leases / job, lambda row: record, claims,
            )  # fmt: skip

        await self.store.write(take)
        self.mine |= {claim.row["id"]: claim for claim in claims}
        return [claim.row["name"] for claim in claims]

    def die(self) -> None:
        for claim in self.mine.values():
            claim.lease.release()
        self.mine.clear()

    async def progress(self, job: str, kind: str, **data: Any) -> None:
        row = self.mine[job].row
        await self.store.write(lambda db: table.progress(db, NOW, row, self.owner, kind, data))

    async def end(self, job: str, state: State, step: int | None = None) -> bool:
        claim = self.mine.pop(job)
        ended = End(state, "", None, step)
        done = await self.store.write(
            lambda db: table.end(db, NOW, claim.row, self.owner, ended, Found())
        )
        claim.lease.release()
        return done


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    store = Store(tmp_path / "table")
    yield store
    await store.close()


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Callable[[str], Process]:
    return lambda owner: Process(store, tmp_path, owner)


async def submit(store: Store, *names: str) -> None:
    specs = [Spec(name, "kind", "{}", name) for name in names]
    await store.write(lambda db: [table.insert(db, NOW, spec) for spec in specs])


async def row_of(store: Store, name: str) -> Row:
    return await store.read(lambda db: table.find(db, name))


async def test_a_job_of_a_living_process_is_not_adopted(store: Store, start: Any) -> None:
    one, other = start("one"), start("other")
    await submit(store, "a")
    assert await one.turn() == ["a"]
    assert await other.turn() == []
    assert (await row_of(store, "a"))["owner"] == "one"


@pytest.mark.parametrize(
    ("request_", "record", "expected"),
    [
        ("cancel", Found(), "cancelled"),
        ("pause", Found(True, 5), "paused"),
        (None, Found(True, 5), "preempted"),
        (None, Found(False, 5), "lost"),
        (None, Found(), "lost"),
    ],
)
async def test_the_request_then_the_record_decide_about_a_dead_owner(
    store: Store, start: Any, request_: str | None, record: Found, expected: str
) -> None:
    one, other = start("one"), start("other")
    await submit(store, "a")
    await one.turn()
    if request_ is not None:
        await store.write(lambda db: table.request(db, NOW, "a", request_))
    one.die()
    await other.turn(room=0, record=record)
    row = await row_of(store, "a")
    assert (row["state"], row["step"], row["owner"]) == (expected, record.saved, None)
    assert row["lost"] == (1 if expected == "lost" else 0)
    assert await other.turn() == (["a"] if expected in ("preempted", "lost") else [])


@pytest.mark.parametrize("waits", [State.QUEUED, State.PREEMPTED, State.LOST])
@pytest.mark.parametrize(("what", "expected"), [("pause", "paused"), ("cancel", "cancelled")])
async def test_request_is_done_at_once_in_each_waiting_state(
    store: Store, waits: State, what: str, expected: str
) -> None:
    await submit(store, "a")
    await store.write(lambda db: table.set_state(db, NOW, "a", End(waits, "")))
    row = await store.write(lambda db: table.request(db, NOW, "a", what))
    assert (row["state"], row["cause"]) == (expected, what)


async def test_pause_of_a_paused_job_is_no_event(store: Store) -> None:
    await submit(store, "a")
    for _ in range(2):
        await store.write(lambda db: table.request(db, NOW, "a", "pause"))
    messages = await store.read(lambda db: db.execute("SELECT message FROM events").fetchall())
    assert [one["message"] for one in messages] == ["queued", "paused: pause"]


async def test_five_losses_at_one_step_are_a_failure(store: Store, start: Any) -> None:
    await submit(store, "a")
    for number in range(5):
        process = start(f"p{number}")
        assert await process.turn(record=Found(False, 7)) == ["a"], number
        process.die()
    await start("last").turn(record=Found(False, 7))
    row = await row_of(store, "a")
    assert (row["state"], row["attempt"]) == ("failed", 5)
    assert row["error"] == "Its process died 5 times at step 7 (its process died)."


async def test_progress_begins_the_count_from_zero(store: Store, start: Any) -> None:
    await submit(store, "a")
    for number in range(20):
        process = start(f"p{number}")
        assert await process.turn() == ["a"]
        await process.progress("a", "saved", step=number // 3)  # a new step in each third attempt
        process.die()
    assert (await row_of(store, "a"))["lost"] <= 3


async def test_a_job_that_was_lost_twice_runs_alone_until_it_has_a_new_step(
    store: Store, start: Any
) -> None:
    await submit(store, "poison")
    for number in range(2):
        process = start(f"p{number}")
        await process.turn()
        process.die()
    await submit(store, "a", "b")
    process = start("p2")
    assert await process.turn() == ["poison"]  # alone
    assert await process.turn() == []
    await process.progress("poison", "saved", step=1)
    assert await process.turn() == ["a", "b"]  # it is not what kills the process
    assert await process.end("poison", State.COMPLETED, 9)


async def test_others_end_before_a_suspect_begins_and_none_begins_before_it(
    store: Store, start: Any
) -> None:
    await submit(store, "poison")
    for number in range(2):
        process = start(f"p{number}")
        await process.turn()
        process.die()
    await start("reader").turn(room=0)
    other = start("other")
    await submit(store, "a", "b")
    await store.write(lambda db: db.execute("UPDATE jobs SET priority = 1 WHERE name = 'a'"))
    assert await other.turn() == ["a"]
    await other.end("a", State.COMPLETED)
    assert await other.turn() == ["poison"]


async def test_an_end_is_recorded_once_and_by_the_owner_only(store: Store, start: Any) -> None:
    one, other = start("one"), start("other")
    await submit(store, "a")
    await one.turn()
    stale = dict(one.mine)
    one.die()
    await other.turn()
    one.mine = stale  # as if a lease had been broken
    assert not await one.end("a", State.COMPLETED, 3)
    await other.progress("a", "running", step=0)
    assert (await row_of(store, "a"))["state"] == "running"
    assert await other.end("a", State.COMPLETED, 4)
    row = await row_of(store, "a")
    assert (row["state"], row["step"], row["attempt"]) == ("completed", 4, 2)
    assert await start("third").turn() == []  # a final state is never overruled


async def test_a_step_never_goes_back(store: Store, start: Any) -> None:
    await submit(store, "a")
    process = start("one")
    await process.turn()
    for step in (5, 3, None):
        await process.progress("a", "saved", step=step)
    assert (await row_of(store, "a"))["step"] == 5


async def test_reports_of_an_earlier_attempt_are_dropped(store: Store, start: Any) -> None:
    await submit(store, "a")
    one, other = start("one"), start("other")
    await one.turn()
    stale = one.mine["a"]
    one.die()
    await other.turn()
    one.mine["a"] = stale
    await one.progress("a", "metrics", step=1, metrics={"loss": 1.0})
    assert (await row_of(store, "a"))["metrics"] == {}


async def test_leases_of_a_turn_are_those_of_its_claims(
    store: Store, start: Any, tmp_path: Path
) -> None:
    await submit(store, "a", "b", "c")
    process = start("one")
    assert await process.turn(room=2) == ["a", "b"]
    assert Lease.take(tmp_path / "a") is None
    free = Lease.take(tmp_path / "c")
    assert free is not None
    free.release()
