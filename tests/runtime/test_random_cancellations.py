"""Random programs of several tasks whose calls are cancelled: whole steps, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from asyncmon.checkpoint import Saver, load_checkpoint
from asyncmon.data import from_iterable
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import MonitoredSession, Scaffold, SessionRunHook
from asyncmon.testing import assert_nothing_left_behind
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Slow(SessionRunHook):
    """Waits around runs, sometimes."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    async def before_run(self, run_context: Any) -> None:
        await asyncio.sleep(self.dice.choice([0, 0, 0.1, 0.3]))

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(self.dice.choice([0, 0, 0.1]))

    async def background(self, session: Any, coord: Any) -> None:
        async for _ in coord.every(0.4):
            await coord.sample([])


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
        handle = await self.sess.attach(Slow(self.dice))
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


@pytest.mark.campaign("cancellation", short=16)
async def test_cancelled_calls_leave_whole_steps(world: World, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    scaffold = Scaffold(program=world.program, saver=Saver(max_to_keep=2))
    hooks = [Slow(dice), CheckpointSaverHook(tmp_path, save_secs=0.7, scaffold=scaffold)]
    creator = world.creator(scaffold=scaffold)
    async with assert_nothing_left_behind(tmp_path):
        async with MonitoredSession(creator, hooks, 3) as sess:
            program = Program(world, sess, dice)
            tasks = [program.task(dice.randrange(1, 8)) for _ in range(dice.randrange(1, 5))]
            await asyncio.gather(*tasks)
            step = sess.global_step
            assert step is not None
            assert program.done <= step <= program.done + program.cancelled
            assert float(await sess.peek(world.weight)) == step
        async with await load_checkpoint(tmp_path) as reader:
            assert reader.facts.step == step
            assert float(await reader.get_tensor("weight")) == step
