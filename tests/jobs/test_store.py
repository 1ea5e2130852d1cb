"""Transactions of the table: shared, durable, and each call on its own."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asyncmon.jobs.store import Store, add_event


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Store]:
    store = Store(path)
    try:
        yield store
    finally:
        await store.close()


def adds(value: str) -> Any:
    return lambda db: add_event(db, "job", 0.0, "state", value, {})


def messages(db: sqlite3.Connection) -> list[str]:
    return [row["message"] for row in db.execute("SELECT message FROM events ORDER BY seq")]


@pytest.mark.asyncio
async def test_calls_that_wait_share_a_transaction_and_keep_their_order(tmp_path: Path) -> None:
    async with opened(tmp_path / "table") as store:
        await store.write(lambda db: db.execute("CREATE TEMP TABLE commits(n)"))
        commits = []
        calls = [store.write(lambda db: commits.append(db.total_changes)) for _ in range(3)]
        await asyncio.gather(*calls, *[store.write(adds(str(n))) for n in range(2_500)])
        assert await store.read(messages) == [str(n) for n in range(2_500)]


@pytest.mark.asyncio
async def test_an_error_takes_back_its_own_call_only(tmp_path: Path) -> None:
    def fails(db: sqlite3.Connection) -> None:
        adds("lost")(db)
        raise LookupError("no")

    async with opened(tmp_path / "table") as store:
        results = await asyncio.gather(
            store.write(adds("a")), store.write(fails), store.write(adds("b")), return_exceptions=True
        )
        assert [type(result) for result in results] == [type(None), LookupError, type(None)]
        assert await store.read(messages) == ["a", "b"]


@pytest.mark.asyncio
async def test_the_file_is_durable_and_no_wal(tmp_path: Path) -> None:
    async with opened(tmp_path / "table") as store:
        journal, synchronous = await store.write(
            lambda db: [db.execute(f"PRAGMA {name}").fetchone().popitem()[1]
                        for name in ("journal_mode", "synchronous")]
        )  # fmt: skip
    assert (journal, synchronous) == ("truncate", 2)


@pytest.mark.asyncio
async def test_a_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "table") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    async with opened(tmp_path / "table") as store:
        with pytest.raises(RuntimeError, match="has the version 99, and this asyncmon knows 1"):
            await store.write(messages)


@pytest.mark.asyncio
async def test_a_full_disk_fails_all_calls_of_the_transaction_and_the_next_ones_work(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "table") as store:
        await store.write(adds("a"))
        pages = await store.write(lambda db: db.execute("PRAGMA page_count").fetchone()["page_count"])
        await store.write(lambda db: db.execute(f"PRAGMA max_page_count = {pages}"))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await store.write(adds("x" * 100_000))
        await store.write(lambda db: db.execute("PRAGMA max_page_count = 1000"))
        await store.write(adds("b"))
        assert await store.read(messages) == ["a", "b"]


@pytest.mark.asyncio
async def test_the_newest_metrics_events_are_kept_and_all_states(tmp_path: Path) -> None:
    def fill(db: sqlite3.Connection) -> None:
        adds("queued")(db)
        for n in range(1_100):
            add_event(db, "job", 0.0, "metrics", str(n), {"loss": float("nan")})

    async with opened(tmp_path / "table") as store:
        await store.write(fill)
        found = await store.read(messages)
        assert (len(found), found[0], found[1], found[-1]) == (1_001, "queued", "100", "1099")
        row = await store.read(
            lambda db: db.execute("SELECT data FROM events LIMIT 1 OFFSET 1").fetchone()
        )
        assert row == {"data": {"loss": "NaN"}}
