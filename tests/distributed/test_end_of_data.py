"""Errors and handles of queues that several processes use."""

from __future__ import annotations

import asyncio

import pytest

import asyncmon as am
from asyncmon import graph
from tests.distributed.in_process import InProcessCluster

pytestmark = pytest.mark.asyncio


async def test_the_error_of_a_producer_reaches_consumers_of_another_process() -> None:
    """It is no end of the data."""
    with graph.Graph().as_default():
        queue = graph.FIFOQueue(3, [graph.float32], shapes=[[]])
        bad = graph.check_numerics(graph.constant(float("nan")), "not a number")
        am.add_queue_runner(am.QueueRunner(queue, [queue.enqueue(bad)]))
        async with am.Session("local") as sess:
            tasks = am.start_queue_runners(sess)
            with pytest.raises(am.errors.InvalidArgumentError, match="not a number"):
                await sess.run(queue.dequeue())
            await asyncio.wait(tasks)


async def test_a_handle_without_a_seed_shares_a_shuffled_queue_with_one() -> None:
    """TF1: the seeds are compared only if the handle has one."""
    cluster = InProcessCluster({"ps": ["a:1"], "worker": ["b:1", "c:1"]})
    for task, seed in enumerate((1, None)):
        with graph.Graph().as_default(), graph.device("/job:ps/task:0"):
            shared = graph.RandomShuffleQueue(
                5, 0, [graph.int32], shapes=[[]], seed=seed, shared_name="rows"
            )
            other = graph.RandomShuffleQueue(
                5, 0, [graph.int32], shapes=[[]], seed=2, shared_name="rows"
            )
            async with cluster.session("worker", task) as sess:
                await sess.run(shared.enqueue(7))
                assert await sess.run(shared.size()) == task + 1
                with pytest.raises(am.errors.InvalidArgumentError, match=r"has seed 1, but .* has 2"):
                    await sess.run(other.size())
    await cluster.close()
