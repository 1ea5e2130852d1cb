"""Queue runners of a graph's collection, beside the steps of monitored sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from asyncmon.errors import AbortedError, InvalidArgumentError, OutOfRangeError
from asyncmon.graph.core.dtypes import int32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import group
from asyncmon.graph.ops.py_func import py_func
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.queues.queues import FIFOQueue
from asyncmon.graph.variables.global_step import create_global_step
from asyncmon.runtime import (
    ChiefSessionCreator,
    MonitoredSession,
    QueueRunner,
    SessionRunHook,
    add_queue_runner,
)
from asyncmon.testing import RecordingHook, assert_nothing_left_behind, fail_at_step

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Feed:
    """A graph whose queue is filled, by a runner of its collection, with 1, 2, ... and an end."""

    def __init__(self, last: int, error: Exception | None = None) -> None:
        self.given = 0
        self.last, self.error = last, error or OutOfRangeError("no more")
        with Graph().as_default() as self.graph:
            queue = FIFOQueue(3, [int32], shapes=[[]], name="q")
            add_queue_runner(QueueRunner(queue, [queue.enqueue(py_func(self.next, [], int32))]))
            item = queue.dequeue()
            self.train = [item, group(assign_add(create_global_step(), 1))]

    async def next(self) -> int:
        await asyncio.sleep(0.01)
        if self.given == self.last:
            raise self.error
        self.given += 1
        return self.given

    def session(self, *hooks: Any) -> MonitoredSession:
        return MonitoredSession(ChiefSessionCreator(program=self.graph), hooks, 1)


async def consume(sess: MonitoredSession, feed: Feed) -> list[int]:
    got: list[int] = []
    while not sess.should_stop():
        item, _ = await sess.run(feed.train)
        got.append(int(item))
    return got


async def test_runners_of_the_collection_start_before_after_create_session_ms_19() -> None:
    seen: list[set[str]] = []

    class Look(SessionRunHook):
        async def after_create_session(self, session: Any, coord: Any) -> None:
            seen.append({task.get_name() for task in asyncio.all_tasks()})

    feed, hook, got = Feed(7), RecordingHook(), list[int]()
    async with assert_nothing_left_behind(), feed.session(Look(), hook) as sess:
        while not sess.should_stop():
            item, _ = await sess.run(feed.train)
            got.append(int(item))
    assert got == [1, 2, 3, 4, 5, 6, 7]
    assert hook.moments()[-2:] == ["end", "cleanup"]
    assert any(name.startswith("QueueRunnerTask-q-") for name in seen[0])


async def test_a_consumer_gets_the_error_of_its_producer_ms_20() -> None:
    feed, hook = Feed(3, InvalidArgumentError("a bad record")), RecordingHook()
    with pytest.raises(InvalidArgumentError, match="a bad record"):
        async with assert_nothing_left_behind(), feed.session(hook) as sess:
            await consume(sess, feed)
    assert "end" not in hook.moments()


async def test_runners_are_started_again_after_a_recovery_wr_18() -> None:
    feed = Feed(20)
    async with assert_nothing_left_behind(), feed.session(fail_at_step(4)) as sess:
        for _ in range(6):
            await sess.run(feed.train)
        assert sess.global_step == 6 - 3  # a new session, from the beginning
        assert feed.given >= 6  # six were asked for, each made by a runner


async def test_a_recovery_by_an_error_of_a_runner() -> None:
    feed = Feed(2, AbortedError("preempted"))
    async with assert_nothing_left_behind(), feed.session() as sess:
        for _ in range(2):
            await sess.run(feed.train)
        await asyncio.sleep(1)
        assert not sess.should_stop()
        feed.last = 1000
        assert int((await sess.run(feed.train))[0]) == 3
        assert sess.global_step == 1
