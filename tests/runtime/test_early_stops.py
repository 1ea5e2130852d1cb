"""A stop that comes before a session or a run: neither begins."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncmon import MonitoredTrainingSession, StopAtStepHook
from asyncmon.checkpoint import latest_checkpoint
from asyncmon.errors import AbortedError, CancelledError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import MonitoredSession
from asyncmon.testing import (
    RecordingHook,
    ScriptedProgram,
    ScriptedSession,
    assert_nothing_left_behind,
    wait_all_tasks_blocked,
)

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class SlowCreator:
    """Hands out the sessions it has, then waits for ever."""

    def __init__(self, *sessions: ScriptedSession) -> None:
        self.sessions = list(sessions)
        self.program = ScriptedProgram()

    async def create_session(self) -> ScriptedSession:
        if not self.sessions:
            await asyncio.sleep(7200)
        return self.sessions.pop(0)


def ask(sess: MonitoredSession) -> None:
    sess.request_stop("not any more")


def send_a_signal(sess: MonitoredSession) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("stop", [ask, send_a_signal])
async def test_a_stop_during_start_ends_it(stop: Callable[[MonitoredSession], None]) -> None:
    hook = RecordingHook()
    async with assert_nothing_left_behind():
        sess = MonitoredSession(SlowCreator(), [hook], signals="auto")
        starting = asyncio.create_task(sess.start())
        await wait_all_tasks_blocked()
        stop(sess)
        with pytest.raises(CancelledError, match=r"a stop came, '(not any more|signal SIGTERM)'"):
            await starting
    assert asyncio.get_running_loop().time() < 1
    assert hook.moments() == ["begin", "cleanup"]


async def test_a_stop_during_a_recovery_ends_it() -> None:
    hook, failure = RecordingHook(), AbortedError("preempted")
    sess = MonitoredSession(SlowCreator(ScriptedSession([failure])), [hook])

    async def body() -> None:
        async with sess:
            await sess.run("a")

    async with assert_nothing_left_behind():
        task = asyncio.create_task(body())
        await wait_all_tasks_blocked()
        sess.request_stop("not any more")
        with pytest.raises(CancelledError, match="a stop came, 'not any more'") as caught:
            await task
        assert caught.value.__cause__ is failure
    assert asyncio.get_running_loop().time() < 1
    assert hook.moments()[-1] == "cleanup"


async def test_a_stop_before_start_ends_the_body_instead() -> None:
    class Slow(SlowCreator):
        async def create_session(self) -> ScriptedSession:
            await asyncio.sleep(5)
            return await super().create_session()

    sess = MonitoredSession(Slow(ScriptedSession()))
    sess.request_stop("too late for that")
    async with sess:
        assert sess.should_stop()
    assert sess.stop_reason == "too late for that"


# -- runs after the stop of a hook


def counting() -> FunctionProgram:
    program = FunctionProgram({"n": 0})

    @program.step
    async def train(state: Any) -> None:
        await asyncio.sleep(0.01)
        state["n"] += 1

    return program


def trained(directory: Path, last_step: int) -> MonitoredSession:
    hooks = [StopAtStepHook(last_step=last_step)]
    return MonitoredTrainingSession(program=counting(), checkpoint_dir=directory, hooks=hooks)


async def last_saved(directory: Path) -> str:
    return Path(await latest_checkpoint(directory) or "").name


async def test_the_second_run_of_a_turn_ends_the_body_as_the_stop_does(tmp_path: Path) -> None:
    hook = RecordingHook()
    async with trained(tmp_path, 3) as sess:
        await sess.attach(hook)
        while not sess.should_stop():
            await sess.run("train")
            await sess.run("train")
    assert await last_saved(tmp_path) == "model.ckpt-3"
    assert sess.stop_reason == "StopAtStepHook: step 3 reached the last step, 3"
    assert "end" in hook.moments()


async def test_the_refused_run_of_a_step_function_ends_the_body(tmp_path: Path) -> None:
    async def twice(step_context: Any) -> None:
        await step_context.run_with_hooks("train")
        await step_context.run_with_hooks("train")

    async with trained(tmp_path, 3) as sess:
        while True:
            await sess.run_step_fn(twice)
    assert await last_saved(tmp_path) == "model.ckpt-3"


async def test_runs_that_waited_for_their_turn_are_refused(tmp_path: Path) -> None:
    async def work(sess: MonitoredSession) -> None:
        while not sess.should_stop():
            await sess.run("train")

    async with trained(tmp_path, 10) as sess, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(work(sess))
    assert await last_saved(tmp_path) == "model.ckpt-10"


async def test_a_refused_run_of_a_task_is_no_failure(tmp_path: Path) -> None:
    async def work(sess: MonitoredSession) -> None:
        while True:
            await sess.run("train")

    async with trained(tmp_path, 10) as sess:
        assert sess.coord is not None
        tasks = [sess.coord.create_task(work, sess) for _ in range(4)]
        await asyncio.wait(tasks)
    assert await last_saved(tmp_path) == "model.ckpt-10"


async def test_the_refused_run_of_another_session_is_an_error(tmp_path: Path) -> None:
    async def run_twice() -> None:
        async with trained(tmp_path / "outer", 10):
            inner = trained(tmp_path / "inner", 1)
            await inner.start()
            await inner.run("train")
            try:
                await inner.run("train")
            finally:
                await inner.close()

    with pytest.raises(RuntimeError, match="even after should_stop"):
        await run_twice()
    assert await last_saved(tmp_path / "inner") == "model.ckpt-1"
