"""The loop with virtual time: it jumps when idle, and stands still for real waits."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import aiofiles
import anyio
import pytest

from asyncmon.system import clock
from asyncmon.testing import wait_all_tasks_blocked
from asyncmon.testing.pytest_plugin import VirtualTime

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_a_day_of_ticks_takes_no_time() -> None:
    ticks = 0
    while asyncio.get_running_loop().time() < 86_400:
        await asyncio.sleep(10)
        ticks += 1
    assert ticks == 8640


async def test_decimal_times_stay_exact() -> None:
    for _ in range(1000):
        await asyncio.sleep(0.1)
    assert asyncio.get_running_loop().time() == 100


async def test_timers_fire_in_order_at_their_times() -> None:
    fired: list[tuple[str, float]] = []

    async def after(seconds: float) -> None:
        await asyncio.sleep(seconds)
        fired.append((f"{seconds}", clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for seconds in (3.5, 1, 2):
            group.create_task(after(seconds))
    assert fired == [("1", 1), ("2", 2), ("3.5", 3.5)]


async def test_wall_time_is_virtual_too() -> None:
    start = clock.wall()
    await asyncio.sleep(3600)
    assert clock.wall() - start == 3600


async def test_a_timeout_around_a_wait_without_end_fires() -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(7200):
            await asyncio.Event().wait()
    assert clock.monotonic() == 7200


@pytest.mark.parametrize("kind", ["anyio", "asyncio", "executor"])
async def test_time_stands_still_while_a_worker_thread_is_busy(kind: str) -> None:
    """The thread waits for the timer that must not fire: without standing still, it would."""
    release = threading.Event()
    fired: list[float] = []
    timer = asyncio.get_running_loop().call_later(1, lambda: fired.append(clock.monotonic()))
    real = threading.Timer(0.02, release.set)
    real.daemon = True
    real.start()
    if kind == "anyio":
        await anyio.to_thread.run_sync(release.wait)
    elif kind == "asyncio":
        await asyncio.to_thread(release.wait)
    else:
        await asyncio.get_running_loop().run_in_executor(None, release.wait)
    assert fired == []
    assert clock.monotonic() == 0
    timer.cancel()


async def test_a_process_pool_holds_time_only_while_it_works() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        result = await asyncio.get_running_loop().run_in_executor(pool, int, "7")
        assert result == 7
        assert clock.monotonic() == 0
        await asyncio.sleep(3600)
    assert clock.monotonic() == 3600


async def test_an_idle_worker_does_not_hold_time() -> None:
    await anyio.to_thread.run_sync(int)
    await asyncio.to_thread(int)
    await asyncio.sleep(3600)
    assert clock.monotonic() == 3600


async def test_time_stands_still_for_files(tmp_path: Path) -> None:
    async with aiofiles.open(tmp_path / "file", "w") as file:
        await file.write("x" * 100_000)
    assert clock.monotonic() == 0


async def test_a_plain_thread_holds_time_until_it_ends() -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    begin = threading.Event()

    def tell() -> None:
        begin.wait()
        loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=tell).start()
    loop.call_soon(begin.set)
    async with asyncio.timeout(1):
        await stop.wait()
    assert clock.monotonic() == 0


async def test_time_stands_still_for_a_subprocess() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "print('done')", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(1):
        output, _ = await process.communicate()
    assert output == b"done\n"


async def test_a_pipe_that_is_closed_is_at_its_end() -> None:
    reader = "import sys; print('ready', flush=True); sys.stdin.read()"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", reader, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None, "PIPE"
    assert process.stdout is not None, "PIPE"
    await process.stdout.readline()  # the loop has polled the pipe before
    process.stdin.close()
    assert await process.wait() == 0


async def test_a_server_that_only_listens_does_not_hold_time() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        await asyncio.sleep(60)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await reader.readline() == b"hello\n"
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(60)
    assert clock.monotonic() == 120


async def test_hold_makes_time_stand_still(virtual_time: VirtualTime) -> None:
    loop = virtual_time.loop
    told = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.call_soon_threadsafe(told.set), daemon=True)
    with virtual_time.hold():
        loop.call_later(0.5, pytest.fail, "time moved")
        thread.start()
        await told.wait()
    assert virtual_time.now() == 0


async def test_a_callback_can_take_time(virtual_time: VirtualTime) -> None:
    fired: list[float] = []
    asyncio.get_running_loop().call_later(1, lambda: fired.append(virtual_time.now()))
    await asyncio.sleep(0.5)
    virtual_time.spend(2)
    assert virtual_time.now() == 2.5
    await asyncio.sleep(1)
    assert fired == [2.5]


async def test_wait_all_tasks_blocked_returns_when_the_others_wait() -> None:
    seen: list[str] = []
    go = asyncio.Event()

    async def waiter() -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        await anyio.to_thread.run_sync(int)
        seen.append("waits")
        await go.wait()

    task = asyncio.create_task(waiter())
    await wait_all_tasks_blocked()
    assert seen == ["waits"]
    assert clock.monotonic() == 0
    go.set()
    await task
