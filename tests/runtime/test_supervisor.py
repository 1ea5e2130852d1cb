"""The supervisor: sessions, services, stopping. Lines SV-* of the behaviour list."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import latest_checkpoint, load_variable
from asyncmon.errors import AbortedError, DeadlineExceededError, OutOfRangeError
from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.dtypes import int32, int64
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.queues.queues import FIFOQueue
from asyncmon.graph.variables.global_step import create_global_step
from asyncmon.graph.variables.variable import Variable
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import QueueRunner, Supervisor, add_queue_runner, as_program
from asyncmon.summary import Event, FileWriter, SessionLog, scalar, summary_iterator
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@dataclass
class Model:
    graph: Graph
    step: Any
    train: Any


@pytest.fixture
def model() -> Iterator[Model]:
    """A graph, the default one, whose train op counts steps and adds 0.5 to a weight."""
    with Graph().as_default() as graph:
        step = create_global_step()
        weight = Variable(np.float32(0), name="weight")
        with control_dependencies([assign_add(weight, 0.5)]):
            train = assign_add(step, 1)
        scalar("loss", weight)
        yield Model(graph, step, train)


async def events(folder: Path) -> list[list[Event]]:
    """Return the events of each file, without the version line."""
    names = sorted(name for name in os.listdir(folder) if name.startswith("events."))
    return [[event async for event in summary_iterator(folder / name)][1:] for name in names]


def describe(event: Event) -> tuple[Any, ...]:
    log = event.session_log
    if log is not None and log.status:
        names = {
            SessionLog.START: "START",
            SessionLog.STOP: "STOP",
            SessionLog.CHECKPOINT: "CHECKPOINT",
        }
        return (names[log.status], event.step)
    if event.graph_def:
        return ("graph",)
    return (*[value.tag for value in event.summary.value], event.step) if event.summary else ("?",)


async def test_only_a_chief_saves_and_writes_sv_3(model: Model, tmp_path: Path) -> None:
    chief = Supervisor(logdir=tmp_path)
    assert chief.is_chief
    assert chief.save_path == str(tmp_path / "model.ckpt")
    assert (chief.save_summaries_secs, chief.save_model_secs) == (120, 600)
    assert chief.summary_writer is not None
    assert chief.summary_op is not None
    worker = Supervisor(logdir=tmp_path, is_chief=False)
    assert not worker.is_chief
    for name in ("save_path", "summary_writer", "save_summaries_secs", "save_model_secs", "summary_op"):
        assert getattr(worker, name) is None
    assert Supervisor().summary_writer is None
    await chief.stop()


async def test_what_is_not_given_comes_from_the_graph_sv_1_sv_2(model: Model) -> None:
    sv = Supervisor(init_feed_dict={})
    program: Any = as_program(model.graph)
    assert model.graph.finalized
    assert (sv.init_op, sv.ready_op) == (program.init_op(), program.ready_op())
    assert sv.ready_for_local_init_op is program.ready_for_local_init_op()
    assert (sv.saver, sv.summary_op) == (program.saver(), program.summary_op())
    assert sv.global_step is model.step
    assert sv.init_feed_dict == {}
    assert sv.session_manager is not None


async def test_none_is_none_at_all_sv_1(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(
        logdir=tmp_path,
        summary_op=None,
        saver=None,
        global_step=None,
        local_init_op=None,
        ready_op=None,
    )
    assert (sv.summary_op, sv.saver, sv.global_step, sv.ready_op) == (None, None, None, None)
    assert sv.ready_for_local_init_op is None
    async with sv.managed_session() as sess:
        await sess.run(model.train)
    assert await latest_checkpoint(tmp_path) is None


async def test_a_managed_session_is_the_raw_one_and_closed_at_the_end_sv_5(model: Model) -> None:
    sv = Supervisor()
    async with assert_nothing_left_behind(), sv.managed_session() as sess:
        assert await sess.run(model.train) == 1
        assert not sv.should_stop()
        assert sess.graph is model.graph
    assert sv.should_stop()
    with pytest.raises(RuntimeError, match="closed Session"):
        await sess.run(model.train)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("broken"),
        AbortedError("preempted"),
        StopIteration(),
        StopAsyncIteration(),
        KeyboardInterrupt(),
    ],
)  # fmt: skip
async def test_errors_of_the_body_leave_when_all_is_closed_sv_5(
    model: Model, error: BaseException
) -> None:
    sv = Supervisor()
    sessions = []

    async def train() -> None:
        async with sv.managed_session() as sess:
            sessions.append(sess)
            raise error

    async with assert_nothing_left_behind():
        if isinstance(error, StopIteration | StopAsyncIteration):
            # Not an end of the data here; and a coroutine turns the first into an error of its own.
            with pytest.raises((RuntimeError, StopAsyncIteration)):
                await train()
        else:
            with pytest.raises(type(error)) as raised:
                await train()
            assert raised.value is error
    assert sv.should_stop()
    with pytest.raises(RuntimeError, match="closed Session"):
        await sessions[0].run(model.train)


async def test_the_end_of_the_data_is_a_normal_end_sv_5(model: Model) -> None:
    sv = Supervisor()
    async with sv.managed_session():
        raise OutOfRangeError("no more")
    assert sv.should_stop()


async def test_a_last_checkpoint_is_saved_on_request_sv_6(model: Model, tmp_path: Path) -> None:
    for asked, expected in ((False, None), (True, str(tmp_path / "True" / "model.ckpt-3"))):
        sv = Supervisor(logdir=tmp_path / str(asked), save_model_secs=0, save_at_end=asked)
        async with sv.managed_session() as sess:
            for _ in range(3):
                await sess.run(model.train)
            raise OutOfRangeError("no more")
        assert await latest_checkpoint(tmp_path / str(asked)) == expected


async def test_no_last_checkpoint_after_an_error_sv_6(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path, save_model_secs=0, save_at_end=True)

    async def train() -> None:
        async with sv.managed_session() as sess:
            await sess.run(model.train)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await train()
    assert await latest_checkpoint(tmp_path) is None


async def test_an_error_in_a_service_ends_the_loop_and_leaves_sv_7(model: Model) -> None:
    """KC-24: services do not die silently."""
    sv = Supervisor()

    def fail() -> None:
        raise OSError("the disk is gone")

    async def train() -> int:
        async with sv.managed_session() as sess:
            sv.loop(1, fail)
            steps = 0
            while not sv.should_stop():
                steps = int(await sess.run(model.train))
                await asyncio.sleep(0.1)
            return steps

    with pytest.raises(OSError, match="the disk is gone"):
        await train()


async def test_of_several_errors_the_first_leaves_with_the_others_sv_7(model: Model) -> None:
    sv = Supervisor()

    async def fail() -> None:
        raise OSError("first")

    async def train() -> None:
        async with sv.managed_session():
            sv.loop(1, fail)
            await sv.wait_for_stop()
            raise ValueError("second")

    with pytest.raises(OSError, match="first") as raised:
        await train()
    assert any("ValueError: second" in note for note in raised.value.__notes__)


async def test_a_supervisor_can_be_used_again_sv_8(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path, save_at_end=True)
    for last in (2, 4):
        async with sv.managed_session() as sess:
            assert not sv.should_stop()
            for _ in range(2):
                step = await sess.run(model.train)
        assert step == last


async def test_the_services_and_what_they_write_sv_9(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path, save_summaries_secs=10, save_model_secs=25)
    async with assert_nothing_left_behind(tmp_path), sv.managed_session() as sess:
        await asyncio.sleep(0.5)
        for _ in range(40):
            await sess.run(model.train)
            await asyncio.sleep(1)
    (written,) = await events(tmp_path)
    happened = [describe(event) for event in written]
    assert happened[:2] == [("graph",), ("START", 0)]
    assert happened[-1] == ("STOP", 0)
    assert sorted(happened[2:-1], key=lambda what: (what[-1], what)) == [
        ("CHECKPOINT", 0),
        ("loss", 0),
        ("global_step/sec", 10),
        ("loss", 10),
        ("global_step/sec", 20),
        ("loss", 20),
        ("CHECKPOINT", 25),
        ("global_step/sec", 30),
        ("loss", 30),
        ("global_step/sec", 40),
        ("loss", 40),
    ]
    rates = [v.simple_value for e in written if e.summary for v in e.summary.value if "sec" in v.tag]
    assert rates == pytest.approx([1.0] * 4)
    assert (tmp_path / "graph.pbtxt").read_text().startswith("node {")
    assert await load_variable(str(tmp_path), "weight") == 12.5


async def test_start_standard_services_returns_them_in_order_sv_9(model: Model, tmp_path: Path) -> None:
    sv = Supervisor(logdir=tmp_path)
    sess = await sv.prepare_or_wait_for_session(start_standard_services=False)
    services = await sv.start_standard_services(sess)
    assert [type(service).__name__ for service in services or ()] == [
        "SummaryService", "StepCounterService", "CheckpointService",
    ]  # fmt: skip
    await sv.stop()
    await sess.close()
    for off, left in (({"save_summaries_secs": 0}, ["CheckpointService"]), ({"saver": None}, 2)):
        sv = Supervisor(logdir=tmp_path, **off)  # one at a time
        sess = await sv.prepare_or_wait_for_session(start_standard_services=False)
        names = [type(service).__name__ for service in await sv.start_standard_services(sess) or ()]
        assert names == left or len(names) == left
        await sv.stop()
        await sess.close()


async def test_services_need_a_directory_and_a_chief_sv_10(
    model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    sv = Supervisor()
    sess = await sv.prepare_or_wait_for_session(start_standard_services=False)
    assert await sv.start_standard_services(sess) is None
    assert "Standard services need a 'logdir' passed to the SessionManager" in caplog.text
    worker = Supervisor(is_chief=False)
    with pytest.raises(RuntimeError, match="Only chief supervisor can start standard services"):
        await worker.start_standard_services(sess)
    await sess.close()


async def test_stop_leaves_the_session_open_and_may_be_repeated_sv_11(
    model: Model, tmp_path: Path
) -> None:
    sv = Supervisor(logdir=tmp_path, global_step=None, summary_op=None, saver=None)
    sess = await sv.prepare_or_wait_for_session()
    await sv.stop()
    await sv.stop()
    assert await sess.run(model.train) == 1
    await sess.close()
    (written,) = await events(tmp_path)
    assert [describe(event) for event in written] == [("graph",), ("STOP", 0)]


async def test_tasks_that_ignore_their_cancellation_are_named_sv_11(model: Model) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    for ignore in (False, True):
        sv = Supervisor(stop_grace_secs=1)
        sess = await sv.prepare_or_wait_for_session()
        task = asyncio.create_task(stubborn(), name="stubborn")
        if ignore:
            await sv.stop([task], ignore_live_tasks=True)
        else:
            with pytest.raises(RuntimeError, match="stopped with threads still running: stubborn"):
                await sv.stop([task])
        await sess.close()
    release.set()
    await wait_all_tasks_blocked()


async def test_stopping_forwards_to_the_coordinator_sv_12(model: Model) -> None:
    sv = Supervisor()
    async with sv.managed_session():
        waiting = asyncio.create_task(sv.wait_for_stop())
        with sv.stop_on_exception():
            raise OutOfRangeError("no more")
        assert sv.should_stop()
        await waiting
        sv.request_stop(reason="again")
    with pytest.raises(ValueError, match="too late"):
        sv.request_stop(ValueError("too late"))


async def test_a_loop_calls_its_target_by_time_until_the_stop_sv_13(model: Model) -> None:
    sv = Supervisor()
    calls: list[Any] = []

    async def note(*args: Any, **kwargs: Any) -> None:
        calls.append((asyncio.get_running_loop().time(), args, kwargs))

    async with sv.managed_session():
        looper = sv.loop(60, note, (1,), {"key": 2})
        assert looper.task is not None
        await asyncio.sleep(130)
    assert calls == [(60.0 * n, (1,), {"key": 2}) for n in range(3)]


async def test_summary_computed_sv_14(model: Model, tmp_path: Path) -> None:
    summary = as_program().summary_op()
    sv = Supervisor(logdir=tmp_path, summary_op=None, save_summaries_secs=0, saver=None)
    async with sv.managed_session() as sess:
        await sess.run(model.train)
        await sv.summary_computed(sess, await sess.run(summary))
        await sv.summary_computed(sess, await sess.run(summary), global_step=7)
        with pytest.raises(TypeError):
            await sv.summary_computed(sess, 3)
    (written,) = await events(tmp_path)
    assert [describe(event) for event in written if event.summary.value] == [("loss", 1), ("loss", 7)]
    with pytest.raises(RuntimeError, match="requires a summary writer"):
        await Supervisor(summary_op=None, saver=None).summary_computed(None, b"")  # type: ignore[arg-type]  # refused


async def test_queue_runners_are_started_and_the_data_ends_sv_15() -> None:
    with Graph().as_default():
        queue = FIFOQueue(2, [int32], shapes=[[]])
        source = FIFOQueue(9, [int32], shapes=[[]])
        fill = [source.enqueue_many([[1, 2, 3, 4]]), source.close()]
        add_queue_runner(QueueRunner(queue, [queue.enqueue(source.dequeue())]))
        dequeue = queue.dequeue()
        sv = Supervisor()
    got = []
    async with assert_nothing_left_behind(), sv.managed_session() as sess:
        for op in fill:
            await sess.run(op)
        while not sv.should_stop():
            got.append(int(await sess.run(dequeue)))
    assert got == [1, 2, 3, 4]


async def test_given_queue_runners_are_started_instead_sv_15(model: Model) -> None:
    with Graph().as_default():
        queue = FIFOQueue(2, [int32], shapes=[[]], name="q")
        size = queue.size()
        runner = QueueRunner(queue, [queue.enqueue(1)])
        sv = Supervisor()
    sess = await sv.prepare_or_wait_for_session()
    assert [task.get_name() for task in sv.start_queue_runners(sess, [runner])] == [
        "QueueRunnerTask-q-q_enqueue",
        "QueueRunnerTask-q-close_on_stop",
    ]
    await wait_all_tasks_blocked()
    assert await sess.run(size) == 2
    await sv.stop()
    await sess.close()


async def test_what_is_logged_sv_17(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    sv = Supervisor(logdir=tmp_path, save_summaries_secs=10)
    async with sv.managed_session() as sess:
        await asyncio.sleep(1)
        await sess.run(model.train)
        await asyncio.sleep(10)
    for line in (
        "Starting standard services.",
        "Starting queue runners.",
        "Recording summary at step 0.",
        "Recording summary at step 1.",
        f"Saving checkpoint to path {tmp_path}/model.ckpt",
        "global_step/sec: 0.1",
    ):
        assert line in caplog.messages


async def test_a_checkpoint_is_of_one_moment_while_steps_continue_sv_18(
    model: Model, tmp_path: Path
) -> None:
    """AX-11: the event has the step of the files, and all variables are of that step."""
    sv = Supervisor(logdir=tmp_path, save_model_secs=0.01, save_summaries_secs=0)
    async with sv.managed_session() as sess:
        for _ in range(200):
            await sess.run(model.train)
            await asyncio.sleep(0.001)
    logs = [(event.step, event.session_log) for event in (await events(tmp_path))[0]]
    saved = [
        (step, log.checkpoint_path) for step, log in logs if log and log.status == SessionLog.CHECKPOINT
    ]
    assert len(saved) > 3
    for step, path in saved:
        assert path.endswith(f"model.ckpt-{step}")
    for step, path in saved[-5:]:  # the kept ones
        assert await load_variable(path, "weight") == 0.5 * step


async def test_a_writer_of_ones_own_sv_19(model: Model, tmp_path: Path) -> None:
    summary = as_program().summary_op()
    sv = Supervisor(logdir=tmp_path, summary_writer=None)
    async with sv.managed_session() as sess:
        await sess.run(model.train)
    assert await latest_checkpoint(tmp_path) is not None
    assert await events(tmp_path) == []
    writer = FileWriter(tmp_path / "own")
    sv = Supervisor(summary_writer=writer, summary_op=None)
    assert sv.summary_writer is writer
    for _ in range(2):
        async with sv.managed_session() as sess:
            await sv.summary_computed(sess, await sess.run(summary))
    written = await events(tmp_path / "own")
    assert [[describe(event) for event in file if event.summary.value] for file in written] == [
        [("loss", 0)]
    ] * 2


async def test_without_a_global_step_summaries_have_no_step_sv_17(tmp_path: Path) -> None:
    with Graph().as_default():
        weight = Variable(np.float32(3), name="weight")
        scalar("loss", weight)
        sv = Supervisor(logdir=tmp_path, global_step=None, save_summaries_secs=10, saver=None)
    async with sv.managed_session():
        await asyncio.sleep(11)
    (written,) = await events(tmp_path)
    found = [describe(event) for event in written if event.summary.value]
    assert found == [("loss", 0)] * 2


@pytest.mark.parametrize(("close", "files"), [(True, 2), (False, 1)])
async def test_the_event_file_may_stay_open_sv_20(
    model: Model, tmp_path: Path, close: bool, files: int
) -> None:
    sv = Supervisor(logdir=tmp_path, saver=None)
    for _ in range(2):
        async with sv.managed_session(close_summary_writer=close) as sess:
            await sess.run(model.train)
        await asyncio.sleep(2)
    if not close:
        await sv.summary_writer.flush()
        (found,) = await events(tmp_path)
        assert SessionLog.STOP not in [event.session_log.status for event in found]
        await sv.stop()
    assert len(await events(tmp_path)) == files


async def test_a_session_that_cannot_be_prepared_sv_22(model: Model, tmp_path: Path) -> None:
    def fail(_sess: Any) -> None:
        raise OSError("no data")

    sv = Supervisor(logdir=tmp_path, init_fn=fail)
    async with assert_nothing_left_behind():
        with pytest.raises(OSError, match="no data"):
            async with sv.managed_session():
                pytest.fail("the body must not run")
    assert sv.should_stop()


async def test_services_that_cannot_be_started_sv_22(model: Model, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    sv = Supervisor(logdir=tmp_path / "file" / "below", saver=None)
    async with assert_nothing_left_behind():
        with pytest.raises(OSError, match="below"):
            async with sv.managed_session():
                pytest.fail("the body must not run")


async def test_others_wait_until_the_chief_is_ready_sv_23(model: Model) -> None:
    sv = Supervisor(is_chief=False, recovery_wait_secs=1)
    with pytest.raises(DeadlineExceededError, match="Session was not ready after waiting 5 secs"):
        await sv.prepare_or_wait_for_session(max_wait_secs=5)


async def test_a_summary_that_takes_an_element_out_of_a_queue_is_run_in_its_turn(
    tmp_path: Path,
) -> None:
    with Graph().as_default():
        step = create_global_step()
        queue = FIFOQueue(9, [int64], shapes=[[]])
        fill = queue.enqueue_many([[5, 6, 7]])
        scalar("element", queue.dequeue())
        train = assign_add(step, 1)
        sv = Supervisor(logdir=tmp_path, save_summaries_secs=10, saver=None)
    async with sv.managed_session() as sess:
        await sess.run(fill)
        for _ in range(15):
            await sess.run(train)
            await asyncio.sleep(1)
    values = [v.simple_value for e in (await events(tmp_path))[0] if e.summary for v in e.summary.value]
    assert [value for value in values if value >= 5] == [5, 6]


async def test_programs_that_are_no_graph_have_services_too(tmp_path: Path) -> None:
    async def train(state: Any) -> None:
        state["weight"] += 1

    program = FunctionProgram(state={"weight": np.float32(0)}, steps={"train": train})
    sv = Supervisor(program, logdir=tmp_path, save_summaries_secs=10, save_model_secs=10)
    async with sv.managed_session() as sess:
        await asyncio.sleep(0.5)
        for _ in range(15):
            await sess.run("train")
            await asyncio.sleep(1)
    (written,) = await events(tmp_path)
    assert [describe(event) for event in written] == [
        ("START", 0),
        ("CHECKPOINT", 0),
        ("global_step/sec", 10),
        ("CHECKPOINT", 10),
        ("STOP", 0),
    ]
    assert await load_variable(str(tmp_path), "weight") == 10


async def test_the_older_names_of_the_original_are_the_same_methods_sv_1() -> None:
    for old, new in {
        "Loop": "loop",
        "PrepareSession": "prepare_or_wait_for_session",
        "RequestStop": "request_stop",
        "ShouldStop": "should_stop",
        "StartQueueRunners": "start_queue_runners",
        "StartStandardServices": "start_standard_services",
        "Stop": "stop",
        "StopOnException": "stop_on_exception",
        "SummaryComputed": "summary_computed",
        "WaitForStop": "wait_for_stop",
    }.items():
        assert getattr(Supervisor, old) is getattr(Supervisor, new)


async def test_an_empty_logdir_is_none_sv_1(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sv = Supervisor(logdir="")
    assert sv.save_path is None
    assert sv.summary_writer is None
    async with sv.managed_session() as sess:
        await sess.run(model.train)
        looper = sv.Loop(60, asyncio.sleep, (0,))
        await sv.Stop(threads=[looper], ignore_live_threads=True)
    assert os.listdir(tmp_path) == []
