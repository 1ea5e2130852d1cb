"""run_step_fn: several runs as one step."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from asyncmon.errors import AbortedError
from asyncmon.runtime import MonitoredSession, SessionRunHook, SingularMonitoredSession, StepContext
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Kinds:
    def method(self, step_context: Any) -> str:
        return "method"

    @staticmethod
    def static(step_context: Any) -> str:
        return "static"

    @classmethod
    def klass(cls, step_context: Any) -> str:
        return "class"

    def __call__(self, step_context: Any) -> str:
        return "object"


async def asynchronous(context: Any) -> str:
    return "async"


def two(first: str, context: Any) -> str:
    return first


async def test_accepted_kinds_sf_1_sf_2_sf_3(world: World) -> None:
    async with world.session() as sess:
        kinds = [
            lambda c: "lambda", Kinds().method, Kinds.static, Kinds.klass, Kinds(), asynchronous,
            functools.partial(two, "partial"),
        ]  # fmt: skip
        results = [await sess.run_step_fn(fn) for fn in kinds]
        assert results == ["lambda", "method", "static", "class", "object", "async", "partial"]


async def test_refused_kinds_sf_1(world: World) -> None:
    async with world.session() as sess:
        for fn in (lambda: None, lambda a, b: None, lambda a, b=1: None, lambda a, *, b: None):
            with pytest.raises(ValueError, match="`step_fn` may either have one `step_context`"):
                await sess.run_step_fn(fn)
        with pytest.raises(TypeError, match="`step_fn` must be callable, got 5"):
            await sess.run_step_fn(5)


async def test_request_stop_leaves_the_body_cleanly_sf_4(world: World) -> None:
    async def step(context: Any) -> None:
        await context.run_with_hooks(world.train, world.feed())
        context.request_stop()

    hook = RecordingHook()
    async with world.session([hook]) as sess:
        while True:
            await sess.run_step_fn(step)
    assert hook.moments()[-2:] == ["end", "cleanup"]  # type: ignore[unreachable]  # the block swallows
    assert sess.stop_reason == "step_fn has requested the iterations to stop."


async def test_it_is_a_stop_outside_of_a_body_too_sf_4(world: World) -> None:
    sess = await world.session().start()
    with pytest.raises(StopAsyncIteration, match="step_fn has requested the iterations to stop"):
        await sess.run_step_fn(lambda context: context.request_stop())
    assert sess.should_stop()
    await sess.close()


async def test_raw_runs_and_runs_with_hooks_sf_5_sf_6(world: World) -> None:
    async def step(context: Any) -> Any:
        before = await context.session.run(world.weight)
        values = [await context.run_with_hooks(world.train, world.feed()) for _ in range(3)]
        return before, values

    hook = RecordingHook()
    async with world.session([hook]) as sess:
        assert await sess.run_step_fn(step) == (0, [1, 2, 3])
        assert await sess.run_step_fn(lambda context: None) is None
    assert hook.moments().count("after_run") == 3


async def test_a_preemption_repeats_the_whole_function_with_a_fresh_context_sf_7_sf_8() -> None:
    raws = [ScriptedSession([1, AbortedError("x")]), ScriptedSession([2, 3])]
    seen: list[Any] = []

    async def step(context: Any) -> Any:
        seen.append(context.session)
        return [await context.run_with_hooks("a"), await context.session.run("a")]

    async with MonitoredSession(ScriptedCreator(*raws)) as sess:
        assert await sess.run_step_fn(step) == [2, 3]
    assert seen == raws


async def test_other_errors_leave_and_a_singular_session_repeats_nothing_sf_7() -> None:
    def fail(context: Any) -> None:
        raise ValueError("no")

    async def preempted(context: Any) -> None:
        raise AbortedError("x")

    async with MonitoredSession(ScriptedCreator(ScriptedSession())) as sess:
        with pytest.raises(ValueError, match="no"):
            await sess.run_step_fn(fail)
        assert not sess.should_stop()
    async with SingularMonitoredSession(program=_Program()) as sess:
        with pytest.raises(AbortedError):
            await sess.run_step_fn(preempted)


class Stopping(SessionRunHook):
    async def before_run(self, run_context: Any) -> None:
        run_context.request_stop()


async def test_after_a_hooks_stop_nothing_runs_sf_9(world: World) -> None:
    async def twice(context: Any) -> None:
        await context.run_with_hooks(world.train, world.feed())
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            await context.run_with_hooks(world.train, world.feed())

    async with world.session([Stopping()]) as sess:
        await sess.run_step_fn(twice)
        with pytest.raises(RuntimeError, match="Run called even after should_stop requested"):
            await sess.run_step_fn(twice)
        assert sess.global_step == 1


async def test_the_repetition_of_the_attempt_that_stopped_goes_through_sf_9() -> None:
    raws = [ScriptedSession([AbortedError("x")]), ScriptedSession([7])]
    async with MonitoredSession(ScriptedCreator(*raws), [Stopping()]) as sess:
        assert await sess.run_step_fn(lambda context: context.run_with_hooks("a")) == 7
        assert sess.should_stop()


async def test_runs_with_hooks_from_several_tasks_of_a_function_do_not_interleave(world: World) -> None:
    async def step(context: Any) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(context.run_with_hooks(world.train, world.feed()))

    class Slow(RecordingHook):
        async def before_run(self, run_context: Any) -> Any:
            await super().before_run(run_context)
            await asyncio.sleep(1)

    async with world.session([hook := Slow()]) as sess:
        await sess.run_step_fn(step)
    assert hook.moments()[2:8] == ["before_run", "after_run"] * 3


async def test_a_context_is_of_no_use_after_its_function_ax_9(world: World) -> None:
    """Its runs would come in between those of others."""
    contexts: list[Any] = []
    async with world.session() as sess:
        await sess.run_step_fn(contexts.append)
        with pytest.raises(RuntimeError, match="step function of this context is over"):
            await contexts[0].run_with_hooks(world.weight)


@pytest.mark.parametrize("asynchronously", [False, True])
async def test_stop_iteration_in_a_step_function_ends_the_body_ax_2(
    world: World, asynchronously: bool
) -> None:
    def step(context: Any) -> Any:
        return next(iter([]))

    async def async_step(context: Any) -> Any:
        return next(iter([]))

    async with world.session([hook := RecordingHook()]) as sess:
        await sess.run_step_fn(async_step if asynchronously else step)
    assert "end" in hook.moments()


class _Program:
    """A program around scripted sessions, as small as can be."""

    finalized = False

    def finalize(self) -> None: ...

    def create_session(self, target: str = "", config: Any = None) -> Any:
        return ScriptedSession()

    def has_global_step(self) -> bool:
        return True

    def init_op(self) -> Any:
        return "init"

    def local_init_op(self) -> None: ...
    def ready_op(self) -> None: ...
    def ready_for_local_init_op(self) -> None: ...
    def summary_op(self) -> None: ...


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_a_plain_function_that_should_be_async_is_refused_by_name() -> None:
    def train_twice(step_context: Any) -> None:
        step_context.run_with_hooks("x")
        step_context.session.run("x")

    async with MonitoredSession(ScriptedCreator(ScriptedSession(values={"x": 1}))) as sess:
        with pytest.raises(TypeError, match=r"train_twice' \(.*:\d+\) is a plain .*`async def train_t"):
            await sess.run_step_fn(train_twice)
        assert await sess.run_step_fn(lambda context: context.run_with_hooks("x")) == 1
        assert await sess.run_step_fn(lambda context: 5) == 5


async def test_sessions_have_the_class_of_the_argument(world: World) -> None:
    assert MonitoredSession.StepContext is SingularMonitoredSession.StepContext is StepContext
    async with world.session() as sess:

        async def is_one(step_context: MonitoredSession.StepContext) -> bool:
            return isinstance(step_context, MonitoredSession.StepContext)

        assert await sess.run_step_fn(is_one)
