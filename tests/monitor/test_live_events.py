"""A run of this process gets its events from the writers, each one once, and without the disk."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

from asyncmon.monitor import RunDirectory
from asyncmon.summary import FileWriter, Summary, event_log
from asyncmon.system.files import FileCalls

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class FullDisk(FileCalls):
    """Has no space left."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


async def steps(run: RunDirectory, tag: str = "loss") -> list[int]:
    await run.refresh()
    run.scalars.publish(1)
    found = run.scalars.points([tag])
    return found[tag].steps.tolist() if tag in found else []


async def test_earlier_events_are_read_once_and_later_ones_come_from_memory(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as old:
        old.start(0)
        for step in (1, 2, 3):
            old.add_scalar("loss", 1.0, step)
    async with FileWriter(tmp_path) as writer:
        writer.start(2)
        writer.add_scalar("loss", 0.1, 3)
        await writer.flush()
        writer.add_scalar("loss", 1.0, 4)  # pending
        run = RunDirectory(tmp_path, live=True)
        assert await steps(run) == [1, 2, 3]
        writer.add_summary(Summary([Summary.Value("loss", 1.0)]), 5)
        writer.add_histogram("weights", np.ones(3), 6)
        assert await steps(run) == [1, 2, 3, 4, 5]
        assert run.scalars.points(["loss"])["loss"].values[2] == np.float32(0.1)
        assert (run.status().step, run.status().state) == (6, "running")
        await writer.flush()
        assert await steps(run) == [1, 2, 3, 4, 5]
        writer.start(3)
        writer.add_scalar("loss", 2.0, 4)
        assert await steps(run) == [1, 2, 3, 4]
    assert await steps(run) == [1, 2, 3, 4]
    assert run.status().state == "stopped"
    async with FileWriter(tmp_path) as again:
        again.add_scalar("loss", 1.0, 5)
        assert await steps(run) == [1, 2, 3, 4, 5]
    assert await steps(run) == [1, 2, 3, 4, 5]
    assert await steps(RunDirectory(tmp_path)) == [1, 2, 3, 4, 5]


async def test_any_moment_of_a_write_is_right(tmp_path: Path) -> None:
    for turns in range(12):
        async with FileWriter(tmp_path / str(turns), max_queue=3) as writer:
            for step in range(10):
                writer.add_scalar("loss", 1.0, step)
            for _ in range(turns):
                await asyncio.sleep(0)
            run = RunDirectory(tmp_path / str(turns), live=True)
            for step in range(10, 20):
                await run.refresh()
                writer.add_scalar("loss", 1.0, step)
            await writer.flush()
            await run.refresh()
            assert await steps(run) == list(range(20))


async def test_a_removed_directory_and_a_full_disk_hide_nothing(tmp_path: Path) -> None:
    full = FileWriter(tmp_path / "full", calls=FullDisk())
    async with FileWriter(tmp_path / "gone") as writer:
        runs = {writer: RunDirectory(tmp_path / "gone", live=True)}
        runs[full] = RunDirectory(tmp_path / "full", live=True)
        for one, run in runs.items():
            one.add_scalar("loss", 1.0, 1)
            assert await steps(run) in ([], [1])
        await asyncio.to_thread(shutil.rmtree, tmp_path / "gone")
        for step in range(2, 10):
            for one, run in runs.items():
                one.add_scalar("loss", 1.0, step)
                await asyncio.sleep(1)
                assert (await steps(run))[-1] == step
        for run in runs.values():
            assert await steps(run) == list(range(1, 10))
    with pytest.raises(OSError, match="No space left"):
        await full.close()


async def test_events_that_nobody_takes_are_read_from_the_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_MOST_TAPPED", 10)
    async with FileWriter(tmp_path) as writer:
        run = RunDirectory(tmp_path, live=True)
        writer.add_scalar("loss", 1.0, 0)
        await run.refresh()
        for step in range(1, 100):
            writer.add_scalar("loss", 1.0, step)
        await writer.flush()
        assert await steps(run) == list(range(100))
        writer.add_scalar("loss", 1.0, 100)
        assert await steps(run) == list(range(101))


async def test_threads_may_write_while_a_run_is_added(tmp_path: Path) -> None:
    async with FileWriter(tmp_path) as writer:

        def write() -> None:
            for step in range(20_000):
                writer.add_scalar("loss", 1.0, step)

        writing = asyncio.ensure_future(asyncio.to_thread(write))
        first = RunDirectory(tmp_path, live=True)
        await first.refresh()
        while not writing.done():
            await RunDirectory(tmp_path, live=True).refresh()
        await writing
        await first.refresh()
        assert (await steps(first))[-1] == 19_999
