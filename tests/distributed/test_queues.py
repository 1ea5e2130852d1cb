"""What queues hold, asked of sessions of this process and of others."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph
from tests.distributed.in_process import InProcessCluster
from tests.distributed.over_grpc import rpc_config

pytestmark = pytest.mark.asyncio


def queues() -> tuple[list[Any], list[Any]]:
    """Return operations that put two elements into one queue, one into another, none into a third."""
    bounded = graph.FIFOQueue(5, [graph.float32], shapes=[[]], name="batches")
    shared = graph.FIFOQueue(-1, [graph.float32], shapes=[[]], shared_name="rows")
    graph.FIFOQueue(3, [graph.float32], shapes=[[]], name="unused")
    return [bounded.enqueue_many([[1.0, 2.0]]), shared.enqueue(3.0)], [bounded.dequeue()]


async def check(sess: Any) -> None:
    put, take = queues()
    assert await sess.queues() == []
    await sess.run(put)
    assert await sess.queues() == [("batches", 2, 5), ("rows", 1, None)]
    await sess.run(take)
    assert await sess.queues() == [("batches", 1, 5), ("rows", 1, None)]


@pytest.mark.parametrize("target", ["", "local"])
async def test_queues_of_this_process_and_of_a_child(target: str) -> None:
    with graph.Graph().as_default():
        async with am.Session(target) as sess:
            await check(sess)


async def test_queues_over_grpc() -> None:
    with graph.Graph().as_default():
        server = am.Server.create_local_server()
        async with server, am.Session(server.target, config=rpc_config()) as sess:
            await check(sess)


async def test_queues_of_several_tasks() -> None:
    cluster = InProcessCluster({"ps": ["a:1"], "worker": ["b:1"]})
    with graph.Graph().as_default():
        with graph.device("/job:ps/task:0"):
            there = graph.FIFOQueue(5, [graph.float32], shapes=[[]], name="there")
        here = graph.FIFOQueue(6, [graph.float32], shapes=[[]], name="here")
        async with cluster.session("worker", 0) as sess:
            await sess.run([there.enqueue(1.0), here.enqueue(1.0)])
            assert await sess.queues() == [("here", 1, 6), ("there", 1, 5)]
    await cluster.close()


async def test_a_closed_session_is_not_called() -> None:
    with graph.Graph().as_default():
        sess = am.Session()
        await sess.close()
        with pytest.raises(RuntimeError, match="closed"):
            await sess.queues()


async def test_a_monitored_session_gives_them_with_its_channels() -> None:
    with graph.Graph().as_default():
        am.get_or_create_global_step()
        put, _ = queues()
        sess = am.MonitoredSession()
        assert await sess.queues() == ()
        async with sess:
            sess.coord.channel(4, name="rollouts")  # type: ignore[union-attr]  # it is open
            await sess.run(put)
            assert [tuple(queue) for queue in await sess.queues()] == [
                ("batches", 2, 5), ("rows", 1, None), ("rollouts", 0, 4),
            ]  # fmt: skip
