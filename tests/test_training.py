"""MonitoredTrainingSession: the usual hooks, switched on and off, over graphs and functions."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import Saver, get_checkpoint_state, latest_checkpoint
from asyncmon.errors import AbortedError, NotFoundError
from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import constant, identity
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.variables.global_step import create_global_step
from asyncmon.graph.variables.variable import Variable
from asyncmon.hooks import StopAtStepHook
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import MonitoredSession, Scaffold
from asyncmon.summary import find_event_files, read_scalars, scalar, summary_iterator
from asyncmon.testing import RecordingHook, assert_nothing_left_behind, wait_all_tasks_blocked
from asyncmon.training import MonitoredTrainingSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def graph_program(*, steps: bool = True) -> tuple[Any, Any]:
    with Graph().as_default() as graph:
        weight = Variable(np.float32(0), name="weight")
        counted = [assign_add(create_global_step(), 1)] if steps else []
        with control_dependencies(counted):
            train = identity(assign_add(weight, 1.0))
        scalar("weight", weight)
    return graph, train


def function_program() -> tuple[Any, Any]:
    program = FunctionProgram(state={"weight": 0.0})

    @program.step
    async def train(state: dict[str, Any]) -> Any:
        state["weight"] += 1
        return state["weight"]

    return program, "train"


PROGRAMS = {"graph": graph_program, "functions": function_program}


@pytest.fixture(params=list(PROGRAMS))
def made(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return PROGRAMS[request.param]()


def hooks_of(session: Any) -> list[str]:
    return [type(one.hook).__name__ for one in session.statistics().hooks]


ALL = ["LoggersHook", "StepCounterHook", "SummarySaverHook", "CheckpointSaverHook"]


async def train(sess: Any, op: Any, steps: int) -> None:
    for _ in range(steps):
        await sess.run(op)


async def test_the_defaults_of_a_chief_with_a_directory_mt_1_mt_2(
    made: tuple[Any, Any], tmp_path: Path
) -> None:
    program, _ = made
    session = MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program)
    assert isinstance(session, MonitoredSession)
    assert hooks_of(session) == ALL


async def test_guards_come_first_savers_last_and_the_users_between_mt_3(tmp_path: Path) -> None:
    """MT-3: the checkpoint hook stands behind the user's, so a NaN is seen before it is saved."""
    program, _ = graph_program()
    session = MonitoredTrainingSession(
        checkpoint_dir=tmp_path,
        program=program,
        hooks=[RecordingHook("user"), RecordingHook("guard", priority=-100)],
        chief_only_hooks=[RecordingHook("chief")],
    )
    assert hooks_of(session)[-1] == "CheckpointSaverHook"
    names = [getattr(one.hook, "name", None) for one in session.statistics().hooks]
    assert [name for name in names if name in ("user", "guard", "chief")] == ["guard", "chief", "user"]


async def test_without_a_directory_there_are_no_hooks_and_no_step_is_needed_mt_4() -> None:
    program, op = graph_program(steps=False)
    session = MonitoredTrainingSession(program=program)
    assert hooks_of(session) == []
    async with session as sess:
        assert await sess.run(op) == 1.0
        assert sess.global_step is None


@pytest.mark.parametrize(
    ("kwargs", "names"),
    [
        (
            {"save_checkpoint_secs": 5, "save_checkpoint_steps": 5},
            "save_checkpoint_secs=5 and save_checkpoint_steps=5",
        ),
        (
            {"save_summaries_secs": 5, "save_summaries_steps": 5},
            "save_summaries_secs=5 and save_summaries_steps=5",
        ),
    ],
)
async def test_seconds_and_steps_together_are_refused_mt_5(
    kwargs: dict[str, Any], names: str, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=f"Can not provide both every_secs and every_steps: got {names}"
    ):
        MonitoredTrainingSession(checkpoint_dir=tmp_path, program=graph_program()[0], **kwargs)


@pytest.mark.parametrize(
    ("kwargs", "missing"),
    [
        ({"save_checkpoint_steps": 7}, []),  # MT-6: the other default is dropped
        ({"save_checkpoint_secs": 7}, []),
        ({"save_summaries_secs": 7}, []),  # MT-7
        ({"save_checkpoint_steps": None}, []),  # MT-8: None leaves the default of the other
        ({"save_summaries_secs": None}, []),
        ({"save_checkpoint_secs": None}, ["CheckpointSaverHook"]),
        ({"save_summaries_steps": None}, ["SummarySaverHook"]),
        ({"save_checkpoint_secs": None, "save_checkpoint_steps": None}, ["CheckpointSaverHook"]),
        ({"save_checkpoint_secs": 0}, ["CheckpointSaverHook"]),
        ({"save_checkpoint_secs": 0, "save_checkpoint_steps": 5}, []),
        ({"save_summaries_steps": 0}, ["SummarySaverHook"]),
        ({"log_step_count_steps": None}, ["StepCounterHook"]),  # MT-9
        ({"log_step_count_steps": 0}, ["StepCounterHook"]),
    ],
)
async def test_to_mt_9_switching_on_and_off_mt_6(
    kwargs: dict[str, Any], missing: list[str], tmp_path: Path
) -> None:
    """MT-6, MT-7, MT-8, MT-9."""
    program, _ = graph_program()
    session = MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program, **kwargs)
    assert hooks_of(session) == [name for name in ALL if name not in missing]


async def test_a_summary_directory_alone_mt_10(made: tuple[Any, Any], tmp_path: Path) -> None:
    program, op = made
    session = MonitoredTrainingSession(summary_dir=tmp_path, program=program)
    assert hooks_of(session) == ALL[:3]
    async with session as sess:
        await train(sess, op, 2)
    assert not [path for path in _files(tmp_path) if not path.startswith("events.")]


async def test_a_worker_takes_only_hooks_and_writes_nothing_mt_11_mt_24(tmp_path: Path) -> None:
    program, op = function_program()
    session = MonitoredTrainingSession(
        is_chief=False,
        checkpoint_dir=tmp_path,
        program=program,
        hooks=[hook := RecordingHook()],
        chief_only_hooks=[RecordingHook("chief")],
        save_checkpoint_secs=5,
        save_checkpoint_steps=5,
    )
    async with session as sess:
        await train(sess, op, 2)
        assert hooks_of(session) == ["LoggersHook", "RecordingHook"]
    assert hook.steps("after_run") == [1, 2]
    assert _files(tmp_path) == []


async def test_without_a_global_step_the_hooks_say_so_mt_12(tmp_path: Path) -> None:
    program, _ = graph_program(steps=False)
    with pytest.raises(RuntimeError, match=r"Global step should be created to use StepCounterHook\."):
        await MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program).start()


async def test_what_is_saved_and_restored_mt_13_mt_14_mt_15_mt_20(
    made: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MT-14: start, every, end; MT-15: the directory is made; MT-20: restored, not saved again."""
    program, op = made
    directory = tmp_path / "deep" / "er"

    def session() -> Any:
        return MonitoredTrainingSession(
            checkpoint_dir=directory, save_checkpoint_steps=100, program=program, hooks=[]
        )

    async with assert_nothing_left_behind(tmp_path), session() as sess:
        await train(sess, op, 250)
    assert _saved_steps(directory) == [0, 100, 200, 250]
    modified = _modified(directory / "model.ckpt-250.json")
    with caplog.at_level(logging.INFO, "asyncmon"):
        async with session() as sess:
            assert sess.global_step == 250
            await train(sess, op, 1)
            assert await sess.peek("weight:0" if isinstance(program, Graph) else "weight") == 251
    assert f"Restoring parameters from {directory}/model.ckpt-250" in caplog.text
    assert _modified(directory / "model.ckpt-250.json") == modified
    assert 251 in _saved_steps(directory)


async def test_everything_is_written_and_closed_at_every_end_mt_17_mt_19(tmp_path: Path) -> None:
    program, op = graph_program()

    async def fail() -> None:
        async with MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=program, save_summaries_steps=1
        ) as sess:
            await train(sess, op, 3)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await fail()
    events = [event for path in _event_files(tmp_path) for event in summary_iterator(path)]
    summaries = [event.step for event in events if event.summary.value]
    assert summaries == [1, 2, 3]
    assert next(event.session_log.status for event in events if event.session_log.status) == 1
    prefixes = [event.session_log.checkpoint_path for event in events]
    assert any(prefix.endswith("model.ckpt-0") for prefix in prefixes)


async def test_restarted_at_its_last_step_no_further_step_is_taken_mt_21(tmp_path: Path) -> None:
    program, op = graph_program()
    for _ in range(2):
        async with MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=program, hooks=[StopAtStepHook(last_step=5)]
        ) as sess:
            while not sess.should_stop():
                await sess.run(op)
            assert sess.global_step == 5
    assert sess.stop_reason is not None


async def test_a_master_elsewhere_is_refused(made: tuple[Any, Any]) -> None:
    with pytest.raises(Exception, match="grpc://nowhere"):
        await MonitoredTrainingSession("grpc://nowhere", program=made[0]).start()


def _files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def _event_files(directory: Path) -> list[Path]:
    return [directory / name for name in _files(directory) if name.startswith("events.")]


def _saved_steps(directory: Path) -> list[int]:
    names = [name for name in _files(directory) if name.startswith("model.ckpt-")]
    return sorted({int(name.removeprefix("model.ckpt-").split(".")[0].split("-")[0]) for name in names})


def _modified(path: Path) -> int:
    return path.stat().st_mtime_ns


async def test_how_many_checkpoints_are_kept_is_an_argument_kc_8(
    made: tuple[Any, Any], tmp_path: Path
) -> None:
    program, op = made
    saver = Saver(max_to_keep=2, when_busy="wait")
    async with MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=program, save_checkpoint_steps=1, saver=saver
    ) as sess:
        await train(sess, op, 4)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    kept = [str(tmp_path / f"model.ckpt-{step}") for step in (3, 4)]
    assert list(state.all_model_checkpoint_paths) == kept == saver.last_checkpoints


async def test_the_default_hook_saves_on_cancellation_if_so_configured_ax_27(
    made: tuple[Any, Any], tmp_path: Path
) -> None:
    program, op = made

    async def work() -> None:
        async with MonitoredTrainingSession(
            checkpoint_dir=tmp_path, program=program, save_on_cancel=True
        ) as sess:
            await train(sess, op, 3)
            await asyncio.sleep(3600)

    task = asyncio.create_task(work())
    await wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3")


async def test_what_cannot_be_done_is_refused(made: tuple[Any, Any], tmp_path: Path) -> None:
    program, _ = made
    with pytest.raises(ValueError, match="both saver and scaffold"):
        MonitoredTrainingSession(scaffold=Scaffold(program=program), saver=Saver())
    for arguments in ({}, {"checkpoint_dir": tmp_path, "save_checkpoint_secs": 0}):
        with pytest.raises(ValueError, match="save_on_cancel=True needs a checkpoint_dir"):
            MonitoredTrainingSession(program=program, save_on_cancel=True, **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"checkpoint_dir": 3}, "checkpoint_dir must be a path or None, got 3"),
        ({"master": Path("runs")}, r"master must be the target .*\('runs'\).* checkpoint_dir=\.\.\."),
        ({"resume": True}, "resume must be 'auto', 'never' or the path of a checkpoint, got True"),
        ({"saver": "x"}, "saver must be a Saver or None, got 'x'"),
        ({"save_checkpoint_steps": 2.5}, "save_checkpoint_steps must be a whole number, got 2.5"),
        ({"summary_dir": b"logs"}, "summary_dir must be a path or None, got b'logs'"),
        ({"scaffold": "x"}, "scaffold must be a Scaffold or None, got 'x'"),
        ({"program": "x"}, "A program must be a Graph, a FunctionProgram or the like, got 'x'"),
        ({"recovery": 3}, "recovery must be a Recovery or None, got 3"),
        ({"hooks": StopAtStepHook(1)}, "hooks must be a list of hooks, got .*StopAtStepHook"),
        ({"stop_grace_period_secs": None}, "must be a number of seconds, got None"),
        ({"log_step_count_steps": "a"}, "log_step_count_steps must be a number or None, got 'a'"),
        ({"save_checkpoint_secs": "10"}, "save_checkpoint_secs must be a number or None, got '10'"),
        ({"save_checkpoint_steps": "10"}, "save_checkpoint_steps must be a number or None, got '10'"),
        ({"save_summaries_secs": float("nan")}, "summaries_secs must be a number or None, got nan"),
    ],
)
async def test_a_wrong_argument_is_named_before_anything_begins(
    tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    """A cadence that is no number would have switched checkpoints off without a word."""
    directory = tmp_path / "new"
    with pytest.raises(TypeError, match=message):
        MonitoredTrainingSession(**{"checkpoint_dir": directory, **arguments})
    assert not directory.exists()


@pytest.mark.parametrize(
    "name",
    [
        "max_wait_secs",
        "stop_grace_period_secs",
    ],
)
async def test_a_negative_wait_is_refused(tmp_path: Path, name: str) -> None:
    arguments: dict[str, Any] = {name: -5}
    for directory in (tmp_path, None):
        with pytest.raises(ValueError, match=f"invalid {name}=-5: it must be 0 or more"):
            MonitoredTrainingSession(checkpoint_dir=directory, **arguments)


async def test_events_of_a_store_are_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    monkeypatch.chdir(tmp_path)
    program, op = graph_program()
    sess = MonitoredTrainingSession(checkpoint_dir="memory://bucket/runs/one", program=program)
    async with sess:
        await sess.run(op)
        sess.log("loss", 1.0)
    found = find_event_files(tmp_path)
    assert list(found) == ["runs/bucket/runs/one"]
    assert "loss" in read_scalars(found["runs/bucket/runs/one"])


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        ({"save_checkpoint_secs": -5}, "CheckpointSaverHook"),
        ({"save_checkpoint_steps": -5}, "CheckpointSaverHook"),
        ({"save_summaries_secs": -0.5}, "SummarySaverHook"),
        ({"save_summaries_steps": -1}, "SummarySaverHook"),
        ({"log_step_count_steps": -1}, "StepCounterHook"),
        ({"log_step_count_steps": None}, "StepCounterHook"),
    ],
)
async def test_a_negative_interval_leaves_its_hook_out_mt_8_mt_9(
    tmp_path: Path, arguments: dict[str, Any], left_out: str
) -> None:
    session = MonitoredTrainingSession(checkpoint_dir=tmp_path, program=graph_program()[0], **arguments)
    assert [name for name in ALL if name not in hooks_of(session)] == [left_out]


async def test_a_directory_as_the_master_is_explained() -> None:
    with pytest.raises(NotFoundError, match=r"target 'runs/x'.* by its name: checkpoint_dir=\.\.\."):
        await MonitoredTrainingSession("runs/x", program=graph_program()[0]).start()


async def test_numpys_numbers_are_numbers(made: tuple[Any, Any], tmp_path: Path) -> None:
    program, op = made
    async with MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=program, save_checkpoint_steps=np.int64(2)
    ) as sess:
        await train(sess, op, 3)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    names = [Path(path).name for path in state.all_model_checkpoint_paths]
    assert names == ["model.ckpt-0", "model.ckpt-2", "model.ckpt-3"]


async def test_a_program_that_is_no_graph_is_saved_whole_beside_a_default_graph(
    tmp_path: Path,
) -> None:
    constant(1.0)
    program, op = function_program()
    async with MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program) as sess:
        await train(sess, op, 3)
    assert _saved_steps(tmp_path) == [0, 3]


@pytest.mark.parametrize(("resume", "begins"), [("auto", 5), ("never", 0), ("model.ckpt-3", 3)])
async def test_resume_chooses_what_training_begins_with(
    made: tuple[Any, Any], tmp_path: Path, resume: str, begins: int
) -> None:
    """Also the newest checkpoint afterwards, and what a recovery goes back to."""
    program, op = made
    given = {"checkpoint_dir": tmp_path, "program": program, "save_checkpoint_steps": 1}
    async with MonitoredTrainingSession(**given) as sess:
        await train(sess, op, 5)
    path = str(tmp_path / resume) if "." in resume else resume
    lose = LosesOnce()
    async with MonitoredTrainingSession(**given, hooks=[lose], resume=path) as sess:
        assert sess.global_step == begins
        newest = f"model.ckpt-{begins}"
        assert Path(await latest_checkpoint(tmp_path) or "").name == newest
        await train(sess, op, 1)
        await wait_all_tasks_blocked()
        lose.armed = True
        await train(sess, op, 1)
        assert (lose.armed, sess.global_step) == (False, begins + 2)
    async with MonitoredTrainingSession(**given) as sess:
        assert sess.global_step == begins + 2


class LosesOnce(RecordingHook):
    """Loses the session before a run, once it is armed."""

    armed = False

    async def before_run(self, run_context: Any) -> None:
        if self.armed:
            self.armed = False
            raise AbortedError("gone")


async def test_a_checkpoint_to_resume_from_has_to_be_there(
    made: tuple[Any, Any], tmp_path: Path
) -> None:
    session = MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=made[0], resume=tmp_path / "model.ckpt-9"
    )
    with pytest.raises(ValueError, match=r"model\.ckpt-9"):
        await session.start()
