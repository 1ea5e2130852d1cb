"""A whole session life, interrupted at each of its moments: by cancellations and by errors."""

from __future__ import annotations

import asyncio
import math
import shutil
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import pytest

from asyncmon.checkpoint import Saver, load_checkpoint, verify
from asyncmon.errors import AbortedError, OutOfRangeError
from asyncmon.hooks import CheckpointSaverHook
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import (
    ChiefSessionCreator,
    MonitoredSession,
    Scaffold,
    SessionRunArgs,
    SessionRunHook,
)
from asyncmon.testing import VirtualTimeLoop, assert_nothing_left_behind, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Generator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.runtime.conftest import World

    Scope: TypeAlias = Callable[["Life"], AbstractAsyncContextManager[None]]

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
            weight, step = await created_session(coord).samples.request(self.life.world.weight)
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
        self.task: asyncio.Task[None] | None = None
        self.cancelled = False
        self.interrupt: Callable[[], object] = self.cancel
        """What interrupts this life from outside."""
        self.around_step: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
        """What each step of the body is done in."""
        scaffold = Scaffold(saver=self.saver, program=world.program)
        saves = CheckpointSaverHook(directory, save_steps=7, scaffold=scaffold, save_graph_def=False)
        creator = ChiefSessionCreator(scaffold, checkpoint_dir=directory, program=world.program)
        self.session = MonitoredSession(creator, [*self.probes, saves], 3)

    def cancel(self) -> None:
        assert self.task is not None
        self.cancelled |= self.task.cancel()

    async def live(self) -> None:
        async with self.session as sess:
            await self.body(sess)

    async def body(self, sess: MonitoredSession) -> None:
        while (step := sess.raw_session().global_step) < LAST:
            async with self.around_step():
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


async def alone(life: Life) -> None:
    await life.live()


async def cancelled_again(life: Life) -> None:
    """Be cancelled twice, in short order."""

    def cancel_twice() -> None:
        life.cancel()
        asyncio.get_running_loop().call_later(0.005, life.cancel)

    life.interrupt = cancel_twice
    await life.live()


async def in_scope(life: Life) -> None:
    with anyio.CancelScope() as scope:
        life.interrupt = scope.cancel
        await life.live()
    if scope.cancelled_caught:
        raise asyncio.CancelledError


async def in_group(life: Life) -> None:
    """Live beside a task that fails."""
    alarm = asyncio.Event()
    life.interrupt = alarm.set

    async def fail() -> None:
        await alarm.wait()
        raise LookupError("a sibling failed")

    try:
        async with asyncio.TaskGroup() as group:
            sibling = group.create_task(fail())
            await life.live()
            sibling.cancel()
    except* LookupError:
        raise asyncio.CancelledError from None


async def in_timeout(life: Life) -> None:
    try:
        async with asyncio.timeout(None) as limit:
            life.interrupt = lambda: limit.reschedule(0)
            await life.live()
            life.interrupt = life.cancel
    except TimeoutError:
        raise asyncio.CancelledError from None


async def in_fail_after(life: Life) -> None:
    try:
        with anyio.fail_after(math.inf) as scope:
            life.interrupt = lambda: setattr(scope, "deadline", -math.inf)
            await life.live()
    except TimeoutError:
        raise asyncio.CancelledError from None


async def in_a_group_of_anyio(life: Life) -> None:
    async with anyio.create_task_group() as group:
        life.interrupt = group.cancel_scope.cancel
        await life.live()
    if group.cancel_scope.cancelled_caught:
        raise asyncio.CancelledError


@asynccontextmanager
async def scope(life: Life) -> AsyncIterator[None]:
    with anyio.CancelScope() as inner:
        life.interrupt = inner.cancel
        yield


@asynccontextmanager
async def fail_after(life: Life) -> AsyncIterator[None]:
    with suppress(TimeoutError), anyio.fail_after(math.inf) as inner:
        life.interrupt = lambda: setattr(inner, "deadline", -math.inf)
        yield


@asynccontextmanager
async def timeout(life: Life) -> AsyncIterator[None]:
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            life.interrupt = lambda: None if limit.expired() else limit.reschedule(0)
            yield


@asynccontextmanager
async def group(life: Life) -> AsyncIterator[None]:
    """Be beside a task that fails."""
    alarm = asyncio.Event()
    life.interrupt = alarm.set

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


SCOPES = [scope, fail_after, timeout, group]


async def around_the_steps(life: Life, inner: Scope) -> None:
    """The body ends early where it is interrupted; that is a clean end."""
    async with life.session as sess:
        async with inner(life):
            await life.body(sess)
        life.interrupt = life.cancel


async def around_each_step(life: Life, inner: Scope) -> None:
    """What is interrupted is a step, which is done again if it was not done; the session goes on."""

    @asynccontextmanager
    async def around_step() -> AsyncIterator[None]:
        async with inner(life):
            yield
        life.interrupt = life.cancel

    life.around_step = around_step
    await life.live()
    life.interrupt = lambda: None
    newest, *_ = await verify(life.directory)
    assert newest.path.endswith(f"-{LAST}")


WAYS = [
    alone,
    cancelled_again,
    in_scope,
    in_fail_after,
    in_group,
    in_a_group_of_anyio,
    in_timeout,
    *(partial(around_the_steps, inner=inner) for inner in SCOPES),
    *(partial(around_each_step, inner=inner) for inner in SCOPES),
]


def name(way: Any) -> str:
    if isinstance(way, partial):
        return f"{way.keywords['inner'].__name__}_{way.func.__name__}"
    return str(way.__name__)


async def interrupted(
    life: Life, at: int, way: Callable[[Life], Coroutine[Any, Any, None]], by_turns: bool
) -> bool:
    """Live in a task of its own, interrupted at its n-th await, or at the n-th turn of the loop.

    Return whether it lived long enough.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    reached = False

    def act() -> None:
        nonlocal reached
        reached = True
        life.interrupt()

    drive = StepByStep(way(life), -1 if by_turns else at, act)

    async def driven() -> None:
        await drive

    async with assert_nothing_left_behind(life.directory):
        life.task = asyncio.create_task(driven())
        if by_turns:
            loop.act, loop.at = act, loop.turns + 1 + at
        await asyncio.wait([life.task])
        loop.at = -1
        caught = life.task.cancelled()
        assert caught or not life.cancelled, f"the cancellation at {at} was lost"
        if not caught:
            life.task.result()
        life.task, life.interrupt = None, life.cancel  # and with them the traceback and what it holds
        await life.check()
    return reached


def sweep(start: Callable[[], Life], way: Any, by_turns: bool, stride: int) -> int:
    """Interrupt one life after another, each a little later, until one comes to its end."""
    at = 1
    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        while runner.run(interrupted(start(), at, way, by_turns)):
            at += stride
    return at


def test_cancelled_at_many_awaits(start: Callable[[], Life]) -> None:
    assert sweep(start, alone, by_turns=False, stride=7) > 100


@pytest.mark.parametrize("way", WAYS, ids=name)
def test_interrupted_at_many_turns_of_the_loop(start: Callable[[], Life], way: Any) -> None:
    assert sweep(start, way, by_turns=True, stride=97) > 100


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("by_turns", [False, True], ids=["awaits", "turns"])
@pytest.mark.parametrize("way", WAYS, ids=name)
def test_interrupted_at_each_moment(start: Callable[[], Life], way: Any, by_turns: bool) -> None:
    assert sweep(start, way, by_turns, stride=1) > 100


CALLS = {
    "begin": 1, "after_create_session": 1, "before_run": STEPS, "after_run": STEPS, "background": 6,
    "end": 1, "cleanup": 1,
}  # fmt: skip


async def failing(life: Life, moment: str, call: int, error: Exception) -> None:
    """Live with a hook that fails in one call of one method."""
    life.probes[1].fail = (moment, call, error)
    recovers = isinstance(error, AbortedError) and moment in (
        "after_create_session", "before_run", "after_run", "background",
    )  # fmt: skip
    ends_data = isinstance(error, OutOfRangeError) and moment in (
        "before_run",
        "after_run",
        "background",
    )
    async with assert_nothing_left_behind(life.directory):
        if recovers or ends_data:
            await life.live()
        else:
            with pytest.raises(type(error)) as caught:
                await life.live()
            assert caught.value is error
            del caught
        error.__traceback__ = None  # whose frames hold what was open
        await life.check()
    probe = life.probes[1]
    assert probe.calls[moment] >= call
    assert ("end" in probe.calls) == (recovers or ends_data or moment in ("end", "cleanup"))
    if recovers:
        newest, *_ = await verify(life.directory)
        assert newest.path.endswith(f"-{LAST}")
        assert probe.calls["after_create_session"] == 2


async def fail_everywhere(start: Callable[[], Life], error: type[Exception], stride: int) -> None:
    for moment, calls in CALLS.items():
        for call in range(1, calls + 1, stride):
            await failing(start(), moment, call, error("injected"))


ERRORS = [ValueError, AbortedError, OutOfRangeError]


@pytest.mark.parametrize("error", ERRORS)
def test_a_hook_fails_in_many_calls(start: Callable[[], Life], error: type[Exception]) -> None:
    run(fail_everywhere(start, error, stride=7))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("error", ERRORS)
def test_a_hook_fails_in_each_call(start: Callable[[], Life], error: type[Exception]) -> None:
    run(fail_everywhere(start, error, stride=1))
