"""A whole session life, interrupted at each of its moments: by cancellations and by errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from asyncmon.checkpoint import Saver, load_checkpoint, verify
from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import (
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
    SessionRunArgs,
    SessionRunHook,
)
from asyncmon.testing import VirtualTimeLoop, assert_nothing_left_behind, run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from pathlib import Path

    from tests.runtime.conftest import World

RESTORED = 5
STEPS = 20
LAST = RESTORED + STEPS


class Probe(SessionRunHook):
    """A hook with every moment and a timer; counts its calls, and may fail in one of them."""

    def __init__(self, life: Life, name: str) -> None:
        self.life, self.name = life, name
        self.calls: dict[str, int] = {}
        self.fail: tuple[str, int, BaseException] | None = None
        self.ticks = 0

    def reach(self, moment: str) -> None:
        self.calls[moment] = self.calls.get(moment, 0) + 1
        if self.fail is not None and self.fail[:2] == (moment, self.calls[moment]):
            raise self.fail[2]

    async def begin(self) -> None:
        self.reach("begin")
        await asyncio.sleep(0)

    async def after_create_session(self, session: Any, coord: Any) -> None:
        await asyncio.sleep(0.01)
        self.reach("after_create_session")

    async def before_run(self, run_context: Any) -> SessionRunArgs:
        await asyncio.sleep(0.01)
        self.reach("before_run")
        return SessionRunArgs(self.life.world.weight)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        await asyncio.sleep(0.01)
        assert float(run_values.results) in (run_values.step, run_values.step - 1), "a torn state"
        self.reach("after_run")

    async def background(self, session: Any, coord: Any) -> None:
        self.reach("background")
        async for _ in coord.every(0.25):
            weight, step = await coord.sample_step(self.life.world.weight)
            assert float(weight) in (step, step - 1), "a torn state"
            self.ticks += 1
            self.reach("background")

    async def end(self, session: Any) -> None:
        await asyncio.sleep(0.01)
        self.reach("end")

    async def cleanup(self, error: BaseException | None) -> None:
        self.reach("cleanup")
        await asyncio.sleep(0.01)

    def state_dict(self) -> dict[str, Any]:
        return {"ticks": self.ticks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ticks = state["ticks"]


class Life:
    """Open with a restore, train 20 steps with timers and saves under way, close."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.directory = world, directory
        self.saver = Saver(max_to_keep=None)
        self.probes = [Probe(self, name) for name in "AB"]
        self.handles: list[Any] = []
        scaffold = Scaffold(saver=self.saver, program=world.program)
        saves = CheckpointSaverHook(directory, save_steps=7, scaffold=scaffold, save_graph_def=False)
        creator = ChiefSessionCreator(scaffold, checkpoint_dir=directory, program=world.program)
        self.session = MonitoredSession(creator, [*self.probes, saves], 3)

    async def live(self) -> None:
        async with self.session as sess:
            await self.body(sess)

    async def body(self, sess: MonitoredSession) -> None:
        while (step := sess.raw_session().global_step) < LAST:
            await sess.run(self.world.train, self.world.feed())
            await asyncio.sleep(0.05)
            if step == RESTORED + 10:
                self.handles.append(self.saver.start_save(sess, self.directory / "own", step))

    async def check(self) -> None:
        """Assert what holds however the life ended."""
        for probe in self.probes:
            assert probe.calls.get("begin", 0) == probe.calls.get("cleanup", 0) <= 1, probe.calls
        assert self.session.should_stop()
        assert self.session.raw_session() is None
        assert not self.saver.busy
        assert all(handle.done for handle in self.handles)
        found = await verify(self.directory)
        assert found
        assert [one for one in found if one.problem is not None] == []
        for one in found:
            async with await load_checkpoint(one.path) as reader:
                step = int(await reader.get_tensor("global_step"))
                assert float(await reader.get_tensor("weight")) == step, "a torn state"
        other = Saver()
        await other.claim(self.directory)  # nobody holds the directory any more
        await other.close()


async def prepare(world: World, directory: Path) -> None:
    """Leave a checkpoint of step 5."""
    directory.mkdir()
    hook = CheckpointSaverHook(directory, save_steps=1000, saver=Saver(), save_graph_def=False)
    async with world.session([hook]) as sess:
        for _ in range(RESTORED):
            await sess.run(world.train, world.feed())


class StepByStep:
    """Await a coroutine; call something while it is suspended for the n-th time."""

    def __init__(self, coro: Coroutine[Any, Any, Any], at: int, act: Callable[[], Any]) -> None:
        self.coro, self.at, self.act = coro, at, act
        self.points = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = self.coro.send(value) if error is None else self.coro.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                error = None  # its traceback has this frame
            self.points += 1
            if self.points == self.at:
                asyncio.get_running_loop().call_soon(self.act)
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown


class CountingLoop(VirtualTimeLoop):
    """Virtual time that calls something before its n-th turn."""

    turns = 0
    at = -1
    act: Callable[[], Any]

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns == self.at:
            self.act()
        super()._run_once()  # type: ignore[misc]  # typeshed leaves out what is private


@pytest.fixture
def start(world: World, tmp_path: Path) -> Callable[[], Life]:
    """Make lives that all begin with the same checkpoint, each in a directory of its own."""
    origin = tmp_path / "origin"
    run(prepare(world, origin))
    count = 0

    def start() -> Life:
        nonlocal count
        count += 1
        directory = tmp_path / str(count)
        shutil.copytree(origin, directory)
        return Life(world, directory)

    return start


async def cancelled_at(life: Life, at: int, how: Callable[[Life], Coroutine[Any, Any, None]]) -> bool:
    """Live in a task of its own, cancelled at its n-th await. Return whether there was one."""
    drive = StepByStep(how(life), at, lambda: task.cancel())

    async def driven() -> None:
        await drive

    async with assert_nothing_left_behind(life.directory):
        task = asyncio.create_task(driven())
        await asyncio.wait([task])
        reached = drive.points >= at
        assert task.cancelled() == reached, f"await {at}: {task!r}"
        if not reached:
            task.result()
        del task  # and with it the traceback, whose frames hold what was open
        await life.check()
    return reached


def sweep(start: Callable[[], Life], how: Any, stride: int = 1, first: int = 1) -> int:
    at = first
    while run(cancelled_at(start(), at, how)):
        at += stride
    return at


def test_cancelled_at_each_await(start: Callable[[], Life]) -> None:
    assert sweep(start, Life.live) > 100
