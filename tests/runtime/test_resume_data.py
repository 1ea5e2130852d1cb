"""Input goes on where the session's state goes on: a source that is iterated travels in checkpoints."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.data import Dataset, from_iterable
from asyncmon.errors import AbortedError
from asyncmon.runtime import MonitoredSession, Scaffold
from asyncmon.testing import assert_nothing_left_behind

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def data() -> Dataset:
    """Return 60 numbers in an order of their own, read and prepared ahead."""

    async def prepare(number: int) -> float:
        await asyncio.sleep(number % 7 * 0.01)
        return float(number)

    numbers = from_iterable(lambda: iter(range(60)))
    return numbers.shuffle(16, seed=3).map(prepare, concurrency=4).prefetch(5)


class Crash(Exception):
    pass


def session(world: World, directory: Path) -> tuple[MonitoredSession, Saver]:
    saver = Saver()
    scaffold = Scaffold(saver=saver, program=world.program)
    creator = world.creator(scaffold=scaffold, checkpoint_dir=directory)
    return MonitoredSession(creator), saver


@pytest.mark.parametrize("seed", range(6))
async def test_after_a_crash_no_element_is_lost_or_seen_twice(
    world: World, tmp_path: Path, seed: int
) -> None:
    """Saves come at any moment: between steps, during one, after an element was given."""
    whole = [x async for x in data()]
    dice = random.Random(seed)
    seen: list[float] = []

    async def train(crash_after: int) -> None:
        sess, saver = session(world, tmp_path)
        async with sess:
            step = sess.global_step or 0
            del seen[step:]  # what the checkpoint has not seen is gone
            async for number in sess.iterate(data()):
                if dice.random() < 0.2:
                    await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
                if crash_after == 0:
                    raise Crash
                crash_after -= 1
                await sess.run(world.train, world.feed(number))
                seen.append(number)
                if dice.random() < 0.2:
                    await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)

    async with assert_nothing_left_behind(descriptors=False):
        for _ in range(4):
            with pytest.raises(Crash):
                await train(dice.randrange(3, 15))
        await train(1000)
    assert seen == whole


async def test_a_recovery_takes_the_data_back_with_the_state(world: World, tmp_path: Path) -> None:
    """The run that failed is done again with its element; then come those after the checkpoint."""
    sess, saver = session(world, tmp_path)
    given: list[float] = []
    async with sess:
        source = from_iterable([float(n) for n in range(8)])
        async for number in sess.iterate(source):
            given.append(number)
            if len(given) == 6:
                fail_next_run(sess)
            await sess.run(world.train, world.feed(number))
            if len(given) == 3:
                await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
    assert given == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7]


def fail_next_run(sess: Any) -> None:
    raw = sess.raw_session()
    run = raw.run

    async def fail(*args: Any, **kwargs: Any) -> Any:
        raw.run = run
        raise AbortedError("preempted")

    raw.run = fail


async def test_a_source_is_one_object_however_often_it_is_iterated(
    world: World, tmp_path: Path
) -> None:
    sess, saver = session(world, tmp_path)
    first, second = from_iterable([1.0, 2.0]), from_iterable([3.0])
    async with sess:
        for _ in range(2):
            async for number in sess.iterate(first):
                await sess.run(world.train, world.feed(number))
        async for number in sess.iterate(second):
            await sess.run(world.train, world.feed(number))
        path = await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
    assert path is not None
    reader = await load_checkpoint(path)
    assert sorted(await reader.states()) == ["data", "data_1"]


async def test_a_source_without_position_is_just_iterated(world: World, tmp_path: Path) -> None:
    class Plain:
        position = 0

        def __iter__(self) -> Any:
            return iter([1.0, 2.0])

        def state_dict(self) -> dict[str, int]:
            return {"position": 5}

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.position = state["position"]

    for expected in (0, 5):
        sess, saver = session(world, tmp_path)
        own = Plain()
        async with sess:
            async for number in sess.iterate(own):
                await sess.run(world.train, world.feed(number))
            await saver.save(sess, tmp_path / "model.ckpt", sess.global_step)
        assert own.position == expected
