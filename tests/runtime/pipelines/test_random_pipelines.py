"""Random pipelines with failures, kills and saves: each element counts once in the surviving state."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import RecoveredError
from asyncmon.runtime.pipelines import Item, Pipeline, Policy
from tests.runtime.test_random_data import COUNT, SOURCES, Killed, Life, session

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Flaky(Exception):
    """Raised by a call, which is retried."""


class Producer:
    """A pipeline with random options, and the ages of its batches."""

    def __init__(self, sess: Any, dice: random.Random, source: Any, group: int | None) -> None:
        self.sess, self.dice = sess, dice
        self.group = group or 1
        self.max_age = dice.choice([None, 0, 1, 3])
        self.size = dice.choice([1, 2, 4])
        workers = dice.choice([1, 3, 8])
        self.pipeline: Pipeline = sess.produce(
            source, self.call, workers=workers, depth=max(self.size, dice.choice([workers, 12])),
            max_age=self.max_age, group=group, ordered=dice.random() < 0.3, retries=3,
            on_stale=dice.choice(["pace", "drop"]), keep=dice.choice([None, "results"]),
            weights="counts", name="made",
        )  # fmt: skip

    async def call(self, element: int, policy: Policy) -> int:
        await asyncio.sleep(self.dice.choice([0, 0, 0.01, 0.05, 0.3]))
        if self.dice.random() < 0.05:
            raise Flaky
        if self.dice.random() < 0.2:
            await policy.weights()
        return element

    def check(self, items: list[Item]) -> None:
        for item in items:
            assert isinstance(item.version, int)
            if self.max_age is not None:
                assert (self.sess.global_step or 0) - item.version <= self.max_age
                assert 0 <= item.age <= self.max_age


def elements(items: list[Item]) -> np.ndarray:
    return np.concatenate([np.atleast_1d(item.value).ravel() for item in items])


async def each(life: Life, made: Producer) -> None:
    async for batch in made.pipeline.batches(made.size):
        made.check(batch)
        with contextlib.suppress(RecoveredError):
            await life.step(elements(batch))


async def pairs(life: Life, made: Producer) -> None:
    batches = made.pipeline.batches(made.size)
    async for batch in batches:
        both = [*batch, *await anext(batches, [])]
        made.check(both)
        with contextlib.suppress(RecoveredError):
            await life.step(elements(both))


async def double_buffer(life: Life, made: Producer) -> None:
    batches = made.pipeline.batches(made.size)
    batch = await anext(batches, None)
    while batch is not None:
        following = asyncio.create_task(anext(batches, None))
        if life.dice.random() < 0.3:
            await asyncio.sleep(0.05)
        try:
            await life.step(elements(batch))
        except BaseException:
            following.cancel()
            raise
        batch = await following
        if batch is None:  # the end came before a recovery in the last run
            batch = await anext(batches, None)


async def learners(life: Life, made: Producer) -> None:
    async def learn() -> None:
        async for batch in made.pipeline.batches(made.size):
            await asyncio.sleep(life.dice.choice([0, 0.01]))
            await life.step(elements(batch))

    while True:
        before = life.runs
        results = await asyncio.gather(learn(), learn(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if life.runs == before:
            return


BODIES: dict[str, Callable[[Life, Any], Any]] = {
    "each": each, "pairs": pairs, "double buffer": double_buffer, "learners": learners,
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "repeat_runs"), [*((body, True) for body in BODIES), ("each", False), ("pairs", False)]
)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.campaign("pipelines", short=1)
async def test_each_element_is_consumed_once(
    tmp_path: Path, source: str, body: str, repeat_runs: bool, seed: int
) -> None:
    dice, use = random.Random(seed), BODIES[body]
    group = dice.choice([None, None, 3])
    for runs in (dice.randrange(1, 10), dice.randrange(1, 10), -1):
        with contextlib.suppress(Killed):
            async with session(dice, tmp_path, repeat_runs) as sess:
                made = Producer(sess, dice, SOURCES[source](dice), group)
                await use(Life(sess, dice, runs), made)
                counts = (await sess.peek("counts")).tolist()
                statistics = made.pipeline.statistics()
                break
    assert counts == [group or 1] * COUNT
    assert statistics.ended
    assert statistics.consumed == statistics.read
    assert statistics.queued == statistics.running == statistics.ready == statistics.held == 0
