"""Synchronous replicas in a simulated cluster: a lost worker holds the others up for a short time."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import asyncmon as am
from asyncmon import graph as g
from asyncmon.testing import simulate
from asyncmon.testing.simulation import at, kill
from tests.distributed.simulated_cluster import CLUSTER, Main, Run, config


def worker(task: int, times: list[float]) -> Main:
    async def main() -> None:
        async with am.Server(CLUSTER, "worker", task, config=config()) as server:
            own = f"/job:worker/task:{task}"
            with g.device(am.replica_device_setter(cluster=CLUSTER, worker_device=own)):
                step = am.get_or_create_global_step()
                w = g.get_variable("w", [], initializer=g.zeros_initializer())
                optimizer = am.SyncReplicasOptimizer(g.train.GradientDescentOptimizer(0.1), 3)
                train = optimizer.minimize(g.square(w - 1.0), global_step=step)
            hooks = [optimizer.make_session_run_hook(task == 0), am.StopAtStepHook(last_step=60)]
            async with am.MonitoredTrainingSession(
                server.target, task == 0, "/run", hooks=hooks
            ) as sess:
                while not sess.should_stop():
                    await asyncio.sleep(0.1)
                    await sess.run(train)
                    times.append(asyncio.get_running_loop().time())

    return main


def test_a_worker_that_is_killed_and_returns_holds_up_the_others_for_a_few_seconds() -> None:
    times: list[float] = []
    programs = {f"worker/{task}": worker(task, times) for task in range(3)}
    simulate(
        programs,
        [at(2, kill("worker/2", restart_secs=4))],
        services=Run().services(),
        deadline_secs=200,
    )
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) < 8


def test_a_checkpoint_of_two_servers_does_not_wait_for_synchronous_replicas() -> None:
    times: list[float] = []
    programs = {f"worker/{task}": worker(task, times) for task in range(3)}
    simulate(programs, services=Run().services())
    assert max(after - before for before, after in pairwise(times)) < 2
