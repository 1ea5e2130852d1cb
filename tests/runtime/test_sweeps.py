"""A whole training, interrupted at each of its moments: by cancellations and by errors."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from asyncmon.checkpoint import Saver
from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.runtime import MonitoredSession
from asyncmon.testing import assert_nothing_left_behind, run
from tests.faults import AtAwait, CountingLoop, Faults, FaultyHook, check_checkpoints, training
from tests.runtime.conftest import World

Scope: TypeAlias = Callable[["Training"], AbstractAsyncContextManager[None]]

RESTORED = 5
STEPS = 20
LAST = RESTORED + STEPS


class Training:
    """Open with a restore, train 20 steps with timers and pending saves, close."""

    def __init__(self, world: World, directory: Path) -> None:
        self.world, self.directory = world, directory
        self.saver = Saver(max_to_keep=None)
        self.faults = [Faults(), Faults()]
        self.handles: list[Any] = []
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.interrupt: Callable[[], object] = self.cancel
        """Interrupts it from outside."""
        self.around_step: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
        """The scope of each step of the body."""
        hooks = [FaultyHook(one, count=world.weight) for one in self.faults]
        self.session = training(world, directory, hooks, saver=self.saver, save_steps=7)

    def cancel(self) -> None:
        assert self.task is not None
        self.cancelled |= self.task.cancel()

    async def run(self) -> None:
        async with self.session as sess:
            await self.body(sess)

    async def body(self, sess: MonitoredSession) -> None:
        while (step := sess.raw_session().global_step) < LAST:
            async with self.around_step():
                await sess.run(self.world.train, self.world.feed())
                await asyncio.sleep(0.05)
            if step == RESTORED + 10:
                self.handles.append(self.saver.start_save(sess, self.directory / "own", step))

    async def check(self) -> int:
        """Check what holds however it ended; return the newest step."""
        for faults in self.faults:
            assert faults.calls.get("begin", 0) == faults.calls.get("cleanup", 0) <= 1, faults.calls
        assert self.session.should_stop()
        assert self.session.raw_session() is None
        assert not self.saver.busy
        assert all(handle.done for handle in self.handles)
        newest = await check_checkpoints(self.directory)
        other = Saver()
        await other.claim(self.directory)  # no lock of the directory is left
        await other.close()
        return newest


async def prepare(world: World, directory: Path) -> None:
    """Leave a checkpoint of step 5."""
    hook = CheckpointSaverHook(directory, save_steps=1000, saver=Saver(), save_graph_def=False)
    async with world.session([hook]) as sess:
        for _ in range(RESTORED):
            await sess.run(world.train, world.feed())


@pytest.fixture
def start(world: World, tmp_path: Path) -> Callable[[], Training]:
    """Make trainings that all begin with the same checkpoint, each in a directory of its own."""
    origin = tmp_path / "origin"
    run(prepare(world, origin))
    count = 0

    def start() -> Training:
        nonlocal count
        count += 1
        directory = tmp_path / str(count)
        shutil.copytree(origin, directory)
        return Training(world, directory)

    return start


async def alone(one: Training) -> None:
    await one.run()


async def cancelled_again(one: Training) -> None:
    """Be cancelled twice, in short order."""

    def cancel_twice() -> None:
        one.cancel()
        asyncio.get_running_loop().call_later(0.005, one.cancel)

    one.interrupt = cancel_twice
    await one.run()


@asynccontextmanager
async def scope(one: Training) -> AsyncIterator[None]:
    with anyio.CancelScope() as inner:
        one.interrupt = inner.cancel
        yield


@asynccontextmanager
async def fail_after(one: Training) -> AsyncIterator[None]:
    with suppress(TimeoutError), anyio.fail_after(math.inf) as inner:
        one.interrupt = lambda: setattr(inner, "deadline", -math.inf)
        yield


@asynccontextmanager
async def timeout(one: Training) -> AsyncIterator[None]:
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            one.interrupt = lambda: None if limit.expired() else limit.reschedule(0)
            yield


@asynccontextmanager
async def group(one: Training) -> AsyncIterator[None]:
    """Be beside a task that fails."""
    alarm = asyncio.Event()
    one.interrupt = alarm.set

    async def fail() -> None:
        await alarm.wait()
        raise LookupError("a sibling failed")

    try:
        async with asyncio.TaskGroup() as siblings:
            sibling = siblings.create_task(fail())
            yield
            sibling.cancel()
    except* LookupError:
        pass


@asynccontextmanager
async def group_of_anyio(one: Training) -> AsyncIterator[None]:
    async with anyio.create_task_group() as inner:
        one.interrupt = inner.cancel_scope.cancel
        yield


async def around_all(one: Training, inner: Scope) -> None:
    async with inner(one):
        await one.run()
    one.interrupt = one.cancel


async def around_the_steps(one: Training, inner: Scope) -> None:
    """The body ends early where it is interrupted; that is a clean end."""
    async with one.session as sess:
        async with inner(one):
            await one.body(sess)
        one.interrupt = one.cancel


async def around_each_step(one: Training, inner: Scope) -> None:
    """A step is interrupted, and done again if it was not done; the session continues."""

    @asynccontextmanager
    async def around_step() -> AsyncIterator[None]:
        async with inner(one):
            yield
        one.interrupt = one.cancel

    one.around_step = around_step
    await one.run()
    one.interrupt = lambda: None
    assert await check_checkpoints(one.directory) == LAST


WAYS = [
    alone,
    cancelled_again,
    *(
        partial(around, inner=inner)
        for around in (around_all, around_the_steps, around_each_step)
        for inner in (scope, fail_after, timeout, group, group_of_anyio)
    ),
]


def name(way: Any) -> str:
    if isinstance(way, partial):
        return f"{way.keywords['inner'].__name__}_{way.func.__name__}"
    return str(way.__name__)


async def interrupted(
    one: Training, at: int, way: Callable[[Training], Coroutine[Any, Any, None]], by_turns: bool
) -> bool:
    """Train in a task of its own, interrupted at its n-th await, or at the n-th turn of the loop.

    Return whether it took so long.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    reached = False

    def act() -> None:
        nonlocal reached
        reached = True
        one.interrupt()

    drive = AtAwait(way(one), -1 if by_turns else at, lambda: loop.call_soon(act) and None)

    async def driven() -> None:
        await drive

    async with assert_nothing_left_behind(one.directory):
        one.task = asyncio.create_task(driven())
        if by_turns:
            loop.act, loop.at = act, loop.turns + 1 + at
        await asyncio.wait([one.task])
        loop.at = -1
        caught = one.task.cancelled()
        assert caught or not one.cancelled, f"the cancellation at {at} was lost"
        if not caught:
            one.task.result()
        one.task, one.interrupt = None, one.cancel  # and with them the traceback and its frames
        await one.check()
    return reached


def sweep(start: Callable[[], Training], way: Any, by_turns: bool, stride: int) -> int:
    """Interrupt one training after another, each a little later, until one comes to its end."""
    at = 1
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        while runner.run(interrupted(start(), at, way, by_turns)):
            at += stride
    return at


def test_cancelled_at_many_awaits(start: Callable[[], Training]) -> None:
    assert sweep(start, alone, by_turns=False, stride=7) > 100


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_interrupted_at_many_turns_of_the_loop(start: Callable[[], Training], way: Any) -> None:
    assert sweep(start, way, by_turns=True, stride=193) > 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_turns", [False, True], ids=["awaits", "turns"])
@pytest.mark.parametrize("way", WAYS, ids=name)
def test_interrupted_at_each_moment(start: Callable[[], Training], way: Any, by_turns: bool) -> None:
    assert sweep(start, way, by_turns, stride=1) > 100


CALLS = {
    "begin": 1, "after_create_session": 1, "before_run": STEPS, "after_run": STEPS, "background": 1,
    "tick": 5, "sampled": 5, "end": 1, "cleanup": 1,
}  # fmt: skip


async def failing(one: Training, moment: str, call: int, error: Exception) -> None:
    """Train with a hook that fails in one call of one method."""
    faults = one.faults[1]
    faults.error_at = lambda *reached: error if reached == (moment, call) else None
    in_run = moment in ("before_run", "after_run", "background", "tick", "sampled")
    recovers = isinstance(error, AbortedError) and (in_run or moment == "after_create_session")
    ends_data = isinstance(error, OutOfRangeError) and moment in ("before_run", "after_run")
    async with assert_nothing_left_behind(one.directory):
        if recovers or ends_data:
            await one.run()
        else:
            with pytest.raises(type(error)) as caught:
                await one.run()
            assert caught.value is error
            del caught
        error.__traceback__ = None  # whose frames hold open resources
        newest = await one.check()
    assert faults.calls[moment] >= call
    assert ("end" in faults.calls) == (recovers or ends_data or moment in ("end", "cleanup"))
    if recovers:
        assert newest == LAST
        assert faults.calls["after_create_session"] == 2


async def fail_everywhere(start: Callable[[], Training], error: type[Exception], stride: int) -> None:
    for moment, calls in CALLS.items():
        for call in range(1, calls + 1, stride):
            await failing(start(), moment, call, error("injected"))


ERRORS = [ValueError, AbortedError, OutOfRangeError]


@pytest.mark.parametrize("error", ERRORS)
def test_a_hook_fails_in_many_calls(start: Callable[[], Training], error: type[Exception]) -> None:
    run(fail_everywhere(start, error, stride=7))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", ERRORS)
def test_a_hook_fails_in_each_call(start: Callable[[], Training], error: type[Exception]) -> None:
    run(fail_everywhere(start, error, stride=1))
