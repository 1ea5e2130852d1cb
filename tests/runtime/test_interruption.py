"""Errors beside the steps interrupt a run; cancellations and timeouts are unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from asyncmon.errors import OutOfRangeError
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import MonitoredSession, SessionRunHook
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
    wait_all_tasks_blocked,
)
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def scripted(*script: Any, hooks: Any = None, **kwargs: Any) -> MonitoredSession:
    return MonitoredSession(ScriptedCreator(ScriptedSession(script)), hooks, **kwargs)


def taking(secs: float, value: Any = 1) -> Callable[[], Awaitable[Any]]:
    async def step() -> Any:
        await asyncio.sleep(secs)
        return value

    return step


async def fail_after(secs: float, error: BaseException) -> None:
    await asyncio.sleep(secs)
    raise error


class FailingBeside(SessionRunHook):
    def __init__(self, secs: float, error: BaseException, on_error: Any = "raise") -> None:
        self.secs, self.error, self.on_error = secs, error, on_error

    async def background(self, session: Any, coord: Any) -> None:
        await fail_after(self.secs, self.error)


async def test_a_failure_beside_interrupts_the_run_and_is_raised_ax_15() -> None:
    """AX-15, AX-5: plain, with its own traceback, and no after_run."""
    hook, error = RecordingHook(), ValueError("beside")
    async with assert_nothing_left_behind():
        with pytest.raises(ValueError, match="beside") as caught:
            async with scripted(taking(1000), hooks=[FailingBeside(3, error), hook]) as sess:
                await sess.run("a")
    assert now() == 3
    assert caught.value is error
    assert any(entry.name == "fail_after" for entry in caught.traceback)
    assert error.__cause__ is None
    assert "after_run" not in hook.moments()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_run_started_after_it_raises_it_too_and_close_does_not_repeat_it_ax_15() -> None:
    async with scripted(taking(1000), 1, 2) as sess:
        sess.coord.create_task(fail_after, 3, ValueError("beside"))
        for _ in range(2):
            with pytest.raises(ValueError, match="beside"):
                await sess.run("a")
        assert sess.should_stop()


async def test_the_end_of_the_data_beside_ends_the_body_cleanly_ax_15() -> None:
    hook = RecordingHook()
    async with scripted(taking(1000), hooks=[hook]) as sess:
        sess.coord.create_task(fail_after, 3, OutOfRangeError("the producer is through"))
        await sess.run("a")
    assert now() == 3
    assert hook.moments()[-2:] == ["end", "cleanup"]


async def test_a_run_without_hooks_is_interrupted_too_ax_15() -> None:
    with pytest.raises(ValueError, match="beside"):
        async with scripted(taking(1000), hooks=[FailingBeside(3, ValueError("beside"))]) as sess:
            await sess.run("a", hooks=False)
    assert now() == 3


async def test_finish_the_step_first_then_raise_ax_15() -> None:
    """AX-15, configured: the current run keeps its result, the next one raises."""
    async with scripted(taking(10, "done"), 2, interrupt=False) as sess:
        sess.coord.create_task(fail_after, 3, ValueError("beside"))
        assert await sess.run("a") == "done"
        assert now() == 10
        assert sess.should_stop()
        with pytest.raises(ValueError, match="beside"):
            await sess.run("a")


async def test_a_step_that_does_not_finish_is_interrupted_after_the_grace_period_ax_15() -> None:
    beside = FailingBeside(3, ValueError("beside"))
    async with assert_nothing_left_behind():
        with pytest.raises(ValueError, match="beside"):
            async with scripted(
                taking(1000), hooks=[beside], stop_grace_period_secs=20, interrupt=False
            ) as sess:
                await sess.run("a")
    assert now() == 23


async def test_a_plain_stop_interrupts_nothing() -> None:
    async with scripted(taking(10, "done")) as sess:
        asyncio.get_running_loop().call_later(3, sess.request_stop)
        assert await sess.run("a") == "done"
        assert sess.should_stop()


async def test_on_error_log_keeps_a_failure_in_the_background_from_interrupting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = [FailingBeside(3, ValueError("beside"), "log")]
    async with scripted(taking(10, "done"), hooks=hooks) as sess:
        assert await sess.run("a") == "done"
    assert "FailingBeside.background failed; on_error='log'." in caplog.text


async def test_a_second_failure_is_attached_to_the_first_ax_16() -> None:
    hooks = [FailingBeside(3, ValueError("first")), FailingBeside(3, KeyError("second"))]
    with pytest.raises(ValueError, match="first") as caught:
        async with scripted(taking(1000), hooks=hooks) as sess:
            await sess.run("a")
    assert any("KeyError: 'second'" in note for note in caught.value.__notes__)


async def test_a_cancelled_run_leaves_the_state_whole_ax_6() -> None:
    """AX-6: no after_run, no recovery, no end; closed, nothing left."""
    hook = RecordingHook()
    raw = ScriptedSession([taking(1000)])

    async def body() -> None:
        async with MonitoredSession(ScriptedCreator(raw), [hook]) as sess:
            await sess.run("a")

    async with assert_nothing_left_behind():
        task = asyncio.create_task(body())
        await wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert hook.moments() == ["begin", "after_create_session", "before_run", "cleanup"]
    assert isinstance(hook.error, asyncio.CancelledError)
    assert raw.closed
    assert raw.global_step == 0


async def test_a_timeout_around_a_run_ax_7() -> None:
    async with scripted(taking(1000), taking(1000), 5) as sess:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await sess.run("a")
        with pytest.raises(TimeoutError), anyio.fail_after(2):
            await sess.run("a")
        assert now() == 4
        assert await sess.run("a") == 5


async def test_a_timeout_and_a_failure_at_the_same_moment_is_a_timeout() -> None:
    """The user's cancellation is never swallowed; the failure is raised by the next run."""
    async with scripted(taking(1000), 1) as sess:
        sess.coord.create_task(fail_after, 2, ValueError("beside"))
        with pytest.raises((TimeoutError, ValueError)):
            async with asyncio.timeout(2):
                await sess.run("a")
        await wait_all_tasks_blocked()
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        with pytest.raises(ValueError, match="beside"):
            await sess.run("a")


@pytest.mark.parametrize("user_first", [False, True])
async def test_a_cancellation_in_the_same_iteration_as_a_failure_wins(user_first: bool) -> None:
    async def body() -> None:
        async with sess:
            await sess.run("a")

    sess = scripted(taking(1000))
    task = asyncio.create_task(body())
    await wait_all_tasks_blocked()
    assert sess.coord is not None
    scopes = created_session(sess.coord).stops.scopes
    acts = [task.cancel, lambda: scopes.interrupt(ValueError("beside"), "run")]
    for act in acts if user_first else reversed(acts):
        act()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("kind", ["timeout", "fail_after", "group"])
async def test_scopes_around_the_whole_session(kind: str) -> None:
    hook = RecordingHook()

    async def body() -> None:
        async with scripted(taking(1000), hooks=[hook]) as sess:
            await sess.run("a")

    async def beside_a_failing_sibling() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(body())
            group.create_task(fail_after(2, KeyError("sibling")))

    async with assert_nothing_left_behind():
        if kind == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await body()
        elif kind == "fail_after":
            with pytest.raises(TimeoutError), anyio.fail_after(2):
                await body()
        else:
            with pytest.raises(ExceptionGroup) as caught:
                await beside_a_failing_sibling()
            assert caught.group_contains(KeyError)
    assert now() == 2
    assert hook.moments()[-1] == "cleanup"
    assert "end" not in hook.moments()


async def test_scopes_inside_of_a_hook_and_of_a_step() -> None:
    class Patient(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            with anyio.move_on_after(1):
                await asyncio.Event().wait()
            try:
                async with asyncio.timeout(1):
                    await asyncio.Event().wait()
            except TimeoutError:
                pass

    async with scripted(1, hooks=[Patient()]) as sess:
        assert await sess.run("a") == 1
        assert now() == 2


async def test_a_task_group_inside_of_the_body(world: World) -> None:
    async with world.session() as sess, asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(sess.run(world.train, world.feed()))
    assert sess.stop_reason == "the body ended"


async def test_a_failure_that_comes_as_the_step_completes_does_not_lose_the_result() -> None:
    async with scripted(taking(2, "done")) as sess:
        sess.coord.create_task(fail_after, 2, ValueError("beside"))
        try:
            result = await sess.run("a")
        except ValueError:
            result = None
        assert result in ("done", None)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # nothing is pending
        with pytest.raises(ValueError, match="beside"):
            await sess.run("a")


async def test_closing_is_shielded_from_further_cancellations() -> None:
    closed: list[float] = []

    class Slow(ScriptedSession):
        async def close(self) -> None:
            await asyncio.sleep(5)
            closed.append(now())

    async def body() -> None:
        async with MonitoredSession(ScriptedCreator(Slow()), [hook]):
            await asyncio.Event().wait()

    hook = RecordingHook()
    async with assert_nothing_left_behind():
        task = asyncio.create_task(body())
        for _ in range(3):
            await wait_all_tasks_blocked()
            task.cancel()
            await asyncio.sleep(1)
        with pytest.raises(asyncio.CancelledError):
            await task
    assert closed == [5]
    assert hook.moments()[-1] == "cleanup"


async def test_closing_in_a_cancelled_anyio_scope_does_not_spin_ax_3() -> None:
    class Slow(ScriptedSession):
        async def close(self) -> None:
            await asyncio.sleep(5)

    with anyio.CancelScope() as scope:
        async with MonitoredSession(ScriptedCreator(Slow()), [hook := RecordingHook()]):
            scope.cancel()
            await asyncio.Event().wait()
    assert now() == 5
    assert hook.moments()[-1] == "cleanup"


async def test_an_end_that_hangs_is_cut_short_once_the_caller_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """AX-17: the exit never hangs; the grace period is the deadline of a cancelled close."""

    class Hanging(SessionRunHook):
        async def end(self, session: Any) -> None:
            await asyncio.Event().wait()

    raw, hook = ScriptedSession(), RecordingHook()
    async with assert_nothing_left_behind():
        sess = MonitoredSession(ScriptedCreator(raw), [Hanging(), hook], 20)
        await sess.start()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await sess.close()
    assert now() == 120
    assert raw.closed
    assert hook.moments() == ["begin", "after_create_session", "end", "cleanup"]
    assert "Grace period over: Hanging.end was cancelled." in caplog.text


async def test_a_straggler_is_named_and_does_not_hold_the_exit_ax_17(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async with scripted(stop_grace_period_secs=7) as sess:
        task = sess.coord.create_task(stubborn, name="stubborn")
        await wait_all_tasks_blocked()
    assert now() == pytest.approx(7 + 1)
    assert "Coordinator stopped with threads still running: stubborn" in caplog.text
    release.set()
    await task


async def test_a_hook_that_waits_for_ever_is_ended_and_named_ax_24(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            await asyncio.Event().wait()

    sess = scripted(1, hooks=[Stuck()], stop_grace_period_secs=30)
    await sess.start()
    run = asyncio.create_task(sess.run("a"))
    await wait_all_tasks_blocked()
    async with assert_nothing_left_behind(tasks=False):
        await sess.close()
    assert now() == 30
    with pytest.raises(RuntimeError, match="closed while a run was not complete, in the hook Stuck"):
        await run
    assert "A run did not finish before the session was closed, in the hook Stuck." in caplog.text


async def test_closing_lets_the_run_of_another_task_finish() -> None:
    sess = scripted(taking(10, "done"))
    await sess.start()
    run = asyncio.create_task(sess.run("a"))
    waiting = asyncio.create_task(sess.run("a"))
    await wait_all_tasks_blocked()
    await sess.close()
    assert await run == "done"
    with pytest.raises(RuntimeError, match="session is closed"):
        await waiting


async def test_closing_while_opening_ends_the_opening() -> None:
    class Never:
        async def create_session(self) -> Any:
            await asyncio.Event().wait()

    hook = RecordingHook()
    sess = MonitoredSession(Never(), [hook])  # type: ignore[arg-type]  # a duck
    start = asyncio.create_task(sess.start())
    await wait_all_tasks_blocked()
    with pytest.raises(RuntimeError, match="still being opened"):
        await sess.run("a")
    await sess.close()
    with pytest.raises(RuntimeError, match="closed while it was being opened"):
        await start
    assert hook.moments() == ["begin", "cleanup"]


async def test_a_task_of_the_session_may_close_it() -> None:
    sess = scripted(taking(1000))
    await sess.start()
    closer = sess.coord.create_task(sess.close)
    await closer
    assert now() == 0
    assert sess.should_stop()


async def test_context_variables_are_seen_by_hooks_and_tasks_ax_21() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    seen: list[str] = []

    class Hook(SessionRunHook):
        async def begin(self) -> None:
            seen.append(variable.get())

        async def background(self, session: Any, coord: Any) -> None:
            seen.append(variable.get())

        async def before_run(self, run_context: Any) -> None:
            seen.append(variable.get())

        async def end(self, session: Any) -> None:
            seen.append(variable.get())

        async def cleanup(self, error: BaseException | None) -> None:
            seen.append(variable.get())

    variable.set("set before")
    async with scripted(1, hooks=[Hook()]) as sess:
        await sess.run("a")
        await wait_all_tasks_blocked()
    assert seen == ["set before"] * 5


async def test_a_timer_fires_in_the_middle_of_a_long_step_ax_10() -> None:
    ticks: list[tuple[int, float]] = []

    class Timer(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            async for tick in coord.every(0.05):
                ticks.append((tick, now()))  # noqa: PERF401 -- seen while it runs

    async with scripted(taking(0.3), hooks=[Timer()]) as sess:
        await sess.run("a")
        assert ticks[:5] == [(1, 0.05), (2, 0.1), (3, 0.15), (4, 0.2), (5, 0.25)]


class Uncancellable(SessionRunHook):
    """Ignores cancellations until an event, in the background or in a run."""

    def __init__(self, where: str, over: asyncio.Event) -> None:
        self.where, self.over = where, over

    async def _wait(self, where: str) -> None:
        while where == self.where and not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                continue

    async def background(self, session: Any, coord: Any) -> None:
        await self._wait("background")

    async def before_run(self, run_context: Any) -> None:
        await self._wait("before_run")


async def test_a_background_that_ignores_its_cancellation_is_left_behind_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    over, record = asyncio.Event(), RecordingHook()
    async with world.session(
        [Uncancellable("background", over), record], stop_grace_period_secs=3
    ) as sess:
        await sess.run(world.train, world.feed())
    assert asyncio.get_running_loop().time() < 20
    assert record.moments()[-2:] == ["end", "cleanup"]
    assert "Coordinator stopped with threads still running: Uncancellable.background" in caplog.text
    assert "ignores its cancellation: it waits in" in caplog.text
    over.set()
    await wait_all_tasks_blocked()


async def test_a_run_that_ignores_its_interruption_is_left_behind_and_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    over, record = asyncio.Event(), RecordingHook()
    sess = world.session([Uncancellable("before_run", over), record], stop_grace_period_secs=3)
    await sess.start()
    run = asyncio.create_task(sess.run(world.train, world.feed()))
    await wait_all_tasks_blocked()
    await sess.close()
    assert asyncio.get_running_loop().time() < 20
    assert record.moments()[-2:] == ["end", "cleanup"]
    assert (
        "A run did not finish before the session was closed, in the hook Uncancellable." in caplog.text
    )
    assert "The hook Uncancellable ignores its interruption, and is left behind: it" in caplog.text
    assert asyncio.get_running_loop().time() <= 4
    with pytest.raises(RuntimeError, match="closed"):
        await run
