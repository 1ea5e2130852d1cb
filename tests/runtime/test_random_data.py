"""Random failures, kills and saves: each element counts once in the surviving state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.data import Dataset, from_iterable
from asyncmon.errors import AbortedError, RecoveredError, UnavailableError
from asyncmon.programs import FunctionProgram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

COUNT = 24


class Killed(Exception):
    """Ends a session without a last save."""


class Failing(am.SessionRunHook):
    """Fails at random before the step, after its commit, and in the background."""

    def __init__(self, dice: random.Random, chance: float) -> None:
        self.dice, self.chance = dice, chance

    def maybe_fail(self) -> None:
        if self.dice.random() < self.chance:
            raise self.dice.choice([AbortedError, UnavailableError])("preempted")

    async def before_run(self, run_context: Any) -> None:
        self.maybe_fail()

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.maybe_fail()

    async def background(self, session: Any, coord: Any) -> None:
        async for _ in coord.every(0.7):
            self.maybe_fail()


# -- sources


def plain(_: random.Random) -> Dataset:
    return from_iterable(range(COUNT))


def prefetched(dice: random.Random) -> Dataset:
    return plain(dice).shuffle(8, seed=3).map(waiting(dice), concurrency=3).prefetch(4)


def unordered(dice: random.Random) -> Dataset:
    return plain(dice).shuffle(8, seed=3).map(waiting(dice), concurrency=4, ordered=False)


def unordered_batches(dice: random.Random) -> Dataset:
    return unordered(dice).batch(2).prefetch(2)


def waiting(dice: random.Random) -> Callable[[int], Any]:
    async def wait(number: int) -> int:
        await asyncio.sleep(dice.choice([0, 0.01, 0.1]))
        return number

    return wait


class Reader:
    """A source of another library. Its iterators do not follow a position that is loaded."""

    def __init__(self, _: random.Random) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        for number in range(self.position, COUNT):
            self.position = number + 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


SOURCES: dict[str, Callable[[random.Random], Any]] = {
    "plain": plain,
    "prefetched": prefetched,
    "unordered": unordered,
    "unordered batches": unordered_batches,
    "reader": Reader,
}


# -- bodies


class Life:
    """One process of a training, which may be killed after some runs."""

    def __init__(self, sess: Any, dice: random.Random, runs: int) -> None:
        self.sess, self.dice, self.runs = sess, dice, runs

    async def step(self, *elements: Any) -> None:
        if not self.runs:
            raise Killed
        self.runs -= 1
        if self.dice.random() < 0.2:
            await asyncio.sleep(self.dice.choice([0, 0.1, 1]))
        await self.sess.run("add", {"batch": np.concatenate([np.atleast_1d(x) for x in elements])})
        if self.dice.random() < 0.1:
            await self.sess.save()


async def each(life: Life, elements: Any) -> None:
    async for element in elements:
        with contextlib.suppress(RecoveredError):
            await life.step(element)


async def pairs(life: Life, elements: Any) -> None:
    async for first in elements:
        second = await anext(elements)
        with contextlib.suppress(RecoveredError):
            await life.step(first, second)


async def several_steps(life: Life, elements: Any) -> None:
    async for element in elements:
        with contextlib.suppress(RecoveredError):
            for _ in range(3):
                await life.step(element)


async def double_buffer(life: Life, elements: Any) -> None:
    element = await anext(elements, None)
    while element is not None:
        following = asyncio.create_task(anext(elements, None))
        if life.dice.random() < 0.3:
            await asyncio.sleep(0.05)
        try:
            await life.step(element)
        finally:
            element = await following
        if element is None:  # the end came before a recovery in the last run
            element = await anext(elements, None)


async def gathered(life: Life, elements: Any) -> None:
    element = await anext(elements, None)
    while element is not None:
        results = await asyncio.gather(
            anext(elements, None), life.step(element), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        element = results[0]
        if element is None:
            element = await anext(elements, None)


async def learners(life: Life, elements: Any) -> None:
    lock = asyncio.Lock()

    async def learn() -> None:
        while True:
            async with lock:
                element = await anext(elements, None)
            if element is None:
                return
            await asyncio.sleep(life.dice.choice([0, 0.01]))
            await life.step(element)

    while True:
        before = life.runs
        results = await asyncio.gather(learn(), learn(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if life.runs == before:
            return


BODIES: dict[str, Callable[[Life, Any], Any]] = {
    "each": each,
    "pairs": pairs,
    "several steps": several_steps,
    "double buffer": double_buffer,
    "gathered": gathered,
    "learners": learners,
}
EXACT = ["each", "pairs", "several steps"]
"""They ask for the next element after the run. Others may see the end before a run gives its back."""


def program() -> FunctionProgram:
    made = FunctionProgram({"counts": np.zeros(COUNT, np.int64)})

    @made.step
    async def add(state: Any, batch: Any) -> None:
        await asyncio.sleep(0.02)
        np.add.at(state["counts"], batch, 1)

    return made


@contextlib.asynccontextmanager
async def session(dice: random.Random, directory: Path, repeat_runs: bool) -> AsyncIterator[Any]:
    recovery = am.Recovery(first_delay_secs=0, repeat_runs=repeat_runs)
    async with am.MonitoredTrainingSession(
        program=program(), checkpoint_dir=directory, save_checkpoint_secs=None,
        save_checkpoint_steps=dice.choice([1, 2, 3, 7]), hooks=[Failing(dice, 0.05)],
        recovery=recovery, signals=None, save_summaries_steps=0, log_step_count_steps=0,
    ) as sess:  # fmt: skip
        yield sess


async def trained(directory: Path, source: str, body: str, repeat_runs: bool, seed: int) -> list[int]:
    """Return how often each element counts, after three processes of which two may be killed."""
    dice, use = random.Random(seed), BODIES[body]
    for runs in (dice.randrange(1, 16), dice.randrange(1, 16), -1):
        with contextlib.suppress(Killed):
            async with session(dice, directory, repeat_runs) as sess:
                await use(Life(sess, dice, runs), sess.iterate(SOURCES[source](dice)))
                counts: list[int] = (await sess.peek("counts")).tolist()
                break
    return counts


@pytest.mark.parametrize(
    ("body", "repeat_runs"), [*((body, True) for body in BODIES), *((body, False) for body in EXACT)]
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.campaign("data", short=1)
async def test_each_element_is_consumed_once(
    tmp_path: Path, source: str, body: str, repeat_runs: bool, seed: int
) -> None:
    counts = await trained(tmp_path, source, body, repeat_runs, seed)
    if BODIES[body] is several_steps:
        assert all(1 <= count <= 3 for count in counts), counts
    else:
        assert counts == [1] * COUNT


@pytest.mark.parametrize(
    ("body", "seed"),
    [
        ("double buffer", 46002),  # a fetch over a recovery gives no element of the pass before it
        ("learners", 46001),  # a batch that is kept over two recoveries has a position in the last pass
    ],
)
async def test_unordered_batches_are_consumed_once_after_several_recoveries(
    tmp_path: Path, body: str, seed: int
) -> None:
    counts = await trained(tmp_path, "unordered batches", body, True, seed)
    assert counts == [1] * COUNT


@pytest.mark.campaign("data", short=4)
async def test_each_element_of_each_epoch_is_consumed_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    for runs in (dice.randrange(1, 40), dice.randrange(1, 40), -1):
        with contextlib.suppress(Killed):
            async with session(dice, tmp_path, dice.random() < 0.5) as sess:
                life = Life(sess, dice, runs)
                async for epoch in sess.epochs(prefetched(dice), 3):
                    await each(life, epoch)
                counts = (await sess.peek("counts")).tolist()
    assert counts == [3] * COUNT


@pytest.mark.campaign("data", short=4)
async def test_dataset_made_again_for_each_pass_resumes_at_its_element(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    for runs in (dice.randrange(1, 60), dice.randrange(1, 60), -1):
        with contextlib.suppress(Killed):
            async with session(dice, tmp_path, True) as sess:
                life = Life(sess, dice, runs)
                while sess.global_step < 3 * COUNT:
                    await each(life, sess.iterate(plain(dice).shuffle(8, seed=2)))
                counts = (await sess.peek("counts")).tolist()
    assert counts == [3] * COUNT
