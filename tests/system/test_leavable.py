"""An await that is given up, where the awaited code ignores its cancellation."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from asyncmon.system.error_text import where_it_waits
from asyncmon.system.leavable import Leavable, leavable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def add(a: int, b: int) -> int:
    await asyncio.sleep(1)
    return a + b


async def ignore_all() -> None:
    while True:
        try:
            await asyncio.sleep(1)
        except BaseException:
            continue


async def test_it_returns_what_the_awaitable_returns() -> None:
    assert await leavable(Leavable(), add(1, 2)) == 3
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    future.set_result(5)
    assert await leavable(Leavable(), future) == 5


async def test_it_raises_what_the_awaitable_raises() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await leavable(Leavable(), fail())


async def test_a_cancellation_reaches_the_awaited_code() -> None:
    cancelled = []

    async def clean_up() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            cancelled.append(True)
            raise

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await leavable(Leavable(), clean_up())
    assert cancelled
    assert asyncio.get_running_loop().time() == 3


async def test_after_leave_a_cancellation_goes_to_the_caller_alone() -> None:
    owner = Leavable()

    async def caller() -> str:
        try:
            await leavable(owner, ignore_all())
        except asyncio.CancelledError:
            return "left"
        return "ended"

    task = asyncio.create_task(caller())
    await asyncio.sleep(1.5)
    task.cancel()
    await asyncio.sleep(1)
    assert not task.done()
    owner.is_left = True
    task.cancel()
    assert await task == "left"


async def test_the_place_of_a_task_is_that_inside_of_it() -> None:
    async def outer() -> Any:
        return await leavable(Leavable(), add(1, 2))

    task = asyncio.create_task(outer())
    await asyncio.sleep(0)
    place = where_it_waits(task)
    assert place.startswith("it waits in sleep (")
    assert "called from add (" in place
    await task


STUBBORN = """
import asyncio


async def stubborn():
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:
            print("runs on", flush=True)
"""
LEAVES = """
import asyncio

from asyncmon.system.leavable import Leavable, leavable
from module import stubborn


async def call(owner):
    await leavable(owner, stubborn())


async def main():
    owner = Leavable()
    task = asyncio.create_task(call(owner))
    await asyncio.sleep(0)
    owner.is_left = True
    task.cancel()
    await asyncio.wait([task])


asyncio.run(main())
"""


async def test_code_that_was_left_behind_does_not_run_at_the_exit(tmp_path: Path) -> None:
    """The names of its module are gone then, and code that catches all errors would run for ever."""
    (tmp_path / "module.py").write_text(STUBBORN)
    (tmp_path / "leaves.py").write_text(LEAVES)
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "leaves.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=True,
    )
    assert done.stdout == b""
