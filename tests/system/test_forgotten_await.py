"""A call that is not awaited is named, with its place; a loop of it does not spin for ever."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.system.forgotten_await import ForgottenAwait
from asyncmon.testing import ScriptedCreator, ScriptedSession

pytestmark = pytest.mark.asyncio
forgetful = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")


def session() -> am.MonitoredSession:
    return am.MonitoredSession(ScriptedCreator(ScriptedSession(values={"x": 1})))


def line_of(function: Any, text: str) -> str:
    code = function.__code__
    with open(code.co_filename) as source:
        lines = source.read().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if n > code.co_firstlineno and text in line)
    return f"{code.co_filename}:{number}"


@forgetful
async def test_a_loop_of_runs_that_are_not_awaited_raises_and_names_the_call_and_its_line() -> None:
    async def train() -> None:
        async with session() as sess:
            while not sess.should_stop():
                sess.run("x")  # type: ignore[unused-coroutine]  # the mistake

    with pytest.raises(RuntimeError) as caught:
        await train()
    message = str(caught.value)
    assert message.startswith("MonitoredSession.run() at ")
    assert line_of(train, 'sess.run("x")') in message
    assert "never awaited: write `await`" in message


@pytest.mark.filterwarnings("error")
async def test_the_call_is_named_also_where_warnings_are_errors() -> None:
    coord = am.Coordinator()

    def loop() -> None:
        while not coord.should_stop():
            if coord._forgotten._watch is not None:  # before, no code can catch them
                asyncio.sleep(0)  # type: ignore[unused-coroutine]  # the mistake

    with pytest.raises(RuntimeError, match=r"^sleep\(\) at .*never awaited"):
        loop()
    coord.request_stop()
    assert coord.should_stop()


@forgetful
async def test_so_does_a_loop_over_a_coordinator_with_any_coroutine_function() -> None:
    coord = am.Coordinator()

    async def step() -> None:
        """Never begins."""

    def loop() -> None:
        while not coord.should_stop():
            ignored = step()  # noqa: F841

    with pytest.raises(RuntimeError, match=r"step\(\) at .*test_forgotten_await\.py:\d+ was called"):
        loop()


@forgetful
async def test_and_a_loop_of_a_supervisor(tmp_path: Path) -> None:
    with am.graph.Graph().as_default():
        step = am.graph.assign_add(am.get_or_create_global_step(), 1)
        supervisor = am.Supervisor(logdir=tmp_path)

        async def train() -> None:
            async with supervisor.managed_session() as sess:
                while not supervisor.should_stop():
                    sess.run(step)

        with pytest.raises(RuntimeError, match=r"Session\.run\(\) at .*never awaited"):
            await train()


async def test_a_loop_that_only_holds_the_event_loop_is_warned_about_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coord, began = am.Coordinator(), time.perf_counter()
    while not coord.should_stop():
        if time.perf_counter() - began > 0.4:
            break
    assert "by a loop that awaits nothing (" in caplog.text
    assert "test_forgotten_await.py:" in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


async def test_the_watch_leaves_other_warnings_and_the_tracking_as_they_were() -> None:
    forgotten = ForgottenAwait()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began, filters = time.perf_counter(), list(warnings.filters)
        while time.perf_counter() - began < 0.35:
            forgotten.asked()
            warnings.warn("another", stacklevel=1)
        assert warnings.filters == filters
        count = len(caught)
    assert count > 100
    assert {str(warning.message) for warning in caught} == {"another"}

    async def last() -> None:
        """Never begins."""

    coroutine = last()
    assert coroutine.cr_origin is None
    coroutine.close()


async def test_loops_that_let_the_event_loop_run_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with session() as sess:
        began = time.perf_counter()
        while not sess.should_stop() and time.perf_counter() - began < 0.4:
            await sess.run("x")
    coord = am.Coordinator()
    began = time.perf_counter()
    async for _ in coord.every(0):
        if coord.should_stop() or time.perf_counter() - began > 0.4:
            break
    assert caplog.records == []


async def test_a_thread_may_request_a_stop_repeatedly(caplog: pytest.LogCaptureFixture) -> None:
    coord = am.Coordinator()

    def ask() -> None:
        while not coord.should_stop():
            pass

    thread = threading.Thread(target=ask)
    thread.start()
    await asyncio.sleep(0.4)
    coord.request_stop()
    thread.join()
    assert caplog.records == []


# -- hooks ------------------------------------------------------------------------------------------


FORGOTTEN: dict[str, Callable[[Any, Any], Any]] = {
    "Session.run": lambda hook, session: session.run("global_step:0"),
    "Session.peek": lambda hook, session: session.peek("global_step:0"),
    "FileWriter.flush": lambda hook, session: hook.writer.flush(),
    "FileWriter.close": lambda hook, session: hook.writer.close(),
    "Saver.save": lambda hook, session: hook.saver.save(session, "prefix"),
    "Saver.restore": lambda hook, session: hook.saver.restore(session, "prefix"),
    "latest_checkpoint": lambda hook, session: am.latest_checkpoint("runs"),
    "Coordinator.join": lambda hook, session: hook.coord.join(),
    "Coordinator.wait_for_stop": lambda hook, session: hook.coord.wait_for_stop(),
    "SessionCoordinator.sample": lambda hook, session: hook.coord.sample("global_step:0"),
}


@pytest.mark.parametrize("name", FORGOTTEN)
async def test_a_call_in_a_hook_that_is_not_awaited_is_named_with_its_place(
    name: str, tmp_path: Path
) -> None:
    class Forgetful(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: am.Coordinator) -> None:
            self.writer, self.saver, self.coord = am.summary.FileWriter(tmp_path), am.Saver(), coord

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            FORGOTTEN[name](self, run_context.session)

        async def cleanup(self, error: BaseException | None) -> None:
            await self.writer.close()

    with am.graph.Graph().as_default():
        step = am.graph.assign_add(am.get_or_create_global_step(), 1)
        async with am.MonitoredSession(hooks=[Forgetful()]) as sess:
            with pytest.warns(RuntimeWarning, match=f"'{name}' was never awaited") as caught:
                await sess.run(step)
    assert [warning.filename for warning in caught] == [__file__]


async def forgets(session: Any) -> None:
    loss = session.run("x")
    assert loss <= 0.1


class Forgets(am.SessionRunHook):
    def __init__(self, moment: str) -> None:
        setattr(self, moment, self.at_moment)

    async def at_moment(self, first: Any, *_: Any) -> None:
        await forgets(getattr(first, "session", first))


@pytest.mark.parametrize("moment", ["after_create_session", "before_run", "end", "background"])
async def test_a_hook_that_uses_a_coroutine_is_named_with_its_line(moment: str) -> None:
    with pytest.raises(TypeError, match=f"{line_of(forgets, 'assert')} uses a coroutine .*`await`"):
        await train(hooks=[Forgets(moment)])


async def train(step: Any = None, **options: Any) -> None:
    creator = ScriptedCreator(ScriptedSession(values={"x": 1}))
    async with am.MonitoredSession(creator, **options) as sess:
        await (sess.run("x") if step is None else step(sess))
        await sess.run("x")


@forgetful
async def test_a_step_function_or_body_that_uses_a_coroutine_is_named_with_its_line() -> None:
    def plain(context: am.StepContext) -> Any:
        return context.session.run("x") + 1

    async def function(context: am.StepContext) -> Any:
        return plain(context)

    with pytest.raises(TypeError, match=f"{line_of(plain, 'return')} uses a coroutine"):
        await train(lambda sess: sess.run_step_fn(plain))
    with pytest.raises(TypeError, match=f"{line_of(plain, 'return')} uses a coroutine"):
        await train(lambda sess: sess.run_step_fn(function))
    with pytest.raises(TypeError, match=f"{line_of(forgets, 'assert')} uses a coroutine"):
        await train(forgets)


async def test_a_hook_whose_errors_are_logged_is_named_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook = Forgets("before_run")
    hook.on_error = "log"
    await train(hooks=[hook])
    assert f"{line_of(forgets, 'assert')} uses a coroutine" in caplog.text


@forgetful
async def test_a_py_func_that_uses_a_coroutine_is_named_with_its_line() -> None:
    async def slow() -> float:
        return 1.0

    def half() -> Any:
        return slow() / 2

    with g.Graph().as_default():
        y = g.py_func(half, [], g.float32)
        async with g.Session() as sess:
            with pytest.raises(am.errors.InvalidArgumentError) as caught:
                await sess.run(y)
    assert isinstance(caught.value.__cause__, TypeError)
    assert f"{line_of(half, 'return')} uses" in caught.value.__cause__.__notes__[0]


async def test_an_init_fn_that_drops_a_coroutine_is_refused_with_its_line() -> None:
    def init_fn(_: Any, session: Any) -> None:
        session.run(ready)

    with g.Graph().as_default():
        ready = g.constant(1)
        scaffold = am.Scaffold(init_fn=init_fn)
        line = line_of(init_fn, "session.run")
        with pytest.raises(RuntimeError, match=f"run\\(\\) at {line} was called and never awaited"):
            await am.MonitoredSession(am.ChiefSessionCreator(scaffold)).start()


@forgetful
async def test_a_feed_that_is_a_coroutine_is_named_with_its_line() -> None:
    async def batch() -> float:
        return 1.0

    async def step(sess: Any) -> None:
        await sess.run(x, {x: batch()})

    with g.Graph().as_default():
        x = g.placeholder(g.float32)
        with pytest.raises(TypeError, match=f"{line_of(step, 'run')} uses a coroutine"):
            async with am.MonitoredSession() as sess:
                await step(sess)
