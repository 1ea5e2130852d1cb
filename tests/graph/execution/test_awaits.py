"""Awaited nodes start without a task, which is created where one suspends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import asyncmon.graph as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.op import table
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

NAME: ContextVar[str] = ContextVar("name", default="")


class Kernel:
    """Waits for ``go`` if given; records where it ran and how it ended."""

    def __init__(self) -> None:
        self.go: asyncio.Event | None = None
        self.error: Exception | None = None
        self.ran: list[tuple[Any, str]] = []
        self.ends: list[str] = []

    def note(self) -> None:
        self.ran.append((asyncio.current_task(), NAME.get()))

    async def __call__(self, run: Any, op: Any, x: Any) -> Any:
        self.note()
        if self.go is not None:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.ends.append("withdrawn")
                raise
            self.note()
        if self.error is not None:
            raise self.error
        self.ends.append("returned")
        return np.add(x, 1)


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    made = Kernel()
    for name, nowait in (("Nowait", True), ("InTask", False)):
        tf.register(tf.AwaitedOpDef(name, made, lambda x: tf.Spec(x.dtype, x.shape), nowait=nowait))
    yield made
    del table["Nowait"], table["InTask"]


def node(kind: str, x: Any = 1) -> Any:
    return tf.create_op(kind, (x,), name="waiting")


async def test_a_node_that_does_not_suspend_needs_no_task(kernel: Kernel) -> None:
    NAME.set("caller")
    async with tf.Session() as sess:
        assert await sess.run(node("Nowait")) == 2
    assert kernel.ran == [(asyncio.current_task(), "caller")]


async def test_a_node_that_suspends_continues_in_one_task_and_is_called_once(kernel: Kernel) -> None:
    NAME.set("caller")
    kernel.go = asyncio.Event()
    async with tf.Session() as sess:
        run = asyncio.create_task(sess.run(node("Nowait") + 3))
        await wait_all_tasks_blocked()
        assert sess.pending_operations() == ["waiting"]
        kernel.go.set()
        assert await run == 5
        assert sess.pending_operations() == []
    (first, before), (second, after) = kernel.ran
    assert first is run
    assert second not in (run, asyncio.current_task())
    assert before == after == "caller"


async def test_a_node_of_user_code_has_one_task_from_the_start(kernel: Kernel) -> None:
    kernel.go = asyncio.Event()
    async with tf.Session() as sess:
        run = asyncio.create_task(sess.run(node("InTask")))
        await wait_all_tasks_blocked()
        kernel.go.set()
        assert await run == 2
    (first, _), (second, _) = kernel.ran
    assert first is second
    assert first is not run


@pytest.mark.parametrize("kind", ["Nowait", "InTask"])
@pytest.mark.parametrize("writes", [False, True])
async def test_a_cancelled_run_withdraws_a_started_node(
    kernel: Kernel, kind: str, writes: bool
) -> None:
    """Also one that starts under the lock."""
    step = tf.Variable(0)
    kernel.go = asyncio.Event()
    waiting = node(kind, step + 1) if writes else node(kind)
    train = tf.assign_add(step, waiting)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        run = asyncio.create_task(sess.run(train))
        await wait_all_tasks_blocked()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert kernel.ends == ["withdrawn"]
        assert sess.pending_operations() == []
        kernel.go.set()
        assert await sess.run(train) == 2


async def test_a_run_that_is_cancelled_before_the_first_step_of_the_task_withdraws(
    kernel: Kernel,
) -> None:
    kernel.go = asyncio.Event()
    async with tf.Session() as sess:
        run = asyncio.create_task(sess.run(node("Nowait")))
        asyncio.get_running_loop().call_soon(run.cancel)  # before the task, which the run makes
        with pytest.raises(asyncio.CancelledError):
            await run
        assert kernel.ends == ["withdrawn"]


async def test_a_node_that_yields_to_the_loop_starts_without_a_task(kernel: Kernel) -> None:
    events = []

    async def pause(run: Any, op: Any) -> Any:
        events.append("started")
        await asyncio.sleep(0)
        events.append("resumed")
        return np.int32(7)

    tf.register(tf.AwaitedOpDef("Pause", pause, lambda: tf.Spec(tf.int32, ()), nowait=True))
    try:
        async with tf.Session() as sess:
            asyncio.get_running_loop().call_soon(events.append, "loop")
            assert await sess.run(tf.create_op("Pause", ())) == 7
    finally:
        del table["Pause"]
    assert events == ["started", "loop", "resumed"]


@pytest.mark.parametrize("kind", ["Nowait", "InTask"])
@pytest.mark.parametrize("suspends", [False, True])
async def test_an_error_names_the_node(kernel: Kernel, kind: str, suspends: bool) -> None:
    kernel.error = ValueError("no")
    if suspends:
        kernel.go = asyncio.Event()
        asyncio.get_running_loop().call_later(1, kernel.go.set)
    async with tf.Session() as sess:
        with pytest.raises(InvalidArgumentError, match=rf"no \[at node 'waiting' \({kind}\)\]"):
            await sess.run(node(kind))


@pytest.mark.parametrize("suspends", [False, True])
async def test_a_trace_has_a_started_node(kernel: Kernel, suspends: bool) -> None:
    if suspends:
        kernel.go = asyncio.Event()
        asyncio.get_running_loop().call_later(1, kernel.go.set)
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    async with tf.Session() as sess:
        await sess.run(node("Nowait"), options=options, run_metadata=metadata)
    assert [one.name for one in metadata.nodes if one.op == "Nowait"] == ["waiting"]
