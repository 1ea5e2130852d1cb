"""Synchronous replicas over a cluster: variables on two servers, a graph for each worker."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph
from tests.distributed.in_process import InProcessCluster

pytestmark = [pytest.mark.asyncio]

CLUSTER = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1", "e:1"]}
X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
Y = (X @ np.array([[1.0], [-2.0], [3.0]]) + 0.5).astype(np.float32)
STEPS = 12


def network(optimizer: Any) -> tuple[Any, ...]:
    step = am.get_or_create_global_step()
    x = graph.placeholder(graph.float32, [None, 3])
    y = graph.placeholder(graph.float32, [None, 1])
    w = graph.get_variable("w", initializer=np.zeros((3, 1), np.float32))
    b = graph.get_variable("b", initializer=np.zeros(1, np.float32))
    loss = graph.reduce_mean(graph.square(graph.matmul(x, w) + b - y))
    return x, y, w, b, optimizer.minimize(loss, global_step=step)


async def big_batches() -> list[Any]:
    with graph.Graph().as_default():
        x, y, w, b, train = network(graph.train.AdamOptimizer(0.1))
        async with graph.Session() as sess:
            await sess.run(graph.global_variables_initializer())
            for _ in range(STEPS):
                await sess.run(train, {x: X, y: Y})
            return await sess.run([w, b])


async def replica(
    cluster: InProcessCluster, task: int, ready: asyncio.Barrier, done: list[Any], leave: int = -1
) -> None:
    """Train one worker; with ``leave``, drop it after that many steps, with a token in its hand."""
    device = am.replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
    with graph.Graph().as_default() as own, own.device(device):
        optimizer = am.SyncReplicasOptimizer(graph.train.AdamOptimizer(0.1), 3, token_timeout_secs=0.5)
        x, y, w, b, train = network(optimizer)
        hooks = [optimizer.make_session_run_hook(task == 0), am.StopAtStepHook(last_step=STEPS)]
        cluster.session("worker", task)
        async with am.MonitoredTrainingSession(
            cluster.target, task == 0, hooks=hooks, max_wait_secs=20, log_step_count_steps=None
        ) as sess:
            await ready.wait()
            rows = slice(task * 20, task * 20 + 20)
            while not sess.should_stop():
                await sess.run(train, {x: X[rows], y: Y[rows]})
                leave -= 1
                if leave == 0:
                    raise RuntimeError("died")
            done.append((sess.raw_session().global_step, *await sess.peek([w, b])))


async def test_replicas_do_what_one_worker_does_with_a_big_batch() -> None:
    cluster = InProcessCluster(CLUSTER)
    ready, done = asyncio.Barrier(3), []
    try:
        await asyncio.gather(*[replica(cluster, task, ready, done) for task in range(3)])
    finally:
        await cluster.close()
    w, b = await big_batches()
    assert [step for step, *_ in done] == [STEPS] * 3
    for _, found_w, found_b in done:
        np.testing.assert_allclose(found_w, w, rtol=1e-4)
        np.testing.assert_allclose(found_b, b, rtol=1e-4)


async def test_a_replica_that_dies_does_not_hold_the_others() -> None:
    cluster = InProcessCluster(CLUSTER)
    ready, done = asyncio.Barrier(3), []
    try:
        leaves = [-1, -1, 3]
        results = await asyncio.gather(
            *[replica(cluster, task, ready, done, leave) for task, leave in enumerate(leaves)],
            return_exceptions=True,
        )
    finally:
        await cluster.close()
    assert [str(result) for result in results] == ["None", "None", "died"]
    assert [step for step, *_ in done] == [STEPS] * 2
