"""Synchronous replicas in a simulated cluster: a worker is killed with a token in its hand."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.system import clock
from asyncmon.testing import simulate
from asyncmon.testing.simulation import at, kill, suspend

CLUSTER = {"ps": ["ps0:1"], "worker": ["chief:1", "worker:1"]}
STEPS = 60


def config() -> am.SessionConfig:
    made = am.SessionConfig()
    made.rpc_options.token = "secret"
    made.rpc_options.timeout_secs = 10
    return made


async def serve() -> None:
    async with am.Server(CLUSTER, "ps", 0, config=config()) as server:
        await server.join()


class Work(am.SessionRunHook):
    """Compute for a while, after the token was taken. Note the times of the steps."""

    def __init__(self, first_secs: float) -> None:
        self.secs = first_secs
        self.times: list[float] = []

    async def before_run(self, run_context: am.SessionRunContext) -> None:
        await asyncio.sleep(self.secs)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.secs = 0.1
        self.times.append(clock.monotonic())


async def train(task: int, first_secs: float, steps: int = 1000) -> list[float]:
    work = Work(first_secs)
    async with am.Server(CLUSTER, "worker", task, config=config()) as server:
        with g.device(
            am.replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
        ):
            step = am.get_or_create_global_step()
            w = g.get_variable("w", initializer=0.0)
            optimizer = am.SyncReplicasOptimizer(g.train.GradientDescentOptimizer(0.1), 2)
            train_op = optimizer.minimize(g.square(w - 1.0), global_step=step)
        hooks = [optimizer.make_session_run_hook(task == 0), work, am.StopAtStepHook(last_step=STEPS)]
        async with am.MonitoredTrainingSession(
            server.target, task == 0, hooks=hooks, config=config(), log_step_count_steps=None
        ) as sess:
            while not sess.should_stop() and len(work.times) < steps:
                await sess.run(train_op)
    return work.times


@pytest.mark.parametrize("first_secs", [0.1, 5.0], ids=["later", "in the first step"])
@pytest.mark.parametrize(
    ("fault", "secs"),
    [
        (kill("worker", restart_secs=4), 8),
        (kill("worker", restart_secs=60), 8),
        (suspend("worker", 40), 17),  # its connection stays, and its last request waits for 10 s
    ],
    ids=["restarted", "gone", "suspended"],
)
def test_the_token_of_a_lost_worker_is_released(fault: Any, secs: float, first_secs: float) -> None:
    report = simulate(
        {"chief": partial(train, 0, 0.1), "worker": partial(train, 1, first_secs)},
        [at(3.03, fault)],
        services={"ps": serve},
    )
    times = report.results["chief"]
    gaps = [after - before for before, after in pairwise([min(3.03, times[0]), *times])]
    assert max(gaps) < secs, times


def test_a_worker_that_leaves_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    report = simulate(
        {"chief": partial(train, 0, 0.1), "worker": partial(train, 1, 0.1, 20)},
        services={"ps": serve},
    )
    assert len(report.results["worker"]) == 20
    assert max(after - before for before, after in pairwise(report.results["chief"])) < 0.5
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
