"""Concurrent runs come one after another, in the order of the calls, and none waits for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.runtime.run_lock import RunLock
from asyncmon.runtime.stop.interrupt import CallScopes
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession, wait_all_tasks_blocked
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Slow(RecordingHook):
    async def before_run(self, run_context: Any) -> Any:
        await asyncio.sleep(1)
        return await super().before_run(run_context)


async def test_concurrent_runs_never_interleave_and_are_served_in_order_ax_9_hp_23(
    world: World,
) -> None:
    hook, order = Slow(), []

    async def run(number: int) -> None:
        await sess.run(world.train, world.feed())
        order.append(number)

    async with world.session([hook]) as sess:
        await asyncio.gather(*(run(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert hook.moments()[2:-2] == ["before_run", "after_run"] * 5


async def test_a_waiter_that_is_cancelled_is_passed_over_ax_9(world: World) -> None:
    async with world.session([Slow()]) as sess:
        runs = [asyncio.create_task(sess.run(world.train, world.feed())) for _ in range(4)]
        await wait_all_tasks_blocked()
        runs[1].cancel()
        results = await asyncio.gather(*runs, return_exceptions=True)
    assert [str(r) for r in results] == ["1.0", "", "2.0", "3.0"]


class Reentering(SessionRunHook):
    def __init__(self, how: Any) -> None:
        self.how = how
        self.session: Any = None

    async def before_run(self, run_context: Any) -> None:
        await self.how(self.session)


async def in_a_child(session: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(session.run("a"))


@pytest.mark.parametrize(
    "how",
    [
        lambda session: session.run("a"),
        lambda session: session.run_step_fn(lambda context: None),
        in_a_child,
    ],
)
async def test_a_run_from_inside_a_run_is_an_error_and_no_deadlock_ax_9(how: Any) -> None:
    hook = Reentering(how)
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
        hook.session = sess
        with pytest.raises((RuntimeError, ExceptionGroup)) as caught:
            await sess.run("a")
    error = caught.value.exceptions[0] if isinstance(caught.value, ExceptionGroup) else caught.value
    assert "called from inside a run of the same session" in str(error)


async def test_sample_and_close_from_inside_a_run_are_errors_too() -> None:
    for how, message in (
        (lambda session: session.sample("a"), "sample"),
        (lambda session: session.close(), "close"),
    ):
        hook = Reentering(how)
        async with MonitoredSession(ScriptedCreator(ScriptedSession()), [hook]) as sess:
            hook.session = sess
            with pytest.raises(RuntimeError, match=message):
                await sess.run("a")


async def test_a_task_left_by_an_earlier_run_may_run() -> None:
    tasks: list[asyncio.Task[Any]] = []

    class Leaving(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            if not tasks:
                tasks.append(asyncio.create_task(self.later()))

        async def later(self) -> Any:
            await asyncio.sleep(1)
            return await sess.run("a")

    async with MonitoredSession(ScriptedCreator(ScriptedSession([1, 2])), [Leaving()]) as sess:
        assert await sess.run("a") == 1
        assert await tasks[0] == 2


async def test_a_run_without_hooks_feeds_the_run_that_waits() -> None:
    arrived = asyncio.Event()

    async def wait() -> str:
        await arrived.wait()
        return "fed"

    async def feed() -> None:
        arrived.set()

    async with MonitoredSession(ScriptedCreator(ScriptedSession([wait, feed]))) as sess:
        waiting = asyncio.create_task(sess.run("a"))
        await wait_all_tasks_blocked()
        await sess.run("produce", hooks=False)
        assert await waiting == "fed"


async def test_a_loop_of_steps_that_never_suspend_lets_others_run(world: World) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with world.session() as sess:
        task = asyncio.create_task(other())
        while turns < 20:
            await sess.run(world.train, world.feed())
        task.cancel()


async def test_a_lock_handed_over_in_the_moment_of_a_cancellation_is_handed_on() -> None:
    lock, got = RunLock(CallScopes()), []

    async def take(number: int) -> None:
        await lock.acquire()
        got.append(number)

    await lock.acquire()
    tasks = [asyncio.create_task(take(n)) for n in range(2)]
    await wait_all_tasks_blocked()
    lock.release()
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert got == [1]
    assert tasks[0].cancelled()


USES: list[Callable[[Any], Coroutine[Any, Any, Any]]] = [
    lambda sess: sess.run("a"),
    lambda sess: sess.run("a", hooks=False),
    lambda sess: sess.run_step_fn(lambda context: context.run_with_hooks("a")),
    lambda sess: sess.sample("a"),
    lambda sess: sess.peek("a"),
    lambda sess: sess.attach(RecordingHook()),
]


@pytest.mark.parametrize("use", USES)
async def test_another_event_loop_is_refused_and_harms_nothing(use: Any) -> None:
    async with MonitoredSession(ScriptedCreator(ScriptedSession()), [RecordingHook()]) as sess:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="event loop in which it was started"):
                await asyncio.to_thread(lambda: asyncio.run(use(sess)))
            await sess.run("a")
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(sess.run("a"), loop).result())
        assert sess.global_step == 4
