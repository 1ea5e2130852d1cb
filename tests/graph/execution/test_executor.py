"""Where a plan runs, and how it is ended from outside."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.numerics import parallel
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = pytest.mark.asyncio


class Gate:
    """A node that says in which thread it is, and stays there until it is let go."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go_on = threading.Event()
        self.thread = ""
        self.node = tf.py_func(self._call, [], tf.float32)
        self.node.set_shape([])

    def _call(self) -> Any:
        self.thread = threading.current_thread().name
        self.inside.set()
        assert self.go_on.wait(10)
        return np.float32(1)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.inside.wait, 10)


async def test_plans_of_a_closed_session_need_no_garbage_collector() -> None:
    def plans() -> int:
        return sum(type(found) is Plan for found in gc.get_objects())

    v = tf.Variable(0.0, name="v")
    gc.collect()
    gc.disable()
    try:
        before = plans()
        async with tf.Session() as sess:
            await sess.run(v.initializer)
            await sess.run(v.assign_add(1.0))
            assert plans() == before + 2
        assert plans() == before
    finally:
        gc.enable()


async def test_a_short_plan_runs_on_the_loops_thread_and_a_long_one_in_a_worker() -> None:
    def where() -> str:
        return threading.current_thread().name

    x = tf.py_func(where, [], tf.string)
    here = threading.current_thread().name.encode()
    async with tf.Session() as sess:
        assert await sess.run(x) == here
        (plan,) = sess._plans.values()
        plan.cost.average = 1.0  # as if it took a second
        assert b"asyncmon-session" in await sess.run(x)
        for _ in range(60):
            await sess.run(x)
        assert await sess.run(x) == here  # it learns


async def test_what_a_worker_waits_for_the_interpreter_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "thread_time", lambda: 5.0)
    x = tf.reduce_sum(tf.random_uniform([3]))
    async with tf.Session() as sess:
        await sess.run(x)
        (plan,) = sess._plans.values()
        plan.cost.average = 1.0
        await sess.run(x)
        assert plan.cost.average == pytest.approx(0.8)


async def test_what_code_of_the_users_waits_for_in_a_worker_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "thread_time", lambda: 5.0)
    x = tf.py_func(lambda: np.float32(1), [], tf.float32)
    both = tf.cond(tf.random_uniform([]) < 2.0, lambda: x + 1.0, lambda: x)
    async with tf.Session() as sess:
        for fetch in (x, both):
            await sess.run(fetch)
            plan = list(sess._plans.values())[-1]
            plan.cost.average = 1.0
            await sess.run(fetch)
            assert plan.cost.average > 0.8


async def test_a_plan_of_many_elements_starts_in_a_worker() -> None:
    x = tf.py_func(lambda: threading.current_thread().name, [], tf.string)
    heavy = tf.reduce_sum(tf.zeros([1000, 1000]) + 1.0)
    async with tf.Session() as sess:
        name, total = await sess.run([x, heavy])
    assert b"asyncmon-session" in name
    assert total == 1_000_000


async def test_a_plan_that_copies_large_values_into_variables_starts_in_a_worker() -> None:
    x = tf.py_func(lambda: threading.current_thread().name, [], tf.string)
    v = tf.Variable(np.zeros(1 << 18, np.float32))
    async with tf.Session() as sess:
        name, _ = await sess.run([x, v.initializer])
    assert b"asyncmon-session" in name


async def test_a_timeout_ends_a_run_between_two_nodes_se_3() -> None:
    """SE-3."""
    gate = Gate()
    v = tf.Variable(0.0)
    step = v.assign_add(gate.node)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        running = asyncio.create_task(sess.run(step, options=tf.RunOptions(timeout_in_ms=1)))
        await asyncio.sleep(0)  # it has set its timer, which comes before this one
        asyncio.get_running_loop().call_later(0.01, gate.go_on.set)
        with pytest.raises(errors.DeadlineExceededError, match="longer than 1 ms") as caught:
            await running
        assert not hasattr(caught.value, "__notes__")  # no node is at fault: none is named
        gate.go_on.set()
        assert await sess.run(v) == 0
        assert await sess.run(step) == 1  # the session is usable


async def test_a_timeout_that_is_not_reached_changes_nothing() -> None:
    v = tf.Variable(0.0)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(v.assign_add(1.0), options=tf.RunOptions(timeout_in_ms=60_000)) == 1


async def test_a_run_that_waits_for_its_turn_can_time_out() -> None:
    gate = Gate()
    v = tf.Variable(0.0)
    slow, step = v.assign_add(gate.node), v.assign_add(1.0)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        await sess.run(v.initializer)
        running = asyncio.create_task(sess.run(slow))
        await gate.reached()
        with pytest.raises(errors.DeadlineExceededError):
            await sess.run(step, options=tf.RunOptions(timeout_in_ms=1))
        gate.go_on.set()
        await running
        assert await sess.run(step) == 2


async def test_closing_ends_a_worker_between_two_nodes_and_runs_that_wait() -> None:
    gate = Gate()
    v = tf.Variable(0.0)
    slow, step = v.assign_add(gate.node), v.assign_add(1.0)
    sess = tf.Session(config=tf.SessionConfig(inline_ms=0))
    await sess.run(v.initializer)
    running = asyncio.create_task(sess.run(slow))
    await gate.reached()
    waiting = asyncio.create_task(sess.run(step))
    await asyncio.sleep(0)
    closing = asyncio.create_task(sess.close())
    await asyncio.sleep(0)
    closing.cancel()  # it closes all the same
    gate.go_on.set()
    results = await asyncio.gather(running, waiting, closing, return_exceptions=True)
    assert [type(result) for result in results] == [
        errors.CancelledError, errors.CancelledError, asyncio.CancelledError,
    ]  # fmt: skip
    assert sess.closed


async def test_a_cancelled_caller_waits_for_its_worker() -> None:
    gate = Gate()
    v = tf.Variable(0.0)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        await sess.run(v.initializer)
        running = asyncio.create_task(sess.run(v.assign_add(gate.node)))
        await gate.reached()
        for _ in range(3):
            running.cancel()
            await asyncio.sleep(0)
        assert not running.done()
        gate.go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await sess.run(v) == 0


async def test_context_variables_reach_a_worker() -> None:
    import contextvars

    variable = contextvars.ContextVar("variable", default="none")
    variable.set("mine")
    x = tf.py_func(lambda: variable.get(), [], tf.string)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        assert await sess.run(x) == b"mine"


async def test_awaited_nodes_in_workers_and_inline_give_the_same() -> None:
    async def wait(a: Any) -> Any:
        await asyncio.sleep(0)
        return a + 1

    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(2.0)
    y = tf.py_func(wait, [tf.exp(x) * v], tf.float32) * tf.py_func(wait, [x], tf.float32)
    for inline_ms in (1000, 0):
        async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
            await sess.run(v.initializer)
            assert await sess.run(y, {x: 0}) == 3
            assert await sess.peek(y, {x: 0}) == 3


async def test_a_function_cannot_wait_for_the_run_that_waits_for_it() -> None:
    v = tf.Variable(0)
    increment = v.assign_add(1)

    async def again(_v: Any) -> Any:
        return np.int32(await sess.run(increment))

    async def look(_v: Any) -> Any:
        return np.int32(await sess.run(v + 1))

    def result(function: Any, of: Any) -> Any:
        x = tf.py_func(function, [of], tf.int32)
        x.set_shape([])
        return v.assign_add(x)

    of_state, before, looks = result(again, v), result(again, 7), result(look, v)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        with pytest.raises(errors.UnknownError, match="asked its session for another such run"):
            await sess.run(of_state)
        assert await sess.run(v) == 0
        assert await sess.run(looks) == 1
        assert await sess.run(before) == 4  # its function was awaited before its turn


async def test_a_function_cannot_close_the_session_of_its_run() -> None:
    async def close() -> Any:
        await sess.close()

    bad = tf.py_func(close, [], [])
    async with tf.Session() as sess:
        with pytest.raises(errors.UnknownError, match="Close the session after the run"):
            await sess.run(bad)
        assert not sess.closed
        assert await sess.run(tf.constant(1)) == 1


async def test_closing_ends_a_load_that_waits_for_its_turn() -> None:
    v = tf.Variable(0, name="v")
    never = asyncio.Event()

    async def wait(_v: Any) -> Any:
        await never.wait()

    with tf.control_dependencies([tf.py_func(wait, [v], [])]):
        step = v.assign_add(1)
    sess = tf.Session()
    await sess.run(v.initializer)
    run = asyncio.create_task(sess.run(step))
    await wait_all_tasks_blocked()
    load = asyncio.create_task(sess.load({"v": np.int32(5)}))
    await wait_all_tasks_blocked()
    await sess.close()
    for task in (run, load):
        with pytest.raises(errors.CancelledError, match="Session has been closed"):
            await task
    assert "asyncmon-session" not in str(threading.enumerate())


async def test_in_a_forked_process_a_worker_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    x = tf.constant(1)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        assert await sess.run(x) == 1
        monkeypatch.setattr(sess.backend.executor.threads, "_process", -1)  # as if it were the parent's
        with pytest.raises(RuntimeError, match="a fork takes no threads along"):
            await sess.run(x)


@pytest.mark.parametrize("arguments", [{"options": {"trace_level": 3}}, {"run_metadata": []}])
async def test_wrong_options_are_refused_and_the_session_still_closes(arguments: Any) -> None:
    async with tf.Session() as sess:
        name = next(iter(arguments))
        with pytest.raises(TypeError, match=f"{name} must be a Run"):
            await sess.run(tf.constant(1), **arguments)
        wrong = tf.RunOptions(timeout_in_ms="1")  # type: ignore[arg-type]  # the tested type
        with pytest.raises(TypeError):
            await sess.run(tf.constant(1), options=wrong)


# Event loops.


async def test_a_session_serves_one_running_event_loop() -> None:
    v = tf.Variable(0.0, name="v")
    step = tf.assign_add(v, 1.0)
    queue = tf.FIFOQueue(1, tf.float32, shapes=[[]])
    sess = tf.Session()
    await sess.run(v.initializer)
    uses = {
        "run": lambda: sess.run(step),
        "traced": lambda: sess.run(step, options=tf.RunOptions(trace_level=3)),
        "wait": lambda: sess.run(queue.dequeue()),
        "peek": lambda: sess.peek(v),
        "load": lambda: sess.load({"v": 7.0}),
        "close": lambda: sess.close(),
    }
    waits = asyncio.create_task(sess.run(queue.dequeue()))
    await wait_all_tasks_blocked()
    for use in uses.values():

        async def elsewhere(use: Any = use) -> None:
            with pytest.raises(RuntimeError, match="used by another event loop"):
                await use()

        await asyncio.to_thread(asyncio.run, elsewhere())
    await sess.run(queue.enqueue(3.0))
    assert await waits == 3.0
    assert await sess.run(step) == 1.0
    await sess.close()


async def test_a_session_can_serve_one_loop_after_the_other() -> None:
    v = tf.Variable(0.0, name="v")
    step = tf.assign_add(v, 1.0)
    sess = tf.Session()
    for work in (v.initializer, step, step, step):
        await asyncio.to_thread(asyncio.run, sess.run(work))
    assert await sess.run(v) == 3.0
    await sess.close()
