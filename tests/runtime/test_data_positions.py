"""The position that is saved is that of the state: at ends, in recoveries, for several items a step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.data import Dataset, from_iterable
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, Scaffold
from asyncmon.testing import fail_at_step
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Counter:
    """A source that cannot go back by one."""

    def __init__(self) -> None:
        self.position = 0

    def __aiter__(self) -> Counter:
        return self

    async def __anext__(self) -> float:
        await asyncio.sleep(0)
        self.position += 1
        await asyncio.sleep(0.1)
        return float(self.position - 1)

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def numbers() -> Dataset:
    return from_iterable([float(number) for number in range(20)])


SOURCES = {"dataset": numbers, "counter": Counter}


@pytest.fixture(params=list(SOURCES))
def source(request: pytest.FixtureRequest) -> Any:
    return SOURCES[request.param]()


class Bench:
    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.directory = world, directory
        self.saver = Saver()
        self.scaffold = Scaffold(saver=self.saver, program=world.program)

    def session(self, *hooks: Any, save_steps: int = 100) -> MonitoredSession:
        saves = CheckpointSaverHook(
            self.directory, save_steps=save_steps, scaffold=self.scaffold, save_graph_def=False
        )
        creator = ChiefSessionCreator(
            self.scaffold, checkpoint_dir=self.directory, program=self.world.program
        )
        return MonitoredSession(creator, [*hooks, saves], 1)

    async def save(self, sess: MonitoredSession) -> None:
        await self.saver.save(sess, self.directory / "model.ckpt", sess.global_step)


@pytest.fixture
def bench(world: World, tmp_path: Path) -> Bench:
    return Bench(world, tmp_path)


async def first_after_resuming(bench: Bench, source: Any) -> float:
    again = type(source)() if isinstance(source, Counter) else numbers()
    async with bench.session() as sess:
        return await anext(sess.iterate(again))


async def test_an_item_whose_step_was_not_made_comes_again(bench: Bench, source: Any) -> None:
    async with bench.session() as sess:
        async for number in sess.iterate(source):
            if number == 3:
                break
            await sess.run(bench.world.train, bench.world.feed(number))
    assert await first_after_resuming(bench, source) == 3


async def test_the_first_item_of_a_resumed_session_comes_again_too(bench: Bench, source: Any) -> None:
    async with bench.session() as sess:
        async for number in sess.iterate(source):
            await sess.run(bench.world.train, bench.world.feed(number))
            if number == 2:
                break
    again = type(source)() if isinstance(source, Counter) else numbers()
    async with bench.session() as sess:
        assert await anext(sess.iterate(again)) == 3
        await bench.save(sess)
    assert await first_after_resuming(bench, source) == 3


async def test_an_item_whose_step_was_made_does_not(bench: Bench, source: Any) -> None:
    async with bench.session() as sess:
        async for number in sess.iterate(source):
            await sess.run(bench.world.train, bench.world.feed(number))
            if number == 3:
                break
    assert await first_after_resuming(bench, source) == 4


async def test_items_that_are_collected_for_one_step_come_again_together(
    bench: Bench, source: Any
) -> None:
    async with bench.session() as sess:
        batches = sess.iterate(source)
        for _ in range(3):
            several = [await anext(batches) for _ in range(3)]
            if several[0] < 6:
                await sess.run(bench.world.train, bench.world.feed(sum(several)))
        await bench.save(sess)
    assert await first_after_resuming(bench, source) == 6


async def test_a_save_while_an_item_is_waited_for(bench: Bench, source: Any) -> None:
    async with bench.session() as sess:
        batches = sess.iterate(source)
        await sess.run(bench.world.train, bench.world.feed(await anext(batches)))
        waiting = asyncio.create_task(anext(batches))
        await asyncio.sleep(0.05)
        await bench.save(sess)
        await waiting
    assert await first_after_resuming(bench, source) == 1


async def test_a_recovery_that_loses_no_step_leaves_the_data_where_it_is(
    bench: Bench, source: Any
) -> None:
    hooks = [fail_at_step(3), fail_at_step(5, moment="after_run")]
    given: list[float] = []
    async with bench.session(*hooks, save_steps=1) as sess:
        async for number in sess.iterate(source):
            given.append(number)
            await sess.run(bench.world.train, bench.world.feed(number))
            if number == 7:
                break
        assert sess.global_step == 8
    assert given == list(range(8))


async def test_names_are_stable_and_may_be_given(bench: Bench) -> None:
    first, second, third = numbers(), numbers(), numbers()
    async with bench.session() as sess:
        for source, name in ((first, None), (second, "validation"), (third, None), (first, None)):
            await anext(sess.iterate(source, name=name))
        with pytest.raises(ValueError, match="another object of the name 'validation'"):
            sess.iterate(numbers(), name="validation")
        await sess.run(bench.world.train, bench.world.feed())
        path = await bench.saver.save(sess, bench.directory / "model.ckpt", sess.global_step)
    assert path is not None
    async with await load_checkpoint(path) as reader:
        assert {"data", "data_1", "validation"} <= set(await reader.states())


async def test_an_unclaimed_position_is_saved_again(bench: Bench) -> None:
    async with bench.session() as sess:
        for _ in range(3):
            number = await anext(sess.iterate(source := numbers()))
            break
        await sess.run(bench.world.train, bench.world.feed(number))
    async with bench.session() as sess:
        await sess.run(bench.world.train, bench.world.feed())
    assert await first_after_resuming(bench, source) == 1
