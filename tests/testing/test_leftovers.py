"""``assert_nothing_left_behind`` finds tasks, threads, descriptors and temporary files."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
from pathlib import Path

import anyio
import pytest

from asyncmon.testing import assert_nothing_left_behind

pytestmark = pytest.mark.asyncio


async def test_a_clean_block_passes(tmp_path: Path) -> None:
    async with assert_nothing_left_behind(tmp_path):
        await asyncio.create_task(asyncio.sleep(0))
        await anyio.to_thread.run_sync(int)
        await asyncio.to_thread(int)
        (tmp_path / "a file that stays").touch()
        with tempfile.NamedTemporaryFile():
            pass


async def test_a_thread_and_a_task_that_are_about_to_end_are_waited_for() -> None:
    release = threading.Event()
    async with assert_nothing_left_behind():
        threading.Thread(target=release.wait).start()
        task = asyncio.create_task(asyncio.Event().wait())
        task.cancel()
        release.set()


async def test_a_task_is_named() -> None:
    with pytest.raises(AssertionError, match="task 'straggler'"):
        async with assert_nothing_left_behind():
            task = asyncio.create_task(asyncio.Event().wait(), name="straggler")
    task.cancel()


async def test_a_thread_is_named() -> None:
    release = threading.Event()
    with pytest.raises(AssertionError, match="thread 'worker'"):
        async with assert_nothing_left_behind():
            threading.Thread(target=release.wait, name="worker").start()
    release.set()


async def test_a_descriptor_is_named_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"file descriptor \d+: .*/opened"):
        async with assert_nothing_left_behind():
            descriptor = os.open(tmp_path / "opened", os.O_CREAT)
    os.close(descriptor)


@pytest.mark.parametrize("name", [".model.ckpt-1.x", "shard.tmp", "shard.partial"])
async def test_a_temporary_file_in_a_directory_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "below").mkdir()
    with pytest.raises(AssertionError, match="temporary file"):
        async with assert_nothing_left_behind(tmp_path):
            (tmp_path / "below" / name).touch()


async def test_a_file_of_the_tempfile_module_is_named() -> None:
    before = tempfile.gettempdir()
    with pytest.raises(AssertionError, match="temporary file"):
        async with assert_nothing_left_behind():
            os.close(tempfile.mkstemp()[0])
    assert tempfile.gettempdir() == before


async def test_kinds_can_be_left_out() -> None:
    async with assert_nothing_left_behind(tasks=False):
        task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()


async def test_an_error_of_the_block_passes() -> None:
    with pytest.raises(KeyError):
        async with assert_nothing_left_behind():
            raise KeyError(tempfile.mkdtemp())
