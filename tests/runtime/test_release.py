"""A closed session keeps nothing of its program, also while other code holds the session."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.errors import AbortedError
from asyncmon.monitor.live_run import LiveRun
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import SessionState
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Keeps(am.SessionRunHook):
    """Keeps all that it gets, as a hook may, and starts a task that outlives the run."""

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.session, self.coord = session, coord

    async def before_run(self, run_context: Any) -> None:
        self.context = run_context

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


class Refuses(am.SessionRunHook):
    async def after_create_session(self, session: Any, coord: Any) -> None:
        raise ValueError(f"no {session.graph}")


def function_program(**faults: Exception) -> FunctionProgram:
    program = FunctionProgram({"weights": np.zeros(100)})

    @program.step
    def train(state: Any) -> Any:
        state["weights"] += 1
        return {"loss": 1.0}

    @program.step
    def fail(state: Any) -> None:
        local = state["weights"]
        raise faults.pop("error", ValueError(f"no {local.shape}"))

    @program.step
    async def wait(state: Any) -> None:
        await asyncio.get_running_loop().create_future()

    return program


def session(program: Any, directory: Path | None = None, **options: Any) -> am.MonitoredSession:
    return am.MonitoredTrainingSession(
        program=program, checkpoint_dir=directory, hooks=[Keeps()], signals=None,
        log_step_count_steps=1, **options,
    )  # fmt: skip


async def ends_in_order(sess: am.MonitoredSession) -> None:
    async with sess:
        await sess.run("train")


async def its_body_fails(sess: am.MonitoredSession) -> None:
    async with sess:
        local = sess.graph
        raise ValueError(f"no {local.steps}")


async def its_step_fails(sess: am.MonitoredSession) -> None:
    async with sess:
        await sess.run("train")
        await sess.run("fail")


async def it_continues_after_an_error(sess: am.MonitoredSession) -> None:
    async with sess:
        with contextlib.suppress(ValueError):
            await sess.run("fail")
        await sess.run("train")


async def its_task_fails(sess: am.MonitoredSession) -> None:
    async def fail(program: Any) -> None:
        raise ValueError("the task has failed")

    async with sess:
        assert sess.coord is not None
        sess.coord.create_task(fail, sess.graph)
        await sess.run("wait")


async def it_is_cancelled(sess: am.MonitoredSession) -> None:
    async def body() -> None:
        async with sess:
            await sess.run("wait")

    task = asyncio.create_task(body())
    await wait_all_tasks_blocked()
    task.cancel()
    await asyncio.wait([task])


async def its_run_exceeds_the_grace_period(sess: am.MonitoredSession) -> None:
    async with sess:
        run = asyncio.create_task(sess.run("wait"))
        await wait_all_tasks_blocked()
        sess.request_stop("enough")
        await asyncio.wait([run])


async def a_task_of_the_body_continues(sess: am.MonitoredSession) -> None:
    """It was started in a step function, and has a copy of its context."""
    others: list[asyncio.Task[None]] = []

    async def step_fn(context: Any) -> None:
        others.append(asyncio.create_task(asyncio.sleep(1e6)))
        await context.run_with_hooks("train")

    async with sess:
        await sess.run_step_fn(step_fn)
    still_running.extend(others)


still_running: list[asyncio.Task[None]] = []

ENDS = [
    ends_in_order, its_body_fails, its_step_fails, it_continues_after_an_error, its_task_fails,
    it_is_cancelled, its_run_exceeds_the_grace_period, a_task_of_the_body_continues,
]  # fmt: skip


async def lived(
    sess: am.MonitoredSession, life: Callable[[am.MonitoredSession], Awaitable[None]]
) -> None:
    with contextlib.suppress(Exception, asyncio.CancelledError):
        await life(sess)


def is_gone(reference: weakref.ref[Any]) -> bool:
    gc.collect()
    return reference() is None


@pytest.mark.parametrize("life", ENDS)
async def test_a_closed_session_keeps_no_program(
    life: Callable[[am.MonitoredSession], Awaitable[None]], tmp_path: Path
) -> None:
    program = function_program()
    known = weakref.ref(program)
    sess = session(program, tmp_path)
    del program
    run = LiveRun("digits", sess)
    await run.refresh()
    await lived(sess, life)
    assert sess.state is SessionState.CLOSED
    assert is_gone(known)
    await run.close()
    for task in still_running:
        task.cancel()
    still_running.clear()


async def test_a_recovery_keeps_nothing_of_the_replaced_session(tmp_path: Path) -> None:
    program = function_program(error=AbortedError("lost"))
    sess = session(program, tmp_path, recovery=am.Recovery(first_delay_secs=0.0, max_attempts=3))
    async with sess:
        first = weakref.ref(sess.raw_session())
        with contextlib.suppress(ValueError):
            await sess.run("fail")
        assert sess.statistics().recoveries == 1
        await wait_all_tasks_blocked()  # a wait that just ended has a frame
        assert is_gone(first)


async def test_an_opening_that_fails_keeps_no_program() -> None:
    program = function_program()
    known = weakref.ref(program)
    sess = am.MonitoredSession(am.ChiefSessionCreator(program=program), [Refuses()])
    del program
    await lived(sess, ends_in_order)
    assert is_gone(known)


async def test_data_and_hooks_are_let_go(tmp_path: Path) -> None:
    hook, data = Keeps(), am.data.from_iterable(list(range(3)))
    known = weakref.ref(hook), weakref.ref(data)
    sess = am.MonitoredTrainingSession(
        program=function_program(), checkpoint_dir=tmp_path, hooks=[hook], signals=None
    )
    async with sess:
        async for _ in sess.iterate(data):
            await sess.run("train")
    del hook, data
    assert all(map(is_gone, known))


async def test_a_graph_is_let_go(tmp_path: Path) -> None:
    graph = g.Graph()
    with graph.as_default():
        step = am.get_or_create_global_step().assign_add(1)
    known = weakref.ref(graph)
    sess = am.MonitoredTrainingSession(
        scaffold=am.Scaffold(program=graph), checkpoint_dir=tmp_path, signals=None
    )
    async with sess:
        await sess.run(step)
    assert sess.global_step == 1
    del graph, step
    assert is_gone(known)


async def test_a_closed_session_stays_readable(tmp_path: Path) -> None:
    sess = session(function_program(), tmp_path)
    hook = am.StopAtStepHook(last_step=9)
    async with sess:
        await sess.attach(hook)
        await sess.run("train")
        sess.request_stop("enough")
        open_hooks = [(one.label, one.priority, one.output_dir) for one in sess.statistics().hooks]
    assert (sess.global_step, sess.stop_reason, sess.last_step) == (1, "enough", 9)
    found = sess.statistics()
    assert (found.state, found.step, found.last_step) == (SessionState.CLOSED, 1, 9)
    assert [(one.label, one.priority, one.output_dir) for one in found.hooks] == open_hooks
    assert {one.hook for one in found.hooks} == {None}
    assert (found.tasks, found.timers, found.open_spans) == ((), (), ())
    assert await sess.queues() == ()
    assert sess.last_results == {"loss": 1.0}
    assert "CheckpointSaverHook" in sess._repr_html_()
    run = LiveRun("digits", sess)  # added after the close: its directories are known, too
    await run.refresh()
    assert (run.status().step, [str(tmp_path)]) == (1, list(run.directories()))
    with pytest.raises(RuntimeError, match="closed and cannot be used again"):
        await sess.sample("weights")
