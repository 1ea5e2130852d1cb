"""A fetch during which a recovery moves the source: each element counts once in the surviving state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.checkpoint import Saver
from asyncmon.data import Dataset, from_iterable
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.frontier import Frontier
from tests.faults import FailAfterCommit

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

COUNT = 4


def program() -> FunctionProgram:
    made = FunctionProgram({"counts": np.zeros(COUNT, np.int64)})

    @made.step
    async def use(state: Any, x: Any) -> None:
        state["counts"][x] += 1

    return made


@asynccontextmanager
async def session(directory: Path, *hooks: Any, save_steps: int = 2) -> AsyncIterator[Any]:
    async with am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=directory, signals=None, hooks=hooks,
        save_checkpoint_steps=save_steps, save_checkpoint_secs=None, save_summaries_steps=0,
        log_step_count_steps=0, recovery=am.Recovery(first_delay_secs=0),
    ) as sess:  # fmt: skip
        yield sess


class Reader:
    """A source of another library, its own iterator. It waits before one element, or before its end."""

    def __init__(self, slow: int, gate: asyncio.Event) -> None:
        self.slow, self.gate = slow, gate
        self.position = 0

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> int:
        if self.position == self.slow:
            await self.gate.wait()
        if self.position == COUNT:
            raise StopAsyncIteration
        self.position += 1
        return self.position - 1

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def dataset(slow: int, gate: asyncio.Event) -> Dataset:
    return from_iterable(lambda: Reader(slow, gate))


SOURCES: dict[str, Callable[[int, asyncio.Event], Any]] = {"dataset": dataset, "reader": Reader}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("slow", [COUNT - 1, COUNT])
async def test_what_a_recovery_overtakes_is_read_again(tmp_path: Path, source: str, slow: int) -> None:
    """The last element, or the end, arrives after a recovery has moved the source back."""
    gate = asyncio.Event()
    async with session(tmp_path, FailAfterCommit(slow)) as sess:
        elements = sess.iterate(SOURCES[source](slow, gate))
        element = await anext(elements, None)
        while element is not None:
            following = asyncio.create_task(anext(elements, None))
            await sess.run("use", {"x": element})
            if sess.statistics().recoveries:
                gate.set()
            element = await following
        assert (await sess.peek("counts")).tolist() == [1] * COUNT


@pytest.mark.parametrize("source", ["dataset", "mapped", "pipeline", "channel"])
async def test_end_fetched_beside_a_run_that_loses_steps_is_no_end(tmp_path: Path, source: str) -> None:
    """The double buffer finds the end beside the last step, which fails and loses the step before."""

    async def same(element: int) -> int:
        return element

    async with session(tmp_path, FailAfterCommit(COUNT), save_steps=3) as sess:
        elements: Any = sess.iterate(from_iterable(range(COUNT)))
        if source == "mapped":
            elements = sess.iterate(from_iterable(list(range(COUNT))).map(same, concurrency=2))
        elif source == "pipeline":
            elements = aiter(sess.produce(range(COUNT), same, workers=1, depth=2))
        elif source == "channel":
            channel = sess.coord.channel(COUNT)
            for number in range(COUNT):
                await channel.send(number)
            channel.close()
            elements = sess.iterate(channel)
        element = await anext(elements, None)
        while element is not None:
            following = asyncio.create_task(anext(elements, None))
            x = element.value if source == "pipeline" else element
            await sess.run("use", {"x": x})
            element = await following
        assert sess.statistics().recoveries == 1
        assert (await sess.peek("counts")).tolist() == [1] * COUNT


async def test_pass_whose_end_was_fetched_beside_its_last_run_does_not_begin_again(
    tmp_path: Path,
) -> None:
    """The process ends after the save of the last step, before the body gets the end."""

    class Crash(Exception):
        pass

    async def train() -> None:
        async with session(tmp_path, save_steps=1) as sess:
            elements = sess.iterate(from_iterable(range(COUNT)))
            element = await anext(elements)
            for _ in range(COUNT):
                following = asyncio.create_task(anext(elements, COUNT))
                await sess.run("use", {"x": element})
                if sess.global_step == COUNT:
                    raise Crash
                element = await following

    with pytest.raises(Crash):
        await train()
    async with session(tmp_path) as sess:
        assert [one async for one in sess.iterate(from_iterable(range(COUNT)))] == []


async def test_step_that_awaits_the_end_of_the_data_gets_it(tmp_path: Path) -> None:
    async with session(tmp_path) as sess:
        elements = sess.iterate(from_iterable(range(1)))
        first = await anext(elements)
        following = asyncio.create_task(anext(elements, None))

        async def step(context: Any) -> Any:
            await asyncio.sleep(1)
            assert await following is None
            return await context.session.run("use", {"x": first})

        await sess.run_step_fn(step)
        assert (await sess.peek("counts")).tolist() == [1, 0, 0, 0]


async def test_pipeline_ends_after_an_end_that_a_recovery_overtakes(tmp_path: Path) -> None:
    """The reader finds the end after the move, when the body waits for a batch already."""
    gate = asyncio.Event()

    async def same(element: int) -> int:
        return element

    async with session(tmp_path, FailAfterCommit(COUNT), save_steps=1) as sess:
        batches = sess.produce(dataset(COUNT, gate), same, workers=1, depth=2).batches(1)
        batch = await anext(batches, None)
        while batch is not None:
            following = asyncio.create_task(anext(batches, None))
            await sess.run("use", {"x": batch[0].value})
            if sess.statistics().recoveries:
                await asyncio.sleep(1)
                gate.set()
            batch = await following
        assert (await sess.peek("counts")).tolist() == [1] * COUNT


async def test_move_during_the_opening_of_a_dataset_loses_no_element(tmp_path: Path) -> None:
    """The calls of the earlier position take a second to end, and the second move comes before that."""

    async def prepare(number: int) -> int:
        try:
            await asyncio.sleep(0.01 if number < 2 else 100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
            raise
        return number

    saver = Saver()
    async with session(tmp_path, save_steps=100) as sess:
        elements = sess.iterate(from_iterable(range(COUNT)).map(prepare, concurrency=2))
        await sess.run("use", {"x": await anext(elements)})
        path = await saver.save(sess, tmp_path / "one", 1)
        await sess.run("use", {"x": await anext(elements)})
        await saver.restore(sess, path)
        following = asyncio.create_task(anext(elements))
        await asyncio.sleep(0.5)
        await saver.restore(sess, path)
        assert await following == 1


async def test_element_that_is_fetched_between_two_attempts_of_a_recovery_counts_once() -> None:
    recoveries = SimpleNamespace(number=0, repeated=None, current=object(), step=0)
    recoveries.step_of_data = lambda: recoveries.step
    source, task = Reader(COUNT, asyncio.Event()), asyncio.current_task()
    other = asyncio.create_task(asyncio.Event().wait())
    frontier = Frontier(source, recoveries.step_of_data, recoveries)

    async def fetch(asker: Any) -> None:
        frontier.ask(asker)
        mark = frontier._mark()
        ahead = frontier.fetch(asker, mark)
        await anext(source)
        frontier.fetched(asker, mark, ahead)

    await fetch(task)
    frontier.run_begins(task)
    recoveries.step = 1
    saved = frontier.state_dict()
    await fetch(task)
    frontier.run_begins(task)
    recoveries.step = 2
    await fetch(task)  # 2, not used yet
    recoveries.number, recoveries.current = 1, None
    frontier.load_state_dict(saved)
    await fetch(other)  # 1, between the attempts
    assert frontier.held() == {1, 2}
    frontier.load_state_dict(saved)
    assert (frontier.held(), frontier.to_read_again) == ({1, 2}, 0)
    other.cancel()
