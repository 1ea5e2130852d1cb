"""Random faults of trainings: errors, stops, and cancelled calls. Each ends, and with whole steps."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncmon.data import from_iterable
from asyncmon.runtime import MonitoredSession
from asyncmon.testing import RecordingHook, assert_nothing_left_behind
from tests.faults import (
    Faults,
    FaultyCreator,
    FaultyHook,
    FaultyListener,
    RandomFaults,
    check_checkpoints,
    training,
)
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

ITEMS = 22


@pytest.mark.campaign("errors", short=5)
async def test_random_errors_lead_to_the_state_of_a_run_without_errors(
    world: World, tmp_path: Path, seed: int
) -> None:
    """WR-2, WR-3: every step is saved, so nothing is lost: each item is used once, in its order."""
    dice = random.Random(seed)
    faults = RandomFaults(dice)
    pause = partial(dice.choice, [0, 0, 0, 0.4])

    def metrics() -> dict[str, float]:
        faults.reach("metrics")
        return {}

    sess = training(
        world, tmp_path, [FaultyHook(faults, lambda: 0, 0.7, looper=True)],
        wrapped=lambda creator: FaultyCreator(creator, faults, pause),
        save_steps=1, metrics=metrics, listeners=[FaultyListener(faults)],
    )  # fmt: skip
    given: list[float] = []
    order = [float(2**number) for number in range(ITEMS)]  # whose sums show which were used
    async with assert_nothing_left_behind(tmp_path), sess:
        async for number in sess.iterate(from_iterable(order)):
            given.append(number)
            await sess.run(world.train, world.feed(number))
            await asyncio.sleep(0.1)
        assert sess.global_step == ITEMS
        assert float(await sess.raw_session().peek(world.weight)) == sum(order)
    assert given == order


@pytest.mark.campaign("stops", short=8)
async def test_stops_from_tasks_and_threads_end_a_session_once(world: World, seed: int) -> None:
    dice = random.Random(seed)
    record = RecordingHook()
    threads: list[threading.Thread] = []
    reasons = [f"reason {number}" for number in range(dice.randrange(1, 6))]

    async def stop_later(sess: Any, reason: str) -> None:
        await asyncio.sleep(dice.choice([0, 0.1, dice.uniform(0, 2)]))
        stop = dice.choice([sess.request_stop, lambda reason: sess.coord.request_stop(reason=reason)])
        if dice.random() < 0.5:
            stop(reason)
        else:
            thread = threading.Thread(target=stop, args=[reason])
            threads.append(thread)
            thread.start()

    async with assert_nothing_left_behind():
        async with world.session([record], stop_grace_period_secs=1) as sess:
            stoppers = [asyncio.create_task(stop_later(sess, reason)) for reason in reasons]
            while not sess.should_stop():
                await sess.run(world.train, world.feed())
                await asyncio.sleep(dice.choice([0, 0.1, 0.3]))
            steps = sess.global_step
        await asyncio.gather(*stoppers)
        for thread in threads:
            thread.join()
    assert sess.stop_reason in reasons
    moments = record.moments()
    assert [moments.count(one) for one in ("begin", "end", "cleanup")] == [1, 1, 1]
    assert moments.count("after_run") == steps


def slow(dice: random.Random) -> FaultyHook:
    """Return a hook that waits around runs, sometimes."""
    return FaultyHook(Faults(), partial(dice.choice, [0, 0, 0.1, 0.3]), 0.4)


class Program:
    """Tasks that call methods of one session at random, and cancel each other's calls."""

    def __init__(self, world: World, sess: MonitoredSession, dice: random.Random) -> None:
        self.world, self.sess, self.dice = world, sess, dice
        self.names = itertools.count()
        self.done = 0
        """The runs that returned."""
        self.cancelled = 0
        """The runs that were cancelled: each has made its step, or none of it."""

    async def run(self) -> None:
        try:
            await self.sess.run(self.world.train, self.world.feed())
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.done += 1

    async def iterate(self) -> None:
        async for number in self.sess.iterate(
            from_iterable([1.0, 1.0, 1.0]), name=str(next(self.names))
        ):
            assert number == 1.0
            await self.run()

    async def attach(self) -> None:
        handle = await self.sess.attach(slow(self.dice))
        await asyncio.sleep(0.2)
        await handle.detach()

    async def pause(self) -> None:
        self.sess.pause()
        try:
            await asyncio.sleep(0.2)
        finally:
            self.sess.resume()

    async def step_fn(self) -> None:
        async def fn(step_context: Any) -> None:
            await step_context.run_with_hooks(self.world.train, feed_dict=self.world.feed())

        try:
            await self.sess.run_step_fn(fn)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.done += 1

    async def act(self) -> None:
        actions = [
            self.run, self.run, self.run, self.step_fn, self.sess.save, self.attach, self.pause,
            self.iterate,
            lambda: self.sess.peek(self.world.weight),
            lambda: self.sess.run(self.world.weight, hooks=False),
            lambda: self.sess.sample(self.world.weight),
        ]  # fmt: skip
        action: Any = self.dice.choice(actions)
        call = asyncio.ensure_future(action())
        if self.dice.random() < 0.5:
            await asyncio.wait([call], timeout=self.dice.choice([0, 0.05, 0.1, 0.25, 1.0]))
            call.cancel()
        else:
            await asyncio.wait([call], timeout=5.0)
            call.cancel()  # a sample of which no run comes
        await asyncio.wait([call])
        with contextlib.suppress(asyncio.CancelledError):
            call.result()

    async def task(self, actions: int) -> None:
        for _ in range(actions):
            await self.act()


@pytest.mark.campaign("cancellation", short=8)
async def test_cancelled_calls_leave_whole_steps(world: World, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with assert_nothing_left_behind(tmp_path):
        async with training(world, tmp_path, [slow(dice)], save_secs=0.7) as sess:
            program = Program(world, sess, dice)
            tasks = [program.task(dice.randrange(1, 8)) for _ in range(dice.randrange(1, 5))]
            await asyncio.gather(*tasks)
            step = sess.global_step
            assert step is not None
            assert program.done <= step <= program.done + program.cancelled
            assert float(await sess.peek(world.weight)) == step
        assert await check_checkpoints(tmp_path) == step
