"""Virtual time without a plugin: ``testing.run``, and what happens when nothing can happen."""

from __future__ import annotations

import asyncio

import pytest

from asyncmon import testing
from asyncmon.system import clock
from asyncmon.testing import DeadlockError, VirtualTimeLoop


def test_a_deadlock_is_an_error_that_names_the_tasks() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.create_task(wait_for_ever(), name="the culprit")

    with pytest.raises(DeadlockError, match="Nothing is scheduled and nothing is in flight") as caught:
        testing.run(main())
    assert "'the culprit': it waits in Event.wait (" in str(caught.value)
    assert "wait_for_ever (" in str(caught.value)


def test_a_deadlock_lets_finally_blocks_run() -> None:
    cleaned: list[bool] = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            cleaned.append(True)

    with pytest.raises(DeadlockError):
        testing.run(main())
    assert cleaned == [True]


def test_a_wait_ends_after_its_timeout() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with loop.hold():
            await asyncio.sleep(1)

    with pytest.raises(
        DeadlockError, match=r"Time stood still for 0.05 real s because of a block of hold"
    ):
        testing.run(main(), loop_factory=lambda: VirtualTimeLoop(patience=0.05))


def test_run_returns_what_the_coroutine_returns() -> None:
    assert testing.run(asyncio.sleep(3600, "done")) == "done"


def test_the_epoch_is_where_wall_time_starts() -> None:
    async def main() -> float:
        await asyncio.sleep(5)
        return clock.wall()

    assert testing.run(main(), loop_factory=lambda: VirtualTimeLoop(epoch=100)) == 105


def test_two_runs_give_the_same_times() -> None:
    async def main() -> tuple[float, float]:
        await asyncio.sleep(1)
        return clock.monotonic(), clock.wall()

    assert testing.run(main()) == testing.run(main())
