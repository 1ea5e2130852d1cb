"""Deletion takes only the queue's own files, in an order that a crash does not break."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.jobs.directories import _TRASH, MARK, QueueDirectory
from tests.jobs.kinds import counting

pytestmark = [pytest.mark.asyncio]


def queue_of(root: Path, **options: Any) -> am.jobs.JobQueue:
    queue = am.jobs.JobQueue(root, **options)

    @queue.kind("writes")
    async def writes(job: Any) -> None:
        (job.directory / "weights").write_text("w")

    return queue


async def ended(queue: am.jobs.JobQueue, name: str) -> am.jobs.Job:
    return await (await queue.submit("writes", name=name)).wait()


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


async def test_a_deleted_job_leaves_nothing(root: Path) -> None:
    async with queue_of(root) as queue:
        job, kept = await ended(queue, "a"), await ended(queue, "b")
        await queue.delete(job)
        for call in (lambda: queue.delete(job), job.refresh, job.cancel, lambda: queue.get("a")):
            with pytest.raises(KeyError, match="There is no job"):
                await call()
        assert [one.name for one in await queue.list()] == [kept.name]
        assert [event async for event in kept.events()]
        assert (await ended(queue, "a")).id != job.id  # the name is free
    assert names(root / "runs") == ["a", "b"]
    assert names(root) == ["jobs.sqlite3", "jobs.sqlite3-journal", "leases", "runs"]
    assert names(root / "leases") == []


@pytest.mark.virtual_time
async def test_a_deleted_job_with_sessions_and_checkpoints_leaves_nothing(root: Path) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("counts")
    async def counts(job: am.jobs.RunningJob) -> None:
        for last_step in (3, 5):
            async with counting(job, last_step) as sess:
                while not sess.should_stop():
                    await sess.run("count")

    async with queue:
        job = await (await queue.submit("counts", name="a")).wait()
        assert (job.state, job.step) == ("completed", 5)
        assert MARK in names(root / "runs" / "a")
        await queue.delete(job)
        assert names(root / "runs") == []


async def test_a_job_that_has_not_ended_is_not_deleted(root: Path) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("waits")
    async def waits(job: Any) -> None:
        await asyncio.sleep(100)

    async with queue:
        job = await queue.submit("waits", name="a")
        await job.wait("opening")
        with pytest.raises(am.jobs.StateError, match="'a' is opening: cancel it first"):
            await queue.delete(job)
    assert names(root / "runs") == ["a"]


@pytest.mark.virtual_time
async def test_the_newest_finished_jobs_are_kept(root: Path) -> None:
    async with queue_of(root, keep=2) as queue:
        for name in "abcd":
            await ended(queue, name)
        await asyncio.sleep(3)
        assert [one.name for one in await queue.list()] == ["c", "d"]
    assert names(root / "runs") == ["c", "d"]


@pytest.mark.virtual_time
async def test_old_job_that_cannot_be_deleted_is_named_once_and_holds_up_no_other(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_of(root, keep=1) as queue:
        first = await ended(queue, "a")
        (root / f"{_TRASH}{first.id}").write_text("in the way of the directory")
        for name in "bcd":
            await ended(queue, name)
        await asyncio.sleep(5)
        assert [one.name for one in await queue.list()] == ["a", "d"]
    warnings = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"The job {first.id} is not deleted: NotADirectoryError")


@pytest.mark.virtual_time
async def test_finished_jobs_are_kept_for_some_days(root: Path) -> None:
    async with queue_of(root, keep_days=60 / 86_400) as queue:
        await ended(queue, "a")
        await asyncio.sleep(40)
        await ended(queue, "b")
        await asyncio.sleep(40)
        assert [one.name for one in await queue.list()] == ["b"]
    assert names(root / "runs") == ["b"]


async def test_a_directory_that_was_there_before_is_used_and_kept(root: Path) -> None:
    (root / "runs" / "a").mkdir(parents=True)
    (root / "runs" / "a" / "precious").touch()
    async with queue_of(root) as queue:
        await queue.delete(await ended(queue, "a"))
    assert names(root / "runs" / "a") == ["precious", "weights"]


async def test_the_directory_of_another_job_is_refused(root: Path) -> None:
    (root / "runs" / "a").mkdir(parents=True)
    (root / "runs" / "a" / MARK).write_text("other-1")
    async with queue_of(root) as queue:
        job = await ended(queue, "a")
        assert job.outcome is not None
        assert "belongs to the job 'other-1'" in (job.outcome.error or "")
        await queue.delete(job)
    assert names(root / "runs" / "a") == [MARK]


async def test_no_symbolic_link_is_followed(root: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "data").touch()
    async with queue_of(root) as queue:
        inside, replaced = await ended(queue, "inside"), await ended(queue, "replaced")
        (root / "runs" / "inside" / "link").symlink_to(precious)
        os.rename(root / "runs" / "replaced", precious / "moved")
        (root / "runs" / "replaced").symlink_to(precious / "moved")
        await queue.delete(inside)
        await queue.delete(replaced)
    assert names(precious) == ["data", "moved"]
    assert (precious / "moved" / "weights").exists()
    assert names(root / "runs") == ["replaced"]


async def test_what_a_crash_has_left_is_removed_at_the_next_start(root: Path, tmp_path: Path) -> None:
    (root / ".trash-a-1").mkdir(parents=True)
    (root / ".trash-a-1" / "weights").touch()
    (tmp_path / "precious").mkdir()
    (root / ".trash-b-2").symlink_to(tmp_path / "precious")
    async with queue_of(root):
        pass
    assert ".trash-a-1" not in names(root)
    assert (tmp_path / "precious").exists()


async def test_a_deletion_that_is_not_committed_takes_nothing(root: Path) -> None:
    async with queue_of(root) as queue:
        job = await ended(queue, "a")

        def fails(db: sqlite3.Connection) -> None:
            db.execute("CREATE TEMP TRIGGER refuse BEFORE DELETE ON jobs"
                       " BEGIN SELECT RAISE(ROLLBACK, 'no'); END")  # fmt: skip

        await queue._store.write(fails)
        with pytest.raises(sqlite3.Error, match="no"):
            await queue.delete(job)
        assert (await job.refresh()).state == "completed"
    assert names(root / "runs" / "a") == [MARK, "weights"]


async def test_a_directory_is_complete_before_it_has_its_name(root: Path) -> None:
    directory = QueueDirectory(root)
    directory.open()
    (root / ".new-a-1").mkdir()  # of an attempt that was killed
    assert directory.prepare("a-1", "a") == root / "runs" / "a"
    assert names(root / "runs" / "a") == [MARK]
    assert directory.prepare("a-1", "a") == root / "runs" / "a"
