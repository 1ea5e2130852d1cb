"""Supervised workers: a restart budget, pauses, and what is no failure."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.runtime import Coordinator
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Failing:
    """Fails so many times, then returns its argument."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.failures = failures
        self.error = error
        self.times: list[float] = []

    async def __call__(self, value: int) -> int:
        self.times.append(asyncio.get_running_loop().time())
        if len(self.times) <= self.failures:
            raise self.error or OSError(f"failure {len(self.times)}")
        return value


async def test_a_worker_is_started_again_as_often_as_it_may(caplog: pytest.LogCaptureFixture) -> None:
    coord, worker = Coordinator(), Failing(3)
    task = coord.create_task(worker, 7, name="worker", restart=3)
    assert await task == 7
    assert worker.times == pytest.approx([0, 0.05, 0.15, 0.35])  # the pauses double
    assert "Task 'worker' failed and is started again (1 of 3): OSError: failure 1" in caplog.text
    await coord.join()


async def test_the_error_that_is_one_too_many_stops_the_coordinator() -> None:
    coord = Coordinator()
    coord.create_task(Failing(9), 7, restart=2)
    with pytest.raises(OSError, match="failure 3") as raised:
        await coord.join()
    assert raised.value.__notes__[:2] == [
        "Failure 1, restarted: OSError: failure 1",
        "Failure 2, restarted: OSError: failure 2",
    ]


async def test_pauses_do_not_grow_for_ever() -> None:
    coord, worker = Coordinator(), Failing(12)
    await coord.create_task(worker, 7, restart=12)
    assert worker.times[-1] - worker.times[-2] == pytest.approx(5)


async def test_the_end_of_the_data_is_not_started_again() -> None:
    coord, worker = Coordinator(), Failing(9, OutOfRangeError("no more"))
    coord.create_task(worker, 7, restart=5)
    await coord.join()
    assert len(worker.times) == 1
    assert coord.should_stop()


async def test_a_stop_ends_a_pause() -> None:
    coord, worker = Coordinator(), Failing(9)
    async with assert_nothing_left_behind():
        coord.create_task(worker, 7, restart=9)
        await wait_all_tasks_blocked()
        coord.request_stop()
        await coord.join()
    assert worker.times == [0]


@pytest.mark.parametrize("error", [CancelledError("closed"), OutOfRangeError("closed")])
async def test_what_a_stop_has_closed_is_no_failure(error: Exception) -> None:
    coord = Coordinator(())

    async def work() -> None:
        await coord.wait_for_stop()
        raise error

    coord.create_task(work, restart=3)
    await wait_all_tasks_blocked()
    coord.request_stop()
    await coord.join()


@pytest.mark.parametrize("restart", [0, 3])
async def test_a_failure_after_the_stop_is_not_started_again(
    restart: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It counts where the worker had no restart left."""
    coord, calls = Coordinator(), 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        await coord.wait_for_stop()
        raise OSError("while stopping")

    coord.create_task(work, restart=restart)
    await wait_all_tasks_blocked()
    coord.request_stop()
    with nullcontext() if restart else pytest.raises(OSError, match="while stopping"):
        await coord.join()
    assert calls == 1
    assert ("failed while it was to stop" in caplog.text) == bool(restart)
