"""The run of a cluster: its members, whether it has stopped, and the variables it keeps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.cluster_run import RunRecord
from asyncmon.distributed.remote_run import RemoteRun
from asyncmon.distributed.wire import Decoder, Message
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.testing import wait_all_tasks_blocked
from tests.distributed.in_process import InProcessCluster
from tests.distributed.test_roles import CLUSTER, add, session, work

ENOUGH = Stop(Cause.CLUSTER, "enough", "chief", preempted=True)
LAST_STEP = Stop(Cause.CLUSTER, "the last step")

pytestmark = pytest.mark.asyncio


class Record:
    """A record with sessions of several tasks."""

    def __init__(self) -> None:
        self.record = RunRecord()
        self.step: int | None = None

    def session(self, task: str = "", program: graph.Graph | None = None) -> RemoteRun:
        async def ask(**request: Any) -> dict[str, Any]:
            request["task"] = task
            return await self.record.answer(lambda: self.step, request, run)

        run = RemoteRun(ask, program or graph.Graph())
        return run

    async def joined(
        self,
        name: str,
        task: str = "",
        directory: str = "runs",
        program: graph.Graph | None = None,
    ) -> RemoteRun:
        run = self.session(task, program)
        is_chief = name == "chief"
        if is_chief:
            await run.begin(directory)
            await run.restore()
            await run.restored(None, 0)
        assert await run.join(name, is_chief) is None
        return run

    async def end(self, run: RemoteRun, name: str) -> None:
        await run.leave(name)
        self.record.closed(run)


async def stop_of(run: RemoteRun, name: str) -> Any:
    return (await run.watch(name, 0.0))["stop"]


@pytest.mark.virtual_time
async def test_a_session_that_returns_late_receives_the_stop_of_its_run() -> None:
    at = Record()
    chief, worker = await at.joined("chief"), await at.joined("worker")
    await chief.stop(ENOUGH)
    await at.end(chief, "chief")
    await asyncio.sleep(3600.0)
    assert await stop_of(worker, "worker") == ENOUGH
    await at.joined("chief")  # of another run
    assert await stop_of(worker, "worker") == ENOUGH
    again = at.session()
    again.continue_from(worker)
    assert await again.join("worker", is_chief=False) == ENOUGH


@pytest.mark.virtual_time
async def test_a_session_whose_connection_ends_is_not_waited_for() -> None:
    at = Record()
    chief, worker = await at.joined("chief"), await at.joined("worker")
    waiting = asyncio.create_task(chief.watch("chief", 600.0, others=1))
    await asyncio.sleep(300.0)
    assert not waiting.done()  # though the worker has sent nothing for so long
    at.record.disconnected(worker)
    assert (await waiting)["others"] == []
    assert await stop_of(worker, "worker") is None  # it returns
    assert (await chief.watch("chief", 0.0))["others"] == ["worker"]


async def test_a_new_chief_begins_a_run_and_members_of_a_run_without_a_stop_continue_in_it() -> None:
    at = Record()
    chief, worker = await at.joined("chief"), await at.joined("worker")
    await at.end(chief, "chief")
    assert await stop_of(worker, "worker") is None
    other = await at.joined("chief")
    assert await stop_of(worker, "worker") is None
    await other.stop(ENOUGH)
    assert await stop_of(worker, "worker") == ENOUGH


async def test_a_late_worker_of_a_stopped_run_does_not_train_and_one_of_the_next_job_does() -> None:
    at = Record()
    chief = await at.joined("chief", "/job:worker/task:0")
    first = await at.joined("first", "/job:worker/task:1")
    await first.stop(ENOUGH)
    await at.end(first, "first")
    await at.end(chief, "chief")
    assert await at.session("/job:worker/task:2").join("late", is_chief=False) == ENOUGH
    assert await at.session("/job:worker/task:1").join("next", is_chief=False) is None


async def test_a_worker_of_a_session_at_a_server_trains_after_a_clean_end_as_in_tf1() -> None:
    at = Record()
    chief = await at.joined("chief")
    await chief.stop(ENOUGH)
    assert await at.session().join("late", is_chief=False) == ENOUGH
    await at.end(chief, "chief")
    assert await at.session().join("evaluation", is_chief=False) is None


@pytest.mark.parametrize(
    ("directory", "is_live"), [("runs", True), ("others", False)], ids=["the same", "another"]
)
async def test_a_chief_that_is_started_again_finds_live_variables_of_its_directory(
    directory: str, is_live: bool
) -> None:
    at = Record()
    at.record.closed(await at.joined("chief"))
    assert await at.session().begin(directory) is is_live


async def test_variables_are_not_live_after_an_end_or_half_a_restore() -> None:
    at = Record()
    first = at.session()
    assert not await first.begin("runs")
    at.record.closed(first)
    chief = await at.joined("chief")
    again = at.session()
    again.continue_from(chief)
    assert await again.begin("runs")
    assert await again.ready()
    await again.restore()
    assert not await at.session().ready()  # workers wait
    at.record.closed(chief)
    at.record.closed(again)
    third = at.session()
    assert not await third.begin("runs")
    await third.restored(None, 3)
    assert await third.ready()
    at.record.closed(third)
    chief = at.session()
    assert await chief.begin("runs")
    await chief.join("chief", is_chief=True)
    await at.end(chief, "chief")
    assert not await at.session().begin("runs")


async def test_a_chief_without_checkpoints_keeps_variables_that_others_train() -> None:
    at = Record()
    at.record.closed(await at.joined("chief", directory=""))
    alone = at.session()
    assert not await alone.begin("")
    at.record.closed(alone)
    await at.joined("worker")
    assert await at.session().begin("")


async def test_a_chief_whose_run_was_replaced_by_another_chief_is_refused() -> None:
    at = Record()
    chief = await at.joined("chief")
    await chief.stop(ENOUGH)
    at.record.closed(chief)
    await at.joined("chief")
    with pytest.raises(errors.FailedPreconditionError, match="another chief has begun a run"):
        await chief.begin("runs")


async def test_a_chief_that_missed_the_stop_receives_it_though_a_worker_has_begun_a_run() -> None:
    at = Record()
    chief = await at.joined("chief", "/job:worker/task:0")
    worker = await at.joined("worker", "/job:worker/task:1")
    await worker.stop(ENOUGH)
    await at.end(worker, "worker")
    assert await at.session("/job:worker/task:1").join("again", is_chief=False) is None
    assert await chief.begin("runs")
    assert await chief.join("chief", is_chief=True) == ENOUGH


async def test_a_stop_at_a_step_that_a_restore_took_back_comes_when_it_is_reached_again() -> None:
    at = Record()
    chief, worker = await at.joined("chief"), await at.joined("worker")
    at.step = 250
    await worker.stop(LAST_STEP, 300)  # set back to 250 before
    assert await stop_of(chief, "chief") is None
    at.step = 300
    assert await stop_of(chief, "chief") == LAST_STEP
    at.step = 200
    await chief.restored(300, 200)  # and after
    assert await stop_of(chief, "chief") is None
    at.step = 300
    assert await stop_of(worker, "worker") == LAST_STEP


async def test_a_stop_that_was_put_off_is_of_its_run_only() -> None:
    at = Record()
    chief = await at.joined("chief")
    at.step = 250
    await chief.stop(LAST_STEP, 300)
    await at.end(chief, "chief")
    other = await at.joined("chief")
    at.step = 300
    assert await stop_of(other, "chief") is None


@pytest.mark.parametrize(
    "request_",
    [
        {}, {"method": "jump"}, {"method": "begin", "directory": 3},
        {"method": "join", "name": [], "task": "", "is_chief": True, "number": None},
        {"method": "watch", "name": "x", "number": 3}, {"method": "watch", "wait": -1},
    ],
)  # fmt: skip
async def test_a_malformed_request_is_an_invalid_argument(request_: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"malformed|no method 'jump'"):
        await RunRecord().answer(lambda: None, request_, None)


async def test_session_of_no_task_is_refused() -> None:
    for task in ("ps", "/job:ps/task:x"):
        request_ = {"method": "join", "name": "a", "task": task}
        with pytest.raises(errors.InvalidArgumentError, match=f"^'{task}' is no task: "):
            await RunRecord().answer(lambda: None, request_, None)


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    cluster = InProcessCluster(CLUSTER)
    yield cluster
    await cluster.close()


class Crash:
    """Ends a session like a crash, at a number of steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    async def __call__(self) -> None:
        self.left -= 1
        if not self.left:
            raise ValueError("crash")


async def restarted_chief(
    cluster: InProcessCluster,
    directory: Path,
    between: Callable[[], Awaitable[None]] | None = None,
    **options: Any,
) -> list[int]:
    """Crash a chief at step 2, let a worker train to step 30, start the chief; return its steps."""
    turn, ended = asyncio.Event(), asyncio.Event()
    reached = 0

    async def step() -> None:
        nonlocal reached
        reached += 1
        if reached == 28:
            turn.set()
            await ended.wait()

    args: dict[str, Any] = {"checkpoint_dir": str(directory), "save_checkpoint_steps": 1}
    with pytest.raises(ValueError, match="crash"):
        await work(*session(cluster, 0, add, **args), Crash(2))
    other = asyncio.create_task(work(*session(cluster, 1, add), step))
    await turn.wait()
    if between is not None:
        await between()
    steps: list[int] = []

    class Steps(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: am.SessionRunValues) -> None:
            steps.append(run_values.step or 0)
            if len(steps) == 1:
                ended.set()
                await wait_all_tasks_blocked()

    hooks = [Steps(), am.StopAtStepHook(num_steps=40)]
    await asyncio.wait_for(
        asyncio.gather(work(*session(cluster, 0, add, hooks=hooks, **args, **options)), other), 20
    )
    return steps


@pytest.mark.parametrize(("by_hook", "state"), [(True, "completed"), (False, "stopped")])
async def test_record_of_the_chief_has_the_end_of_the_worker_that_stopped_it(
    cluster: InProcessCluster, tmp_path: Path, by_hook: bool, state: str
) -> None:
    chief = session(cluster, 0, add, checkpoint_dir=str(tmp_path))
    hooks = [am.StopAtStepHook(num_steps=3)] if by_hook else []
    worker = session(cluster, 1, add, hooks=hooks)

    async def stop() -> None:
        await asyncio.sleep(0.05)
        if not by_hook:
            worker[2].request_stop("enough")

    async def wait() -> None:
        await asyncio.sleep(0.05)

    await asyncio.wait_for(asyncio.gather(work(*chief, wait), work(*worker, stop)), 20)
    outcome = chief[2].outcome
    assert (outcome.cause, outcome.state) == ("cluster", state)
    assert await am.run_record(tmp_path) == outcome


async def test_a_restarted_chief_keeps_newer_live_variables(
    cluster: InProcessCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = await restarted_chief(cluster, tmp_path)
    assert steps[0] == 31
    assert not [one for one in caplog.messages if "set back" in one]
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert await saved.get_tensor("v") == await saved.get_tensor("global_step")


async def test_a_chief_restores_as_in_tf1_on_request_and_each_session_logs_it_once(
    cluster: InProcessCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = await restarted_chief(cluster, tmp_path, keep_live_variables=False)
    assert steps[0] == 3
    warnings = [one for one in caplog.messages if "set" in one and "back from step" in one]
    assert len(warnings) == 2, warnings
    assert all("from step 30 to step 2" in one for one in warnings)
    assert all("28 steps" in one for one in warnings)


async def test_a_chief_restores_where_a_server_has_lost_its_variables(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    async def lose() -> None:
        lost = cluster.executors["/job:ps/task:1"]
        cluster.start("/job:ps/task:1")
        await lost.close(errors.CancelledError("restarted"))

    steps = await restarted_chief(cluster, tmp_path, lose)
    assert steps[0] == 3


async def test_a_run_in_a_new_directory_begins_again_on_old_servers(
    cluster: InProcessCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for name in ("first", "second"):
        args: dict[str, Any] = {"checkpoint_dir": str(tmp_path / name)}
        with pytest.raises(ValueError, match="crash"):
            await work(*session(cluster, 0, add, **args), Crash(5))
    assert "There is no checkpoint: 5 steps are lost by an initialisation." in caplog.messages


async def test_a_restarted_chief_restores_the_states_of_its_hooks(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    class Counts(am.SessionRunHook):
        count = 0

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            self.count += 1

        def state_dict(self) -> dict[str, Any]:
            return {"count": self.count}

        def load_state_dict(self, state: Any) -> None:
            self.count = state["count"]

    args: dict[str, Any] = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 1}
    with pytest.raises(ValueError, match="crash"):
        await work(*session(cluster, 0, add, hooks=[Counts()], **args), Crash(5))
    again = Counts()
    hooks = [again, am.StopAtStepHook(num_steps=3)]
    await work(*session(cluster, 0, add, hooks=hooks, **args))
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert again.count == await saved.get_tensor("global_step") == 8


@pytest.mark.virtual_time
async def test_a_chief_recovers_during_a_snapshot_and_ends_well(
    cluster: InProcessCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reached = asyncio.Event()

    class Fails(am.SessionRunHook):
        failed = False

        async def before_run(self, run_context: Any) -> None:
            if not self.failed and run_context.session.global_step == 5:
                self.failed = True
                await reached.wait()
                raise errors.UnavailableError("cut off")

    class Delays(am.SessionRunHook):
        """Answers a request of the snapshot at step 5 when the session is closed."""

        async def before_run(self, run_context: Any) -> None:
            if run_context.session.global_step != 4:
                return
            for channel in cluster.channels["/job:ps/task:1"]:
                self._delay(channel)

        def _delay(self, channel: Any) -> None:
            deliver, close, closed = channel.call, channel.close, asyncio.Event()

            async def delayed(request: Message, timeout: float) -> Any:
                if Decoder(request).content.get("job") == "snapshot" and not reached.is_set():
                    reached.set()
                    await closed.wait()
                return await deliver(request, timeout)

            async def close_after() -> None:
                await close()
                closed.set()

            channel.call, channel.close = delayed, close_after

    with graph.Graph().as_default() as own:
        with graph.device(am.replica_device_setter(cluster=CLUSTER)):
            step = am.get_or_create_global_step()
            variables = [graph.get_variable(name, initializer=0.0) for name in ("u", "v", "w")]
        op = graph.group(step.assign_add(1), *[one.assign_add(1.0) for one in variables])
        cluster.session("worker", 0)
        hooks = [Delays(), Fails(), am.StopAtStepHook(last_step=9)]
        monitored = am.MonitoredTrainingSession(
            cluster.target, checkpoint_dir=str(tmp_path), hooks=hooks, save_checkpoint_steps=5
        )
    await asyncio.wait_for(work(own, op, monitored), 20)
    assert reached.is_set()
    saved = await am.load_checkpoint(await am.latest_checkpoint(str(tmp_path)))
    assert await saved.get_tensor("w") == await saved.get_tensor("global_step")
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def cut_off(
    cluster: InProcessCluster, error: type[Exception], method: str, name: str = "", secs: float = inf
) -> list[str]:
    """Let requests of a method to the record fail for some time; return the failed ones."""
    failed: list[str] = []
    end = asyncio.get_running_loop().time() + secs

    def cut(channel: Any) -> None:
        deliver = channel.call

        async def call(message: Message, timeout: float) -> Any:
            content = Decoder(message).content
            request = content["request"] if content["do"] == "cluster_run" else {"method": None}
            is_cut = request["method"] == method and request.get("name", "").startswith(name)
            if is_cut and asyncio.get_running_loop().time() < end:
                failed.append(method)
                raise error("cut off")
            return await deliver(message, timeout)

        channel.call = call

    for channels in cluster.channels.values():
        for channel in channels:
            cut(channel)
    return failed


CUT_OFF = pytest.mark.parametrize("error", [errors.UnavailableError, errors.AbortedError])


@pytest.mark.virtual_time
@CUT_OFF
async def test_a_session_that_was_cut_off_from_the_record_for_a_while_receives_the_stop(
    cluster: InProcessCluster, error: type[Exception]
) -> None:
    async def pause() -> None:
        await asyncio.sleep(5.0)

    chief, worker = session(cluster, 0, add), session(cluster, 1, add)
    both = asyncio.gather(work(*chief, pause), work(*worker, pause))
    await asyncio.sleep(12.0)
    failed = cut_off(cluster, error, "watch", "worker", 15.0)
    await asyncio.sleep(40.0)
    assert failed
    assert worker[2].statistics().recoveries == 0
    chief[2].request_stop("enough")
    assert await asyncio.wait_for(both, 20) == ["enough", "enough"]


@pytest.mark.virtual_time
@CUT_OFF
@pytest.mark.parametrize("method", ["stop", "leave"])
async def test_a_session_that_is_cut_off_from_the_record_at_its_end_saves_and_ends_well(
    cluster: InProcessCluster,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
    method: str,
) -> None:
    own, op, monitored = session(cluster, 0, add, checkpoint_dir=str(tmp_path))
    with own.as_default():
        async with monitored as sess:
            await sess.run(op)
            sess.request_stop("enough")
            failed = cut_off(cluster, error, method)
    assert failed
    assert "The other sessions of the cluster cannot be notified of the end: " in caplog.text
    assert await am.latest_checkpoint(str(tmp_path)) == f"{tmp_path}/model.ckpt-1"
