"""AX-24, KC-1: what becomes, after a stop, of a hook or a step that does not come to an end."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import CancelledError, DeadlineExceededError
from asyncmon.graph.core.dtypes import float32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.queues.queues import FIFOQueue
from asyncmon.graph.variables.variable import Variable
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, SessionRunHook, StepContext
from asyncmon.testing import (
    RecordingHook,
    ScriptedCreator,
    ScriptedSession,
    assert_nothing_left_behind,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def scripted(hook: SessionRunHook, *script: Any, grace: float = 10) -> MonitoredSession:
    session = ScriptedSession(script or [1, 2, 3])
    return MonitoredSession(ScriptedCreator(session), [hook], stop_grace_period_secs=grace)


async def one_run(sess: MonitoredSession) -> None:
    async with sess:
        await sess.run("x")


class Stuck(SessionRunHook):
    async def before_run(self, run_context: Any) -> None:
        await asyncio.Event().wait()


class SlowAfter(SessionRunHook):
    """Takes its time after a run, and may ask for a stop before."""

    def __init__(self, secs: float, stop: bool = False) -> None:
        self.secs, self.stop = secs, stop

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.stop:
            run_context.request_stop("enough")
        await asyncio.sleep(self.secs)


async def test_a_hook_that_waits_for_ever_ends_with_the_grace_period_ax_24(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sess = scripted(Stuck())
    asyncio.get_running_loop().call_later(5, sess.request_stop, "signal X")
    async with assert_nothing_left_behind():
        with pytest.raises(DeadlineExceededError, match=r"hook Stuck did not finish .*10 s .*signal"):
            await one_run(sess)
    assert now() == 15
    assert "The hook Stuck did not finish within the grace period" in caplog.text


async def test_a_stop_of_the_coordinator_counts_as_well() -> None:
    class Stopping(Stuck):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            coord.request_stop()

    with pytest.raises(DeadlineExceededError, match="Stopping"):
        await one_run(scripted(Stopping()))
    assert now() == 10


async def test_the_period_is_that_of_the_whole_run() -> None:
    async def slow_step() -> int:
        await asyncio.sleep(9)
        return 1

    sess = scripted(SlowAfter(100), slow_step)
    asyncio.get_running_loop().call_later(0, sess.request_stop)
    with pytest.raises(DeadlineExceededError, match="SlowAfter"):
        await one_run(sess)
    assert now() == 10


async def test_a_run_in_time_completes_with_its_hooks_ra_16() -> None:
    async def slow_step() -> int:
        await asyncio.sleep(5)
        return 7

    async with scripted(SlowAfter(5), slow_step) as sess:
        asyncio.get_running_loop().call_later(1, sess.request_stop)
        assert await sess.run("x") == 7
    assert now() == 10


async def test_a_run_whose_hook_requested_the_stop_has_no_time_limit_ra_16() -> None:
    async with scripted(SlowAfter(500, stop=True)) as sess:
        assert await sess.run("x") == 1
        assert sess.should_stop()
    assert now() == 500


async def test_what_waits_outside_of_runs_is_left_alone() -> None:
    async with assert_nothing_left_behind(), scripted(SlowAfter(1)) as sess:
        sess.request_stop()
        await asyncio.sleep(100)
        assert await sess.run("x") == 1  # still allowed


class Hanging:
    """A program whose step ``hang`` waits for a server, or a queue, that is gone."""

    def __init__(self, kind: str) -> None:
        if kind == "graph":
            with Graph().as_default() as graph:
                self.weight: Any = Variable(np.float32(0), name="weight")
                item = FIFOQueue(1, [float32], [[]], name="nobody_fills").dequeue(name="take")
                self.train = assign_add(self.weight, 1.0)
                self.hang: Any = assign_add(self.weight, item)
            self.program: Any = graph
            self.waits_for = "it waits for 'take'"
        else:
            self.program = functions = FunctionProgram(state={"weight": np.float32(0)})

            @functions.step
            async def train(state: dict[str, Any]) -> None:
                state["weight"] += 1

            @functions.step
            async def hang(state: dict[str, Any]) -> None:
                state["weight"] += 100
                await ask_a_dead_server()

            self.weight, self.train, self.hang = "weight", "train", "hang"
            self.waits_for = (
                r"it waits in Event.wait .*, called from ask_a_dead_server \(.*test_grace_period"
            )

    def session(self, *hooks: Any, grace: float = 10) -> MonitoredSession:
        return MonitoredSession(ChiefSessionCreator(program=self.program), hooks, grace)


async def ask_a_dead_server() -> None:
    await asyncio.Event().wait()


@pytest.fixture(params=["graph", "functions"])
def hanging(request: pytest.FixtureRequest) -> Hanging:
    return Hanging(request.param)


@pytest.mark.parametrize("hooked", [False, True])
async def test_a_step_that_waits_for_ever_ends_with_the_grace_period_kc_1(
    hanging: Hanging, hooked: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The state is whole, the session ends in order, and one learns what to look for."""
    hook = RecordingHook()
    sess = hanging.session(*[hook] * hooked)
    asyncio.get_running_loop().call_later(5, sess.request_stop, "signal X")

    async def body() -> None:
        async with sess:
            await sess.run(hanging.train)
            with pytest.raises(DeadlineExceededError, match=hanging.waits_for) as caught:
                await sess.run(hanging.hang)
            assert now() == 15
            assert await sess.run(hanging.weight) == 1
            raise caught.value

    async with assert_nothing_left_behind():
        with pytest.raises(
            DeadlineExceededError, match=r"10 s after a stop \(signal X\).*a timeout to the"
        ):
            await body()
    assert ": DeadlineExceededError: The run" in caplog.messages[-1]
    if hooked:
        assert hook.moments()[-3:] == ["before_run", "after_run", "cleanup"]
        assert isinstance(hook.error, DeadlineExceededError)


async def test_a_run_that_begins_after_the_stop_has_a_period_of_its_own(hanging: Hanging) -> None:
    async with hanging.session() as sess:
        sess.request_stop()
        await asyncio.sleep(50)
        with pytest.raises(DeadlineExceededError, match=hanging.waits_for):
            await sess.run(hanging.hang)
        assert 60 <= now() <= 61


async def test_short_runs_after_a_stop_continue_for_ever(hanging: Hanging) -> None:
    async with hanging.session(grace=2) as sess:
        sess.request_stop()
        for _ in range(100):
            await sess.run(hanging.train)
            await asyncio.sleep(0.1)


async def test_a_step_function_is_one_step(hanging: Hanging) -> None:
    async def epoch(context: StepContext) -> None:
        while True:
            await context.run_with_hooks(hanging.train)
            await asyncio.sleep(1)

    async with hanging.session(RecordingHook()) as sess:
        sess.request_stop()
        with pytest.raises(
            DeadlineExceededError, match=r"The step function did not .* called from .*epoch"
        ):
            await sess.run_step_fn(epoch)
        assert 10 <= now() <= 11  # it may begin before or after the stop is acted on


async def test_a_run_without_hooks_is_ended_too(hanging: Hanging) -> None:
    async with hanging.session() as sess:
        asyncio.get_running_loop().call_later(5, sess.request_stop)
        with pytest.raises(DeadlineExceededError, match="A run without hooks did not"):
            await sess.run(hanging.hang, hooks=False)
        assert now() == 15


@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("hooks", [[], [RecordingHook()]])
async def test_a_step_that_itself_requests_the_stop_has_no_time_limit(
    in_thread: bool, hooks: list[Any]
) -> None:
    async def last_step() -> int:
        if in_thread and hooks:  # without hooks the thread has no known owner
            await asyncio.to_thread(sess.request_stop, "converged")
        else:
            sess.request_stop("converged")
        await asyncio.sleep(500)
        return 7

    session = ScriptedSession([last_step])
    async with MonitoredSession(ScriptedCreator(session), hooks, 10) as sess:
        assert await sess.run("x") == 7
    assert now() == 500
    assert sess.stop_reason == "converged"


async def test_a_stop_from_outside_limits_the_run_that_requested_one_before() -> None:
    sess = scripted(SlowAfter(math.inf, stop=True))
    asyncio.get_running_loop().call_later(300, sess.request_stop, "signal X")
    with pytest.raises(DeadlineExceededError, match=r"SlowAfter .* a stop \(enough\)"):
        await one_run(sess)
    assert now() == 310


async def test_the_stop_of_one_run_excuses_no_other() -> None:
    async with scripted(SlowAfter(1, stop=True), 1, taking_for_ever) as sess:
        assert await sess.run("x") == 1
        with pytest.raises(DeadlineExceededError, match="A run without hooks"):
            await sess.run("x", hooks=False)


async def taking_for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_grace_period_without_end_is_one() -> None:
    async def slow_step() -> int:
        await asyncio.sleep(1e4)
        return 7

    async with scripted(SlowAfter(0), slow_step, grace=math.inf) as sess:
        sess.request_stop()
        assert await sess.run("x") == 7


@pytest.mark.parametrize("moment", ["begin", "after_create_session"])
async def test_an_opening_that_hangs_ends_after_a_stop(moment: str) -> None:
    hook = RecordingHook()

    async def hang(*args: Any) -> None:
        await asyncio.Event().wait()

    class Hanger(SessionRunHook):
        begin = hang if moment == "begin" else SessionRunHook.begin
        after_create_session = hang if moment != "begin" else SessionRunHook.after_create_session

    sess = MonitoredSession(ScriptedCreator(ScriptedSession()), [hook, Hanger()], 10)
    asyncio.get_running_loop().call_later(5, sess.request_stop, "signal X")
    async with assert_nothing_left_behind():
        with pytest.raises((DeadlineExceededError, CancelledError), match="signal X"):
            await sess.start()
    assert now() == (15 if moment == "begin" else 5)
    assert hook.moments()[-1] == "cleanup"


async def test_a_step_that_swallows_its_cancellation_is_cancelled_again() -> None:
    async def stubborn() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async with scripted(SlowAfter(0), stubborn) as sess:
        sess.request_stop()
        with pytest.raises(DeadlineExceededError):
            await sess.run("x")
        assert now() == 10.5
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def stubborn() -> int:
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(1)


async def test_a_step_that_ignores_it_is_named_and_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scripted(SlowAfter(0), stubborn) as sess:
        sess.request_stop()
        with pytest.raises(DeadlineExceededError):
            await sess.run("x")
        assert now() == 11
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
    line = "The run of 'x' ignores its interruption, and is left behind: it waits in sleep ("
    assert line in caplog.text


@pytest.mark.parametrize("moment", ["before_run", "after_run", "begin", "after_create_session"])
async def test_a_hook_that_ignores_it_is_left_behind(moment: str) -> None:
    hook = RecordingHook()

    async def ignore(*_args: Any) -> None:
        await stubborn()

    setattr(hook, moment, ignore)
    sess = MonitoredSession(ScriptedCreator(ScriptedSession([1])), [hook], 10)

    async def train() -> None:
        async with sess:
            await sess.run("x")

    training = asyncio.create_task(train())
    await asyncio.sleep(1)
    sess.request_stop()
    with pytest.raises((DeadlineExceededError, CancelledError)):
        await training
    assert now() <= 12
    assert sess.state.value == "closed"
    assert hook.moments()[-1] == "cleanup"


async def test_what_failed_beside_explains_more_than_the_grace_period() -> None:
    async def fail() -> None:
        await asyncio.sleep(8)
        raise LookupError("beside")

    sess = MonitoredSession(
        ScriptedCreator(ScriptedSession([taking_for_ever])), None, 10, interrupt=False
    )
    await sess.start()
    assert sess.coord is not None
    sess.coord.create_task(fail)
    sess.request_stop()
    async with assert_nothing_left_behind():
        with pytest.raises(LookupError, match="beside"):
            await sess.run("x")
        assert now() == 10
        await sess.close()


async def test_closing_ends_waits_for_data_in_another_task() -> None:
    async def consume() -> None:
        async for _ in sess.iterate(never()):
            pass

    async def never() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async with assert_nothing_left_behind():
        async with scripted(SlowAfter(0)) as sess:
            consumer = asyncio.create_task(consume())
            await asyncio.sleep(1)
        await consumer
