"""Blocking calls, made in threads."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import anyio
import pytest

from asyncmon.system import files

pytestmark = pytest.mark.asyncio


async def test_a_function_runs_in_another_thread_and_its_result_or_error_comes_back() -> None:
    assert await files.in_thread(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await files.in_thread(divmod, 1, 0)


async def test_a_cancelled_caller_waits_for_the_thread_however_often_it_is_cancelled() -> None:
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go.wait(10)
        ended.set()

    task = asyncio.create_task(files.in_thread(work))
    await asyncio.to_thread(begun.wait)
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_cancel_scope_is_left_when_the_thread_is_done_and_its_error_is_dropped() -> None:
    begun, go = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go.wait(10)
        raise ValueError("nobody waits for this any more")

    async def cancel(scope: anyio.CancelScope) -> None:
        await asyncio.to_thread(begun.wait)
        scope.cancel()
        await asyncio.sleep(0)
        go.set()

    with anyio.CancelScope() as scope:
        canceller = asyncio.create_task(cancel(scope))
        await files.in_thread(work)
    assert scope.cancelled_caught
    await canceller


async def test_small_files_are_replaced_whole(tmp_path: Path) -> None:
    await files.in_thread(files.FileCalls().make_dirs, tmp_path / "a" / "b")
    await files.in_thread(files.FileCalls().make_dirs, tmp_path / "a" / "b")
    target = tmp_path / "a" / "b" / "file"
    for content in (b"one", b"two"):
        await files.in_thread(files.FileCalls().put_files, target.parent, {"file": content})
        assert await files.read_bytes(target) == content
    assert await asyncio.to_thread(os.listdir, target.parent) == ["file"]
    os.mkdir(tmp_path / "directory")
    with pytest.raises(OSError, match="directory"):
        await files.in_thread(files.FileCalls().put_files, tmp_path, {"directory": b"x"})
    assert sorted(await asyncio.to_thread(os.listdir, tmp_path)) == ["a", "directory"]


@pytest.mark.parametrize("sync", [True, False])
async def test_lines_are_appended_after_a_truncated_one(tmp_path: Path, sync: bool) -> None:
    path = tmp_path / "a" / "lines"
    await files.append_lines(path, ["1", "2"], sync=sync)
    path.write_bytes(path.read_bytes()[:-1])
    await files.append_lines(path, ["x" * 1_000_000], sync=sync)
    await files.append_lines(path, [], sync=sync)
    assert await files.read_bytes(path, 0, 4) == b"1\n2\n"
    assert await files.read_bytes(path, 4) == b"x" * 1_000_000 + b"\n"


async def test_a_file_is_written_with_its_directory_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for data in (b"first", b"2"):
        await files.write_bytes(path, data)
        assert await files.read_bytes(path) == data
    await files.write_bytes(path.with_name("another"), b"")
    assert await files.list_names(path.parent) == ["another", "file"]
    with pytest.raises(IsADirectoryError):
        await files.write_bytes(path.parent, b"x")


async def test_file_calls_are_the_systems(tmp_path: Path) -> None:
    calls = files.FileCalls()
    calls.make_dirs(tmp_path / "d")
    descriptor = calls.open(tmp_path / "d" / "one", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    assert not os.get_inheritable(descriptor)
    assert calls.write(descriptor, b"abc") == 3
    assert calls.write(descriptor, memoryview(b"de")) == 2
    calls.fsync(descriptor)
    calls.lock(descriptor)
    calls.close(descriptor)
    calls.replace(tmp_path / "d" / "one", tmp_path / "d" / "two")
    assert calls.listdir(tmp_path / "d") == ["two"]
    calls.unlink(tmp_path / "d" / "two")
    assert calls.listdir(tmp_path / "d") == []
