"""Which sessions may take part in a run: one chief, and members with its program and cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.fingerprint import Fingerprint, tasks_of, variables_of
from tests.distributed.in_process import InProcessCluster
from tests.distributed.test_cluster_run import ENOUGH, Record
from tests.distributed.test_roles import add, session, work

pytestmark = pytest.mark.asyncio

REFUSED = errors.FailedPreconditionError


def program(**variables: Any) -> graph.Graph:
    with graph.Graph().as_default() as made:
        for name, initializer in variables.items():
            graph.get_variable(name, initializer=initializer)
    return made


async def test_a_second_chief_of_another_directory_is_refused_with_both() -> None:
    at = Record()
    chief, worker = await at.joined("chief", directory="runs/a"), await at.joined("worker")
    second = at.session()
    with pytest.raises(REFUSED, match=r"'runs/b' cannot begin a run: the chief .*'runs/a' trains"):
        await second.begin("runs/b")
    at.record.disconnected(chief)
    with pytest.raises(REFUSED, match="worker train in the run of checkpoint directory 'runs/a'"):
        await second.begin("runs/b")
    at.record.disconnected(worker)
    assert not await second.begin("runs/b")


@pytest.mark.virtual_time
async def test_a_chief_waits_for_the_end_of_one_of_its_directory() -> None:
    at = Record()
    first = await at.joined("chief")
    again = at.session()
    begun = asyncio.create_task(again.begin("runs"))
    await asyncio.sleep(20)
    assert not begun.done()
    at.record.closed(first)
    assert await begun
    with pytest.raises(REFUSED, match="is connected to the same servers for 30 s now"):
        await at.session().begin("runs")


@pytest.mark.virtual_time
async def test_a_chief_waits_for_one_of_another_directory_that_ends() -> None:
    at = Record()
    first = await at.joined("chief", directory="runs/a")
    await first.stop(ENOUGH)
    begun = asyncio.create_task(at.session().begin("runs/b"))
    await asyncio.sleep(20)  # for which the first one saves
    assert not begun.done()
    await at.end(first, "chief")
    assert not await begun


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"v": 0.0}, "variable 'w' is missing and should be float32"),
        ({"v": 0.0, "w": 0}, r"variable 'w' is int32 \[\] on .* and should be float32"),
        ({"v": 0.0, "w": [0.0]}, r"variable 'w' is float32 \[1\] .* float32 \[\]"),
        ({"v": 0.0, "w": 0.0, "x": 0.0}, "variable 'x' is float32 .* and should be missing"),
    ],
)
async def test_a_member_with_other_variables_is_refused_with_the_difference(
    other: dict[str, Any], difference: str
) -> None:
    at = Record()
    chief = await at.joined("chief", program=program(v=0.0, w=0.0))
    await at.joined("worker", program=program(w=1.0, v=2.0))
    stranger = at.session(program=program(**other))
    with pytest.raises(REFUSED, match=difference):
        await stranger.ready()
    with pytest.raises(REFUSED, match=difference):
        await stranger.join("stranger", is_chief=False)
    at.record.closed(chief)
    with pytest.raises(REFUSED, match=difference):  # the worker still trains
        await at.session(program=program(**other)).begin("runs")


async def test_only_jobs_with_variables_count() -> None:
    with graph.Graph().as_default() as own, graph.device("/job:ps/task:1"):
        graph.get_variable("v", initializer=0.0)

    def of(spec: dict[str, Any]) -> Fingerprint:
        return Fingerprint(tasks_of(am.ClusterSpec(spec)), variables_of(own))

    chief = of({"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]})
    assert not chief.differences(of({"ps": ["a:1", "b:1"], "worker": {7: "elsewhere:1"}}))
    assert chief.differences(of({"ps": ["a:1", "x:1"], "worker": ["c:1", "d:1"]})) == [
        "/job:ps/task:1 is 'x:1' and should be 'b:1'"
    ]
    assert chief.differences(of({"ps": {1: "b:1"}, "worker": ["c:1", "d:1"]})) == [
        "/job:ps/task:0 is missing and should be 'a:1'"
    ]


async def test_variable_of_a_job_without_a_task_is_that_of_its_first_one() -> None:
    def at(device: str) -> Fingerprint:
        with graph.Graph().as_default() as made, graph.device(device):
            graph.get_variable("v", initializer=0.0)
        return Fingerprint(None, variables_of(made))

    assert not at("/job:ps").differences(at("/job:ps/task:0"))
    assert at("/job:ps").differences(at("/job:ps/task:1"))


async def test_a_worker_with_one_of_two_servers_is_refused_before_it_trains() -> None:
    spec = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
    cluster = InProcessCluster(spec)
    trains, enough = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        trains.set()
        await enough.wait()

    chief = asyncio.create_task(work(*session(cluster, 0, add), wait))
    try:
        await trains.wait()
        cluster.spec = am.ClusterSpec({"ps": ["a:1"], "worker": ["c:1", "d:1"]})
        with graph.Graph().as_default() as own:
            with graph.device(am.replica_device_setter(cluster=cluster.spec)):
                step = am.get_or_create_global_step()
                op = graph.group(graph.get_variable("v", initializer=0.0).assign_add(1.0), step)
            cluster.session("worker", 1)
            monitored = am.MonitoredTrainingSession(cluster.target, is_chief=False)
        with pytest.raises(REFUSED, match=r"/job:ps/task:1 is missing.*Start all tasks with the same"):
            await work(own, op, monitored)
    finally:
        chief.cancel()
        await asyncio.gather(chief, return_exceptions=True)
        await cluster.close()
