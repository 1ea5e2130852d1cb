"""Deadlines and policies for errors, the same in each moment of a hook and in timers."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import DeadlineExceededError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import Coordinator
from asyncmon.testing import RecordingHook

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def now() -> float:
    return asyncio.get_running_loop().time()


def session(*hooks: Any, **options: Any) -> am.MonitoredSession:
    program = FunctionProgram({"n": 0})

    @program.step
    async def train(state: Any) -> None:
        await asyncio.sleep(1)
        state["n"] += 1

    return am.MonitoredSession(am.ChiefSessionCreator(program=program), hooks, **options)


async def train(*hooks: Any, steps: int = 10, **options: Any) -> am.MonitoredSession:
    async with session(*hooks, am.StopAtStepHook(last_step=steps), **options) as sess:
        while not sess.should_stop():
            await sess.run("train")
    return sess


def failures(sess: am.MonitoredSession, label: str) -> int:
    return next(one.failures for one in sess.statistics().hooks if one.label == label)


# -- background


class Notify(am.SessionRunHook):
    """Fails at each of its first calls."""

    on_error = "log"

    def __init__(self, failing: int = 1) -> None:
        self.failing = failing
        self.begun: list[float] = []
        self.ticks = 0

    async def background(self, session: Any, coord: Any) -> None:
        self.begun.append(now())
        if len(self.begun) <= self.failing:
            raise ConnectionError("the service is away")
        async for _ in coord.every(1):
            self.ticks += 1


async def test_a_background_that_fails_is_started_again() -> None:
    hook = Notify()
    await train(hook)
    assert hook.begun == [0, 0.1]
    assert hook.ticks == 9


async def test_its_pauses_grow_and_the_same_error_is_logged_once(caplog: Any) -> None:
    hook = Notify(failing=1000)
    sess = await train(hook, steps=100)
    pauses = [after - before for before, after in zip(hook.begun, hook.begun[1:], strict=False)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30])
    assert failures(sess, "Notify") == len(hook.begun)
    assert caplog.text.count("Traceback") == 1
    assert "Notify.background failed; on_error='log'. 10 times in a row, the same error" in caplog.text


async def test_another_policy_starts_no_background_again() -> None:
    hook = Notify()
    hook.on_error = "detach"
    sess = await train(hook)
    assert hook.begun == [0]
    assert "Notify" not in [one.label for one in sess.statistics().hooks]


# -- begin


async def test_a_hook_whose_begin_fails_is_detached_under_log(caplog: Any) -> None:
    class Wrong(RecordingHook):
        on_error = "log"

        async def begin(self) -> None:
            await super().begin()
            raise ValueError("no such file")

    hook = Wrong("wrong")
    await train(hook, steps=2)
    assert hook.moments() == ["begin", "cleanup"]
    assert "wrong.begin failed; on_error='log'. The hook is detached." in caplog.text


# -- deadlines


class Stubborn(am.SessionRunHook):
    """Swallows all exceptions, as a careless loop of retries does."""

    deadline = 3.0

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(1)


async def test_a_method_that_ignores_its_deadline_is_named_and_left(caplog: Any) -> None:
    hook = Stubborn()
    hook.on_error = "detach"
    sess = await train(hook, steps=5)
    assert sess.stop_reason is not None
    assert now() == 1 + 3 + 1 + 4
    assert "Stubborn.after_run has a deadline of 3 s and ignores its cancellation" in caplog.text
    assert "test_hook_policy.py:" in caplog.text
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_its_error_is_that_of_the_deadline() -> None:
    with pytest.raises(DeadlineExceededError, match="after_run took longer than its deadline of 3 s"):
        await train(Stubborn())


# -- one hook's end


async def test_a_generator_exit_of_one_hook_skips_no_other() -> None:
    class Bad(am.SessionRunHook):
        async def end(self, session: Any) -> None:
            raise GeneratorExit

        async def cleanup(self, error: Any) -> None:
            raise GeneratorExit

    good = RecordingHook("good")
    with pytest.raises(RuntimeError, match=r"Bad\.end raised GeneratorExit"):
        await train(good, Bad(), good_after := RecordingHook("after"), steps=1)
    for hook in (good, good_after):
        assert hook.moments()[-2:] == ["end", "cleanup"]


async def test_a_generator_that_is_closed_closes_its_session() -> None:
    hook = RecordingHook()

    async def stream() -> Any:
        async with session(hook) as sess:
            while True:
                await sess.run("train")
                yield sess.global_step

    steps = stream()
    assert await anext(steps) == 1
    await steps.aclose()  # as when the client of a streaming response leaves
    assert hook.moments()[-1] == "cleanup"
    assert isinstance(hook.error, GeneratorExit)


# -- timers


async def fail() -> None:
    raise ValueError("no connection")


@pytest.mark.parametrize("when", [{"steps": 1}, {"secs": 1}])
async def test_every_takes_a_policy(when: dict[str, Any], caplog: Any) -> None:
    sess = await train(am.every(**when, on_error="log")(fail))
    assert failures(sess, "fail") >= 9
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize("when", [{"steps": 1}, {"secs": 1}])
async def test_every_takes_a_deadline(when: dict[str, Any]) -> None:
    @am.every(**when, deadline=2)
    async def hang() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceededError, match=r"hang\.\w+ took longer than its deadline of 2 s"):
        await train(hang)


async def test_coord_every_calls_a_function_under_a_policy(caplog: Any) -> None:
    coord, calls = Coordinator(), []

    def report() -> None:
        calls.append(now())
        raise ValueError("no connection")

    coord.every(2, report, on_error="log", immediately=True)
    await asyncio.sleep(21)
    coord.request_stop()
    await coord.join()
    assert calls == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]
    assert caplog.text.count("Traceback") == 1


async def test_an_error_of_its_function_stops_the_coordinator() -> None:
    coord = Coordinator()
    coord.every(2, fail)
    assert await coord.wait_for_stop(3)
    with pytest.raises(ValueError, match="no connection"):
        await coord.join()


@pytest.mark.parametrize("arguments", [(1,), (1, fail)])
async def test_coord_every_refuses_what_it_cannot_do(arguments: Any) -> None:
    policy = "log" if len(arguments) == 1 else "detach"
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'log'"):
        Coordinator().every(*arguments, on_error=policy)
