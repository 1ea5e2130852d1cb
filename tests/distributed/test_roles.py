"""Chief and workers: initialisation, waiting, stops, and the order of leaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.graph.session.backend import DirectBackend, register_session_factory
from asyncmon.system import clock
from asyncmon.testing import wait_all_tasks_blocked
from tests.distributed.in_process import InProcessCluster

CLUSTER = {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1", "e:1"]}
pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    cluster = InProcessCluster(CLUSTER)
    yield cluster
    await cluster.close()


def session(cluster: InProcessCluster, task: int, train: Callable[[Any], Any], **args: Any) -> Any:
    """Return a monitored session of a worker, and its train op, in a graph of its own."""
    with graph.Graph().as_default() as own:
        with graph.device(
            am.replica_device_setter(cluster=CLUSTER, worker_device=f"/job:worker/task:{task}")
        ):
            step = am.get_or_create_global_step()
            v = graph.get_variable("v", initializer=0.0)
            op = train([v, step])
        cluster.session("worker", task)
        return own, op, am.MonitoredTrainingSession(cluster.target, task == 0, **args)


def add(parts: Any) -> Any:
    v, step = parts
    return graph.group(v.assign_add(1.0), step.assign_add(1))


async def work(own: Any, op: Any, monitored: Any, pause: Callable[[], Any] | None = None) -> Any:
    with own.as_default():
        async with monitored as sess:
            while not sess.should_stop():
                await sess.run(op)
                await (pause() if pause else asyncio.sleep(0))
        return sess.stop_reason


async def test_a_stop_of_one_reaches_all_and_the_chief_leaves_last(
    cluster: InProcessCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    left = []

    class Leaving(am.SessionRunHook):
        def __init__(self, name: str) -> None:
            self.name = name

        async def cleanup(self, error: BaseException | None) -> None:
            left.append(self.name)

    class StopAfter(am.SessionRunHook):
        steps = 0

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            self.steps += 1
            if self.steps == 20:
                run_context.request_stop("the worker had enough")

    chief = session(cluster, 0, add, checkpoint_dir=str(tmp_path), hooks=[Leaving("chief")])
    others = [
        session(cluster, 1, add, hooks=[StopAfter(), Leaving("worker")]),
        session(cluster, 2, add, hooks=[Leaving("worker")]),
    ]
    reasons = await asyncio.wait_for(asyncio.gather(*[work(*one) for one in (chief, *others)]), 20)
    assert all("the worker had enough" in reason for reason in reasons)
    assert left[-1] == "chief"
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert await saved.get_tensor("v") == await saved.get_tensor("global_step")


async def test_a_chief_that_recovers_keeps_the_steps_of_others_and_receives_their_stop(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    running, ended = asyncio.Event(), asyncio.Event()

    class Breaks(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            if not running.is_set():
                running.set()
                await ended.wait()
                await wait_all_tasks_blocked()  # the chief knows of the stop
                raise errors.UnavailableError("cut off")

    async def other() -> None:
        await running.wait()
        await work(*session(cluster, 1, add, hooks=[am.StopAtStepHook(last_step=40)]))
        ended.set()

    hooks = [Breaks(), am.StopAtStepHook(last_step=40)]
    chief = session(cluster, 0, add, checkpoint_dir=str(tmp_path), hooks=hooks)
    reason, _ = await asyncio.wait_for(asyncio.gather(work(*chief), other()), 20)
    assert "40" in reason
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert await saved.get_tensor("global_step") == 41  # and the interrupted run


async def test_the_end_of_a_workers_data_stops_no_other_worker(cluster: InProcessCluster) -> None:
    steps, ended = 0, asyncio.Event()

    async def end() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            ended.set()
            raise errors.OutOfRangeError("no more")

    chief = session(cluster, 0, add, hooks=[am.StopAtStepHook(last_step=40)])
    other = session(cluster, 1, add)
    found = await asyncio.wait_for(asyncio.gather(work(*chief, ended.wait), work(*other, end)), 20)
    assert "40" in found[0]
    assert steps == 3


async def test_a_worker_waits_for_the_chief_and_joins_in_again(cluster: InProcessCluster) -> None:
    other = asyncio.create_task(work(*session(cluster, 1, add)))
    await wait_all_tasks_blocked()
    assert not other.done()
    chief = asyncio.create_task(work(*session(cluster, 0, add)))
    crashed = False

    async def crash() -> None:
        nonlocal crashed
        crashed = True
        raise ValueError("crash")

    with pytest.raises(ValueError, match="crash"):
        await work(*session(cluster, 2, add), crash)
    assert crashed
    assert not other.done()
    assert not chief.done()
    last = session(cluster, 2, add, hooks=[am.StopAtStepHook(num_steps=30)])
    await asyncio.wait_for(asyncio.gather(work(*last), chief, other), 20)


async def test_a_chief_that_starts_again_restores_and_workers_continue(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    other = asyncio.create_task(work(*session(cluster, 1, add)))
    seen = 0

    async def crash() -> None:
        nonlocal seen
        seen += 1
        if seen == 10:
            raise ValueError("crash")

    options = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 4}
    with pytest.raises(ValueError, match="crash"):
        await work(*session(cluster, 0, add, **options), crash)
    assert not other.done()
    again = session(cluster, 0, add, hooks=[am.StopAtStepHook(num_steps=30)], **options)
    await asyncio.wait_for(asyncio.gather(work(*again), other), 20)


async def test_a_chief_that_finds_no_checkpoint_says_what_it_initialises(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await work(*session(cluster, 0, add, hooks=[am.StopAtStepHook(last_step=3)]))
    assert not caplog.records
    await work(*session(cluster, 0, add, hooks=[am.StopAtStepHook(last_step=3)]))
    assert caplog.messages == ["There is no checkpoint: 3 steps are lost by an initialisation."]


async def test_the_chief_names_those_it_does_not_wait_for(
    cluster: InProcessCluster, caplog: pytest.LogCaptureFixture
) -> None:
    never, joined = asyncio.Event(), asyncio.Event()

    async def stay() -> None:
        joined.set()
        await never.wait()

    chief = session(
        cluster, 0, add, hooks=[am.StopAtStepHook(last_step=20)], stop_grace_period_secs=0.3
    )
    stuck = asyncio.create_task(work(*session(cluster, 1, add), stay))
    await asyncio.wait_for(work(*chief, joined.wait), 20)
    assert "have not ended, and are not waited for: worker" in caplog.text
    never.set()
    await asyncio.wait_for(stuck, 20)


async def test_supervisors_of_a_chief_and_a_worker(cluster: InProcessCluster, tmp_path: Path) -> None:
    async def supervise(task: int, last: int) -> int:
        with graph.Graph().as_default():
            own = f"/job:worker/task:{task}"
            with graph.device(am.replica_device_setter(cluster=CLUSTER, worker_device=own)):
                step = am.get_or_create_global_step()
                v = graph.get_variable("v", initializer=0.0)
                op = add([v, step])
            cluster.session("worker", task)
            sv = am.Supervisor(is_chief=task == 0, logdir=str(tmp_path), recovery_wait_secs=0)
            async with sv.managed_session(cluster.target) as sess:
                while not sv.should_stop() and (reached := int(await sess.run(step))) < last:
                    await sess.run(op)
                    await asyncio.sleep(0)
            return reached

    assert min(await asyncio.wait_for(asyncio.gather(*map(supervise, (1, 0), (30, 60))), 20)) >= 30
    assert await am.latest_checkpoint(str(tmp_path)) is not None


async def test_a_late_worker_waits_for_its_step(cluster: InProcessCluster) -> None:
    began: list[int] = []
    joined = asyncio.Event()

    class Begins(am.SessionRunHook):
        async def after_create_session(self, session: Any, coord: am.Coordinator) -> None:
            joined.set()

        async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
            began.append(run_values.step or 0)

    chief = session(cluster, 0, add, hooks=[am.StopAtStepHook(last_step=200)])
    late = session(cluster, 1, add, hooks=[am.GlobalStepWaiterHook(100), Begins()])
    await asyncio.wait_for(asyncio.gather(work(*chief, joined.wait), work(*late)), 20)
    assert min(began) >= 100


async def test_the_last_checkpoint_has_the_steps_that_others_did_after_the_chiefs_last(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    ended = asyncio.Event()

    async def other() -> None:
        await work(*session(cluster, 1, add, hooks=[am.StopAtStepHook(last_step=50)]))
        ended.set()

    chief = session(cluster, 0, add, checkpoint_dir=str(tmp_path))
    await asyncio.wait_for(asyncio.gather(work(*chief, ended.wait), other()), 20)
    newest = await am.latest_checkpoint(str(tmp_path))
    saved = await am.load_checkpoint(newest)
    step = await saved.get_tensor("global_step")
    assert step >= 50
    assert newest is not None
    assert newest.endswith(f"model.ckpt-{step}")


@pytest.mark.virtual_time
async def test_a_server_that_is_back_after_a_minute_is_used_within_seconds(
    cluster: InProcessCluster,
) -> None:
    def check() -> None:
        if 1.0 < clock.monotonic() < 61.0:
            raise errors.UnavailableError("down")

    class Fails(am.SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            check()

    def make(_target: str, own: graph.Graph, _config: Any) -> DirectBackend:
        check()
        return DirectBackend(own, cluster.executors["/job:ps/task:0"], shares=True)

    register_session_factory("sometimes", make)
    add = am.get_or_create_global_step().assign_add(1)
    async with am.MonitoredTrainingSession("sometimes", hooks=[Fails()]) as sess:
        await sess.run(add)
        await asyncio.sleep(2.0)
        assert await sess.run(add) == 1  # there is no checkpoint
        assert 61.0 <= clock.monotonic() <= 63.0
