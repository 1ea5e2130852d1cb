"""A training that has died, or that hangs, is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import StepTimeoutError
from asyncmon.programs import FunctionProgram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


class Slow:
    """A program whose steps take a given time."""

    def __init__(self) -> None:
        self.program = FunctionProgram({"n": 0})
        self.secs = 1.0

        @self.program.step
        async def train(state: Any) -> None:
            await asyncio.sleep(self.secs)
            state["n"] += 1

        @self.program.step
        def fail(state: Any) -> None:
            raise ValueError("bad data")

    def session(self, *hooks: Any, **options: Any) -> am.MonitoredSession:
        return am.MonitoredSession(am.ChiefSessionCreator(program=self.program), hooks, **options)


# -- died


async def test_a_training_task_that_died_is_logged_once(caplog: Any) -> None:
    async def train(sess: am.MonitoredSession) -> None:
        await sess.run("train")
        await sess.run("fail")

    async with Slow().session() as sess:
        training = asyncio.create_task(train(sess))
        await asyncio.sleep(1.9)
        assert not caplog.records
        await asyncio.sleep(100)
        error = sess.statistics().last_error
        assert isinstance(error, ValueError)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert "A run has failed after step 1" in record.message
        assert "ValueError: bad data" in record.message
        assert "start it by sess.coord.create_task" in record.message
        with pytest.raises(ValueError, match="bad data"):
            await training
    assert sess.statistics().last_error is None


async def test_a_running_process_has_not_died(caplog: Any) -> None:
    async with Slow().session() as sess:
        for _ in range(3):
            with pytest.raises(ValueError, match="bad data"):
                await sess.run("fail")
            await sess.run("train")
        await asyncio.sleep(10)
    assert not caplog.records


async def test_a_task_of_the_coordinator_stops_the_session_instead(caplog: Any) -> None:
    async def train(sess: am.MonitoredSession) -> None:
        await sess.run("fail")

    async def serve() -> None:
        async with Slow().session() as sess:
            assert sess.coord is not None
            sess.coord.create_task(train, sess)
            await sess.coord.wait_for_stop()
            await asyncio.sleep(10)

    with pytest.raises(ValueError, match="bad data"):
        await serve()
    assert "nothing has run" not in caplog.text


# -- hangs


async def test_a_run_that_hangs_is_named_once(caplog: Any) -> None:
    slow = Slow()
    async with slow.session() as sess:
        for _ in range(100):
            await sess.run("train")
        slow.secs = 1000
        await sess.run("train")
    (record,) = caplog.records
    assert "The run hangs after step 100: for more than 60 s; a step takes 1 s." in record.message
    assert "It waits in sleep (" in record.message
    assert "test_watch.py:" in record.message


async def test_the_hook_that_hangs_is_named(caplog: Any) -> None:
    class Hangs(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await asyncio.sleep(1000 if run_values.step == 50 else 0)

    async with Slow().session(Hangs()) as sess:
        for _ in range(60):
            await sess.run("train")
    (record,) = caplog.records
    assert record.message.startswith("The hook Hangs hangs after step ")


async def test_a_source_that_hangs_is_named(caplog: Any) -> None:
    async def source() -> AsyncIterator[int]:
        for i in range(60):
            await asyncio.sleep(1000 if i == 50 else 0)
            yield i

    async with Slow().session() as sess:
        async for _ in sess.iterate(source()):
            await sess.run("train")
    (record,) = caplog.records
    assert "The wait for data hangs after step 50" in record.message
    assert "called from test_a_source_that_hangs_is_named" in record.message


async def test_long_steps_are_no_hang(caplog: Any) -> None:
    slow = Slow()
    slow.secs = 200
    async with slow.session() as sess:
        for _ in range(10):
            await sess.run("train")
        slow.secs = 1500
        await sess.run("train")
    assert not caplog.records


# -- step_timeout_secs


async def test_a_run_that_takes_too_long_is_recovered_from(caplog: Any) -> None:
    slow, calls = Slow(), []

    @slow.program.step
    async def hang_once(state: Any) -> None:
        calls.append(now())
        if len(calls) == 1:
            await asyncio.Event().wait()
        state["n"] += 1

    async with slow.session(step_timeout_secs=30) as sess:
        await sess.run("hang_once")
        assert sess.statistics().recoveries == 1
    assert calls == [0, 30]
    assert "took longer than step_timeout_secs=30: it waits in Event.wait" in caplog.text


async def test_its_error_is_raised_where_it_is_not_recovered_from() -> None:
    slow = Slow()
    slow.secs = 100
    sess = slow.session(step_timeout_secs=30, recovery=am.Recovery(max_attempts=0))

    async def train() -> None:
        async with sess:
            await sess.run("train")

    with pytest.raises(StepTimeoutError, match="took longer than step_timeout_secs=30"):
        await train()
    assert sess.statistics().stop is not None
    assert sess.statistics().stop.cause == "recovery given up"


@pytest.mark.parametrize("secs", [0, -1, "1", float("nan")])
async def test_the_time_out_is_a_positive_number(secs: Any) -> None:
    with pytest.raises(ValueError, match="step_timeout_secs must be a positive number"):
        Slow().session(step_timeout_secs=secs)


async def test_a_step_that_held_the_loop_is_not_blamed_on_the_hook_that_follows(caplog: Any) -> None:
    slow, seen = Slow(), []

    @slow.program.step
    async def compute(state: Any) -> None:
        asyncio.get_running_loop().spend(40)  # type: ignore[attr-defined]  # virtual
        state["n"] += 1

    class Hook(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await asyncio.sleep(self.secs)
            seen.append(now())

        secs = 5.0

    hook = Hook()
    async with slow.session(hook, step_timeout_secs=30, recovery=am.Recovery(max_attempts=0)) as sess:
        await sess.run("compute")
        assert "The event loop was held when a run reached step_timeout_secs=30, by 10 s" in caplog.text
        hook.secs = 100.0
        with pytest.raises(StepTimeoutError, match="The hook Hook took longer than"):
            await sess.run("compute")
        assert now() == 45 + 40 + 30  # the limit begins again
    assert seen == [45]
