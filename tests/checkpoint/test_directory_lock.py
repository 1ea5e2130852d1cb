"""One process saves into a directory."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import json
import os
import shutil
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver, latest_checkpoint
from asyncmon.errors import FailedPreconditionError
from asyncmon.system.files import FileCalls
from tests import forked

pytestmark = pytest.mark.asyncio

SECOND = """
import asyncio, sys
from asyncmon.checkpoint import Saver
from tests.checkpoint.memory_session import MemorySession

async def main():
    saver = Saver()
    try:
        print(await saver.save(MemorySession(a=2.0), sys.argv[1] + "/m", 2), flush=True)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    sys.stdin.readline()

asyncio.run(main())
"""


def second(directory: Path) -> forked.Process:
    return forked.Process("-c", SECOND, str(directory))


async def test_an_error_names_the_process_that_saves_there_kc_7(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    path = await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    process = second(tmp_path)
    line = process.stdout.readline()
    assert line.startswith("FailedPreconditionError Another process saves checkpoints into")
    assert f'"pid": {os.getpid()}' in line
    process.communicate("\n")
    assert await latest_checkpoint(tmp_path) == path

    await saver.close()
    process = second(tmp_path)
    assert process.stdout.readline().strip() == str(tmp_path / "m-2")
    with pytest.raises(FailedPreconditionError, match=f'"pid": {process.pid}'):
        await saver.save(make_session(a=1.0), tmp_path / "m", 3)
    with pytest.raises(FailedPreconditionError):
        await saver.claim(tmp_path)
    process.kill()  # the lock of a process that dies is free
    process.communicate()
    assert await saver.save(make_session(a=1.0), tmp_path / "m", 3)
    await saver.close()


async def test_savers_of_one_process_share_a_directory(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    one, two = Saver(), Saver()
    await asyncio.gather(
        *(
            saver.save(make_session(a=float(n)), tmp_path / "m", n % 2)
            for n in range(4)
            for saver in (one, two)
        )
    )
    await one.close()
    process = second(tmp_path)
    assert process.stdout.readline().startswith("FailedPreconditionError")
    process.communicate("\n")
    await two.close()
    assert await latest_checkpoint(tmp_path)


async def test_a_saver_waits_until_another_one_has_cleaned_up(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """Else the files that it is writing would be taken for those of a crashed save."""
    cleaning, arrived, go = threading.Event(), threading.Event(), threading.Event()

    class First(FileCalls):
        def listdir(self, path: Path) -> list[str]:
            cleaning.set()
            assert go.wait(10)
            return super().listdir(path)

    class Second(FileCalls):
        def make_dirs(self, path: Path) -> None:
            super().make_dirs(path)
            arrived.set()

        def open(self, path: Path, flags: int) -> int:
            assert go.is_set(), path
            return super().open(path, flags)

    one, two = Saver(calls=First()), Saver(calls=Second())
    claiming = asyncio.create_task(one.claim(tmp_path))
    await asyncio.to_thread(cleaning.wait, 10)
    handle = two.start_save(make_session(a=1.0), tmp_path / "m", 1)
    await asyncio.to_thread(arrived.wait, 10)
    go.set()
    await claiming
    assert await handle == await latest_checkpoint(tmp_path) == str(tmp_path / "m-1")
    await one.close()
    await two.close()


async def test_a_saver_that_is_collected_gives_its_directory_back(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    collected = weakref.ref(saver)
    del saver
    while collected() is not None:  # the worker thread of the save may still refer to it
        gc.collect()
        await asyncio.sleep(0)
    descriptor = os.open(tmp_path / ".asyncmon.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert json.loads(os.read(descriptor, 4096))["pid"] == os.getpid()
    os.close(descriptor)


async def test_a_directory_that_was_deleted_is_claimed_again(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "run" / "m", 1)
    shutil.rmtree(tmp_path / "run")
    await saver.save(make_session(a=1.0), tmp_path / "run" / "m", 2)
    process = second(tmp_path / "run")
    assert process.stdout.readline().startswith("FailedPreconditionError")
    process.communicate("\n")
    await saver.close()


async def test_a_file_system_without_locks_is_logged_once(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    class NoLocks(FileCalls):
        def lock(self, descriptor: int) -> None:
            raise OSError(37, "No locks available")

    saver = Saver(calls=NoLocks())
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    assert caplog.text.count("has no locks") == 1
    await saver.close()


async def test_what_a_forked_child_must_do_is_registered_once_for_all_directories(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "0" / "m", 1)
    registered: list[Any] = []
    monkeypatch.setattr(os, "register_at_fork", lambda **calls: registered.append(calls))
    for place in ("1", "2"):
        await saver.save(make_session(a=1.0), tmp_path / place / "m", 1)
    assert registered == []
    await saver.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
async def test_a_forked_child_does_not_keep_the_lock(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(theirs)
        os.read(ours, 1)  # lives until the parent lets it go
        os._exit(0)
    os.close(ours)
    try:
        await saver.close()
        process = second(tmp_path)
        assert process.stdout.readline().strip() == str(tmp_path / "m-2")
        process.communicate("\n")
    finally:
        os.close(theirs)
        await asyncio.to_thread(os.waitpid, child, 0)
