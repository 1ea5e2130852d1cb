"""After a recovery that loses steps, each element counts once in the surviving state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver
from asyncmon.data import Dataset, from_iterable
from asyncmon.errors import AbortedError, RecoveredError, UnavailableError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import MonitoredSession, Recovery, Scaffold, SessionRunHook
from asyncmon.testing import fail_at_step
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

COUNT = 20
"""The sum of the powers of two below 2 ** 20 is exact in float32, and shows which were added."""


class Crash(Exception):
    pass


class Failing(SessionRunHook):
    """Fails at random before the step, after its commit, and in the background."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def strike(self, chance: float) -> None:
        if self.dice.random() < chance:
            raise self.dice.choice([AbortedError, UnavailableError])("preempted")

    async def before_run(self, run_context: Any) -> None:
        self.strike(0.1)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.strike(0.1)

    async def background(self, session: Any, coord: Any) -> None:
        async for _ in coord.every(0.7):
            self.strike(0.1)


def plain() -> Dataset:
    return from_iterable([float(2**number) for number in range(COUNT)])


def shuffled() -> Dataset:
    async def prepare(number: float) -> float:
        await asyncio.sleep(0.05)
        return number

    return plain().shuffle(8, seed=3).map(prepare, concurrency=3).prefetch(4)


class Counter:
    """A source that cannot step back by one."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> float:
        if self.position == COUNT:
            raise StopIteration
        self.position += 1
        return float(2 ** (self.position - 1))

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


SOURCES = {"plain": plain, "shuffled": shuffled, "counter": Counter}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.campaign("recovery", short=3)
async def test_each_element_counts_once(
    world: World, tmp_path: Path, source: str, together: int, seed: int
) -> None:
    """With random failures, ends of the process and saves, ``together`` elements a step."""
    dice = random.Random(seed)
    failing = Failing(dice)

    async def train(crash_after: int) -> None:
        scaffold = Scaffold(saver=Saver(), program=world.program)
        saves = CheckpointSaverHook(tmp_path, save_steps=dice.choice([2, 3, 5]), scaffold=scaffold)
        creator = world.creator(scaffold=scaffold, checkpoint_dir=tmp_path)
        async with MonitoredSession(creator, [failing, saves], 1) as sess:
            elements = sess.iterate(SOURCES[source]())
            async for element in elements:
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.choice([0.1, 1.0]))
                for _ in range(together - 1):
                    element += await anext(elements)
                if dice.random() < 0.3:
                    await asyncio.sleep(0.5)
                await sess.run(world.train, world.feed(element))
                crash_after -= 1
                if not crash_after:
                    raise Crash
            assert sess.global_step == COUNT / together
            total = float(await sess.raw_session().peek(world.weight))
            assert total == 2**COUNT - 1

    for crash_after in (dice.randrange(1, 9), dice.randrange(1, 9), -1):
        with contextlib.suppress(Crash):
            return await train(crash_after)  # to the end of the pass


@pytest.mark.parametrize("saved", ["before the data", "never"])
async def test_a_state_without_a_position_begins_the_data_again(
    world: World, tmp_path: Path, saved: str
) -> None:
    """The first checkpoint is saved before the data is iterated; or there is none at all."""
    saves = [CheckpointSaverHook(tmp_path, save_steps=100, saver=Saver())]
    creator = world.creator(checkpoint_dir=tmp_path)
    if saved == "never":
        saves, creator = [], world.creator()
    given = []
    failures = iter([False] * 3 + [True])

    class FailOnce(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            if next(failures, False):
                raise AbortedError("preempted")

    async with MonitoredSession(creator, [FailOnce(), *saves]) as sess:
        async for number in sess.iterate(from_iterable([float(2**n) for n in range(6)])):
            given.append(number)
            await sess.run(world.train, world.feed(number))
        assert sess.global_step == 6
        assert float(await sess.raw_session().peek(world.weight)) == 63
    assert given == [1, 2, 4, 8, 1, 2, 4, 16, 32]


async def test_a_state_from_before_the_data_leaves_the_data_where_it_is(world: World) -> None:
    """No position belongs to it: the data was not iterated yet at this step."""
    given: list[float] = []
    async with MonitoredSession(world.creator(), [fail_at_step(5)]) as sess:
        for _ in range(2):
            await sess.run(world.train, world.feed(0.0))
        async for number in sess.iterate(from_iterable([1.0, 2.0, 3.0, 4.0, 5.0])):
            given.append(number)
            await sess.run(world.train, world.feed(number))
        assert sess.global_step == 3
    assert given == [1, 2, 3, 4, 5]


async def test_without_repeated_runs_the_order_is_exact(world: World, tmp_path: Path) -> None:
    """The interrupted run raises; the data continues at the restored position, as after a restart."""
    saver = Saver()
    creator = world.creator(
        scaffold=Scaffold(saver=saver, program=world.program), checkpoint_dir=tmp_path
    )
    given: list[float] = []
    errors = []
    failures = iter([False] * 5 + [True, False, True])

    class FailTwice(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            if next(failures, False):
                raise AbortedError("preempted")

    recovery = Recovery(repeat_runs=False)
    async with MonitoredSession(creator, [FailTwice()], recovery=recovery) as sess:
        async for number in sess.iterate(from_iterable([float(2**n) for n in range(8)])):
            given.append(number)
            try:
                await sess.run(world.train, world.feed(number))
            except RecoveredError as error:
                errors.append(error)
                continue
            if sess.global_step == 3:
                await saver.save(sess, tmp_path / "model.ckpt", 3)
        assert sess.global_step == 8
        assert float(await sess.raw_session().peek(world.weight)) == 255
    assert given == [1, 2, 4, 8, 16, 32, 8, 16, 8, 16, 32, 64, 128]
    assert len(errors) == 2
    assert isinstance(errors[0].__cause__, AbortedError)
    assert "continue with the next data" in str(errors[0])


async def test_an_element_that_is_read_during_a_recovery_counts_once(
    world: World, tmp_path: Path
) -> None:
    """A run without hooks fails while the body waits for its next element."""
    saver = Saver()
    creator = world.creator(
        scaffold=Scaffold(saver=saver, program=world.program), checkpoint_dir=tmp_path
    )
    slow = asyncio.Event()

    async def read(number: float) -> float:
        if number == 16:
            await slow.wait()
        return number

    given = []
    source = from_iterable([float(2**n) for n in range(6)]).map(read)
    async with MonitoredSession(creator) as sess:
        elements = sess.iterate(source)
        async for number in elements:
            given.append(number)
            await sess.run(world.train, world.feed(number))
            if sess.global_step == 2:
                await saver.save(sess, tmp_path / "model.ckpt", 2)
            if number == 8 and not slow.is_set():
                waiting = asyncio.create_task(anext(elements))
                await asyncio.sleep(1)
                raw = sess.raw_session()
                raw.run = fail
                await sess.run(world.weight, hooks=False)
                slow.set()
                given.append(await waiting)
                await sess.run(world.train, world.feed(given[-1]))
        assert sess.global_step == 6
        assert float(await sess.raw_session().peek(world.weight)) == 63
    assert sorted(given) == [1, 2, 4, 4, 8, 8, 16, 32]


async def fail(*_args: Any, **_kwargs: Any) -> Any:
    raise AbortedError("preempted")
