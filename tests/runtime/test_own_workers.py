"""Workers of a session's coordinator that use the session itself, when it ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from asyncmon.testing import assert_nothing_left_behind
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

USES: dict[str, Callable[[Any, World], Any]] = {
    "run": lambda sess, world: sess.run(world.train, world.feed()),
    "bare run": lambda sess, world: sess.run(world.train, world.feed(), hooks=False),
    "peek": lambda sess, world: sess.peek(world.weight),
    "sample": lambda sess, world: sess.sample(world.weight),
    "sample of the coordinator": lambda sess, world: sess.coord.sample(world.weight),
}


@pytest.mark.parametrize("pause", [0.0, 0.01], ids=["waiting", "between"])
@pytest.mark.parametrize("use", USES)
async def test_the_end_of_the_session_is_no_failure(
    world: World, caplog: pytest.LogCaptureFixture, use: str, pause: float
) -> None:
    """Neither is it waited for that the grace period ends."""
    caplog.set_level(logging.WARNING)
    loop = asyncio.get_running_loop()

    async def work(sess: Any) -> None:
        while True:
            await USES[use](sess, world)
            await asyncio.sleep(pause)

    async with assert_nothing_left_behind():
        async with world.session(stop_grace_period_secs=60) as sess:
            sess.coord.create_task(work, sess, name="worker")
            for _ in range(3):
                await sess.run(world.train, world.feed())
                await asyncio.sleep(pause)
            ended = loop.time()
        assert loop.time() - ended < 1
    assert not caplog.records
    assert sess.stop_reason == "the body ended"


async def test_the_end_of_another_session_is_a_failure(world: World) -> None:
    other = world.session()
    await other.start()

    async def work() -> None:
        while True:
            await other.peek(world.weight)
            await asyncio.sleep(1)

    sess = world.session()
    await sess.start()
    sess.coord.create_task(work)
    await asyncio.sleep(1.5)
    await other.close()
    await asyncio.sleep(10)
    with pytest.raises(RuntimeError, match="The session is closed"):
        await sess.run(world.train, world.feed())
    await sess.close()
