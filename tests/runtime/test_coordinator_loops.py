"""A coordinator outlives its loop: several loops, one after another, and what leaves through one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.runtime import Coordinator
from asyncmon.testing import VirtualTimeLoop, run


async def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_task_leaves_through_the_loop(
    kind: type[BaseException], registered: bool
) -> None:
    """AX-4: only the caller that runs the loop gets it; the other tasks get a stop request."""
    coord, ended = Coordinator(), []

    async def main() -> None:
        if registered:
            coord.register_task(asyncio.create_task(fail(kind())))
        else:
            coord.create_task(fail, kind(), name="fail")
        try:
            await coord.join()
        finally:
            ended.append(coord.errors)

    with pytest.raises(kind):
        run(main())
    assert ended == [()]
    assert coord.should_stop()
    assert (coord.stop_reason or "").startswith(f"{kind.__name__} in task")


def test_one_coordinator_serves_one_loop_after_another() -> None:
    coord = Coordinator()

    async def life(number: int) -> None:
        seen: list[Any] = []

        async def tick() -> None:
            seen.extend([one async for one in coord.every(1)])

        coord.create_task(tick)
        asyncio.get_running_loop().call_later(2.5, coord.request_stop, None, f"life {number}")
        await coord.join()
        assert seen == [1, 2]
        assert coord.stop_reason == f"life {number}"
        coord.clear_stop()

    for number in range(3):
        run(life(number))


def test_a_second_loop_beside_the_first_is_refused() -> None:
    coord = Coordinator()
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as first:
        first.run(coord.wait_for_stop(0))
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as second:
            waiting = coord.wait_for_stop(1)
            with pytest.raises(RuntimeError, match="belongs to one event loop"):
                second.run(waiting)


def test_a_stop_when_the_loop_is_closed_is_kept() -> None:
    coord = Coordinator()
    run(coord.wait_for_stop(1))
    coord.request_stop(reason="between two loops")
    assert run(coord.wait_for_stop())
