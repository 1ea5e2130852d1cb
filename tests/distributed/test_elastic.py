"""Workers that join and leave a run."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import pytest

import asyncmon as am
from asyncmon import errors
from asyncmon import graph as g
from asyncmon.distributed import ClusterSpec
from tests import forked
from tests.distributed.over_grpc import free_port
from tests.simulation import at, kill, simulate, start, terminate

SERVERS = ClusterSpec({"ps": ["ps0:1"], "worker": ["chief:1"]}, elastic=["worker"])


def test_a_cluster_declares_which_jobs_are_elastic() -> None:
    assert SERVERS.elastic == ["worker"]
    assert repr(SERVERS) == (
        "ClusterSpec({'ps': ['ps0:1'], 'worker': ['chief:1']}, elastic=['worker'])"
    )
    for copy in (ClusterSpec(SERVERS), ClusterSpec(SERVERS.as_cluster_def())):
        assert (copy.elastic, copy) == (["worker"], SERVERS)
    assert ClusterSpec(SERVERS, elastic=[]).elastic == ClusterSpec(SERVERS.as_dict()).elastic == []
    with pytest.raises(ValueError, match="has no job 'evaluator'"):
        ClusterSpec(SERVERS, elastic=["evaluator"])


def config() -> am.SessionConfig:
    made = am.SessionConfig()
    made.rpc_options.token = "secret"
    return made


async def serve(cluster: ClusterSpec = SERVERS) -> None:
    async with am.Server(cluster, "ps", 0, config=config()) as server:
        await server.join()


async def train(task: int, name: str, last: int, steps: int = 10_000) -> tuple[int, int]:
    """Train up to a step, or leave after a number of steps; return the step and the own steps."""
    cluster = ClusterSpec({"ps": ["ps0:1"], "worker": {task: f"{name}:1"}})
    async with am.Server(cluster, "worker", task, config=config()) as server:
        own = f"/job:worker/task:{task}"
        with g.device(am.replica_device_setter(cluster=cluster, worker_device=own)):
            step = am.get_or_create_global_step()
            add = g.assign_add(step, 1)
        done = 0
        async with am.MonitoredTrainingSession(
            server.target, task == 0, hooks=[am.StopAtStepHook(last_step=last)], config=config(),
            log_step_count_steps=None, stop_grace_period_secs=30,
        ) as sess:  # fmt: skip
            while not sess.should_stop() and done < steps:
                await asyncio.sleep(0.1)
                reached = int(await sess.run(add))
                done += 1
        return reached, done


def test_workers_with_new_indices_join_and_leave_a_run(caplog: pytest.LogCaptureFixture) -> None:
    programs = {
        "chief": partial(train, 0, "chief", 400),
        "second": partial(train, 1, "second", 400, 20),  # leaves
        "third": partial(train, 7, "third", 400),  # is killed, and replaced by the fourth
        "fourth": partial(train, 3, "fourth", 400),
    }
    events = [
        at(0, kill("third")), at(0, kill("fourth")), at(5, start("third")), at(8, kill("third")),
        at(9, start("fourth")),
    ]  # fmt: skip
    report = simulate(programs, events, services={"ps": serve})
    assert report.results["chief"][0] >= 400
    assert report.results["second"][1] == 20
    assert report.results["fourth"][0] >= 400
    assert report.ends["fourth"] < 30, "others have trained beside the chief"
    assert report.ends["chief"] - report.ends["fourth"] < 3, "lost and late workers are not waited for"
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("elastic", [["worker"], []])
def test_run_continues_if_a_worker_leaves_an_elastic_job_at_a_signal(elastic: list[str]) -> None:
    cluster = ClusterSpec({"ps": ["ps0:1"], "worker": ["chief:1", "second:1"]}, elastic=elastic)
    programs = {name: partial(train, i, name, 400) for i, name in enumerate(["chief", "second"])}
    services = {"ps": partial(serve, cluster)}
    report = simulate(programs, [at(5, terminate("second"))], services=services)
    assert (report.results["chief"][0] >= 400) == bool(elastic)


def test_a_new_index_is_rejected_by_a_run_that_is_not_elastic() -> None:
    fixed = ClusterSpec(SERVERS, elastic=[])

    async def rejected() -> None:
        with pytest.raises(errors.InvalidArgumentError, match=r"/job:worker/task:7 joins .*elastic="):
            await train(7, "third", 400)

    simulate(
        {"chief": lambda: train(0, "chief", 50), "third": rejected},
        services={"ps": lambda: serve(fixed)},
    )


WORKER = """
import asyncio, sys
import asyncmon as am

ps, own = sys.argv[1:]
cluster = {"ps": [ps], "worker": {5: own}}
with am.graph.device(am.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:5")):
    add = am.graph.assign_add(am.get_or_create_global_step(), 1)

async def main():
    async with am.Server(cluster, "worker", 5) as server:
        async with am.MonitoredTrainingSession(server.target, is_chief=False) as sess:
            while not sess.should_stop():
                await sess.run(add)
                print("step", flush=True)
                await asyncio.sleep(0.01)
    print("left:", sess.stop_reason)

asyncio.run(main())
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("is_elastic", [True, False])
async def test_a_signal_to_an_elastic_worker_does_not_stop_the_run(is_elastic: bool) -> None:
    ps, chief, other = (f"localhost:{free_port()}" for _ in range(3))
    cluster = ClusterSpec(
        {"ps": [ps], "worker": {0: chief, 5: other}}, elastic=["worker"] if is_elastic else []
    )
    with g.device(am.replica_device_setter(cluster=cluster)):
        add = g.assign_add(am.get_or_create_global_step(), 1)
    chief_server = am.Server(cluster, "worker", 0)
    session = am.MonitoredTrainingSession(chief_server.target, log_step_count_steps=None)
    async with am.Server(cluster, "ps", 0), chief_server, session as sess:
        worker = forked.Process("-c", WORKER, ps, other)
        await asyncio.to_thread(worker.stdout.readline)
        worker.send_signal(signal.SIGTERM)
        said, _ = await asyncio.to_thread(worker.communicate)
        assert "left: signal SIGTERM" in said
        assert worker.returncode == 0
        if is_elastic:
            for _ in range(20):
                await sess.run(add)
        else:
            async with asyncio.timeout(10):
                while not sess.should_stop():
                    await sess.run(add)
        assert sess.stop_reason == (None if is_elastic else "signal SIGTERM")
