"""The standard hooks together, over a graph and over a program of functions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon import hooks as h
from asyncmon import summary
from asyncmon.checkpoint import CheckpointReader, Saver, get_checkpoint_state
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator
from asyncmon.summary import Event, summary_iterator
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@dataclass
class Model:
    """loss = (w - target)^2 with w = 8 to begin with; a step halves the distance to the target."""

    program: Any
    train: Any
    loss: Any
    summary: Any
    target: Any
    feeds: bool

    def feed(self, target: float = 0.0) -> dict[Any, float]:
        return {self.target: target} if self.feeds else {}


def graph_model() -> Model:
    graph = g.Graph()
    with graph.as_default():
        target = g.placeholder_with_default(np.float32(0), [], name="target")
        w = g.get_variable("w", initializer=np.float32(8))
        step = g.create_global_step()
        loss = g.square(w - target, name="loss")
        train = g.train.GradientDescentOptimizer(0.25).minimize(loss, global_step=step)
        merged = summary.scalar("train/loss", loss)
    return Model(graph, train, loss, merged, target, feeds=True)


def function_model() -> Model:
    program = FunctionProgram(state={"w": np.float32(8)})

    @program.step
    async def train(state: Any, target: float = 0.0) -> dict[str, Any]:
        loss = float((state["w"] - target) ** 2)
        state["w"] = np.float32(state["w"] - (state["w"] - target) / 2)
        return {"loss": loss, "summary": {"train/loss": loss}}

    return Model(program, "train", "loss", "summary", "target", feeds=True)


@pytest.fixture(params=[graph_model, function_model], ids=["graph", "functions"])
def model(request: pytest.FixtureRequest) -> Model:
    made: Model = request.param()
    return made


async def events(folder: Path) -> list[Event]:
    [name] = [name for name in os.listdir(folder) if "tfevents" in name]
    return [event async for event in summary_iterator(folder / name)]


async def test_a_training_with_everything(
    model: Model, tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    scaffold = Scaffold(program=model.program)
    final = h.FinalOpsHook(["w"] if isinstance(model.program, FunctionProgram) else ["w:0"])
    hooks = [
        h.CheckpointSaverHook(tmp_path, save_steps=4, scaffold=scaffold),
        h.SummarySaverHook(save_steps=2, output_dir=tmp_path, summary_op=model.summary),
        h.StepCounterHook(every_n_steps=3, output_dir=tmp_path),
        h.NanTensorHook(model.loss),
        h.LoggingTensorHook({"loss": model.loss}, every_n_iter=5),
        h.FeedFnHook(model.feed),
        h.StopAtStepHook(last_step=6),
        final,
    ]
    creator = ChiefSessionCreator(scaffold, program=model.program, checkpoint_dir=str(tmp_path))
    async with assert_nothing_left_behind(tmp_path), MonitoredSession(creator, hooks) as sess:
        while not sess.should_stop():
            await sess.run(model.train)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths] == ["0", "4", "6"]
    scalars = [
        (event.step, event.summary.value[0].tag, event.summary.value[0].simple_value)
        for event in await events(tmp_path)
        if event.summary.value
    ]
    assert scalars == [(1, "train/loss", 64), (3, "train/loss", 4), (5, "train/loss", 0.25)]
    assert lines("logging_tensor")[0] == "loss = 64.0"
    assert lines("logging_tensor")[1].startswith("loss = 0.0625 (")
    assert [float(value) for value in final.final_ops_values] == [8 / 2**6]


async def test_a_restart_continues_where_it_ended(model: Model, tmp_path: Path) -> None:
    for last_step in (3, 5):
        scaffold = Scaffold(program=model.program)
        hooks = [
            h.CheckpointSaverHook(tmp_path, save_secs=60, scaffold=scaffold),
            h.StopAtStepHook(last_step=last_step),
        ]
        creator = ChiefSessionCreator(scaffold, program=model.program, checkpoint_dir=str(tmp_path))
        async with MonitoredSession(creator, hooks) as sess:
            while not sess.should_stop():
                await sess.run(model.train, model.feed())
    async with await CheckpointReader.open(f"{tmp_path}/model.ckpt-5") as reader:
        assert float(await reader.get_tensor("w")) == 8 / 2**5


async def test_by_seconds_everything_is_done_beside_the_steps(
    model: Model, tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    """25 steps, one a second, of which the hooks take part in few."""
    scaffold = Scaffold(program=model.program)
    hooks = [
        h.CheckpointSaverHook(tmp_path, save_secs=10, scaffold=scaffold),
        h.SummarySaverHook(save_secs=10, output_dir=tmp_path, summary_op=model.summary),
        h.StepCounterHook(every_n_secs=10, output_dir=tmp_path),
        h.LoggingTensorHook({"loss": model.loss}, every_n_secs=10),
    ]
    creator = ChiefSessionCreator(scaffold, program=model.program)
    sess = MonitoredSession(creator, hooks)
    async with assert_nothing_left_behind(tmp_path), sess:
        for _ in range(25):
            await sess.run(model.train)
            await asyncio.sleep(1.03)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    steps = [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]
    assert steps == ["0", "10", "20", "25"]
    written = [(e.step, v.tag) for e in await events(tmp_path) for v in e.summary.value]
    assert [step for step, tag in written if tag == "train/loss"] == [1, 11, 21]
    assert [step for step, tag in written if tag == "global_step/sec"] == [10, 20]
    assert len(lines("logging_tensor")) == 3


async def test_hooks_come_and_go_while_the_session_runs(
    model: Model, tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    async with MonitoredSession(ChiefSessionCreator(program=model.program)) as sess:
        await sess.run(model.train)
        saver = h.CheckpointSaverHook(tmp_path, save_steps=2, saver=Saver())
        attached = [
            await sess.attach(hook)
            for hook in (saver, h.LoggingTensorHook({"loss": model.loss}, every_n_iter=1))
        ]
        await sess.run(model.train)
        await sess.run(model.train)
        for one in attached:
            await one.detach()
        await sess.run(model.train)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    steps = [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths]
    assert steps == ["1", "3"]
    assert len(lines("logging_tensor")) == 2


async def test_the_default_saver_of_a_graph_is_found(tmp_path: Path) -> None:
    model = graph_model()
    hooks = [h.CheckpointSaverHook(tmp_path, save_steps=1), h.StopAtStepHook(1)]
    async with MonitoredSession(ChiefSessionCreator(program=model.program), hooks) as sess:
        await sess.run(model.train)
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert len(state.all_model_checkpoint_paths) == 2
    assert any(event.graph_def for event in await events(tmp_path)), "HK-CKPT-10"
    assert "graph.pbtxt" in os.listdir(tmp_path), "MT-13"


async def test_the_graph_can_be_left_out_of_the_events_mt_13(tmp_path: Path) -> None:
    model = graph_model()
    hook = h.CheckpointSaverHook(tmp_path, save_steps=1, save_graph_def=False)
    async with MonitoredSession(ChiefSessionCreator(program=model.program), [hook]):
        pass
    assert not any(event.graph_def for event in await events(tmp_path))
    assert "graph.pbtxt" not in os.listdir(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: h.StopAtStepHook(1),
        lambda folder: h.CheckpointSaverHook(folder, save_steps=1),
        lambda folder: h.StepCounterHook(),
        lambda folder: h.SummarySaverHook(1, output_dir=folder, summary_op="x"),
        lambda folder: h.GlobalStepWaiterHook(1),
        lambda folder: h.ProfilerHook(1, output_dir=folder),
        lambda folder: h.EvalHook("x", every_steps=1),
        lambda folder: h.every(steps=1)(_nothing),
    ],
)
async def test_hk_a_global_step_is_needed(make: Callable[[Path], Any], tmp_path: Path) -> None:
    """HK-STOP-1, HK-CKPT-1, HK-SUM-1, HK-WAIT-3, HK-PROF-2, MT-12; and nothing was made on the disk."""
    hook = make(tmp_path)
    async with assert_nothing_left_behind():
        sess = MonitoredSession(ChiefSessionCreator(program=g.Graph()), [hook])
        with pytest.raises(RuntimeError) as caught:
            await sess.start()
    assert str(caught.value) == f"Global step should be created to use {type(hook).__name__}."
    assert os.listdir(tmp_path) == []


async def _nothing() -> None: ...


async def test_the_tag_has_the_name_of_the_global_step_hk_step_3(tmp_path: Path) -> None:
    graph = g.Graph()
    with graph.as_default(), g.name_scope("outer"):
        step = g.assign_add(g.create_global_step(), 1)
    hook = h.StepCounterHook(every_n_steps=1, output_dir=tmp_path)
    async with MonitoredSession(ChiefSessionCreator(program=graph), [hook]) as sess:
        for _ in range(2):
            await sess.run(step)
            await asyncio.sleep(1)
    tags = {value.tag for event in await events(tmp_path) for value in event.summary.value}
    assert tags == {f"{g.get_global_step(graph).op.name}/sec"}


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("no", KeyError, "The operation, 'no', does not exist in the graph"),
        ("no:0", KeyError, "refers to a Tensor which does not exist"),
        ("two", ValueError, "Name two is ambiguous, as this `Operation` has multiple outputs"),
        ("foreign", ValueError, "should have graph attribute that is equal to current graph"),
    ],
)
async def test_wrong_tensors_are_named_before_anything_runs_hk_log_9(
    name: str, error: type[Exception], message: str
) -> None:
    model = graph_model()
    tensor: Any = name
    with model.program.as_default():
        g.split(np.arange(4), 2, name="two")
    if name == "foreign":
        with g.Graph().as_default():
            tensor = g.constant(1)
    hook = h.LoggingTensorHook([tensor], every_n_iter=1)
    with pytest.raises(error, match=message):
        await MonitoredSession(ChiefSessionCreator(program=model.program), [hook]).start()


async def test_names_are_those_of_tensors_hk_log_9(lines: Callable[[str], list[str]]) -> None:
    model = graph_model()
    hook = h.LoggingTensorHook(["loss", model.loss, "w:0"], every_n_iter=1)
    async with MonitoredSession(ChiefSessionCreator(program=model.program), [hook]) as sess:
        await sess.run(model.train)
    assert lines("logging_tensor") == ["loss = 64.0, loss:0 = 64.0, w:0 = 4.0"]


async def test_names_are_looked_up_again_in_the_graph_of_each_session(
    lines: Callable[[str], list[str]],
) -> None:
    hook = h.LoggingTensorHook(["x"], every_n_iter=2)
    for number in (1.0, 2.0):
        with g.Graph().as_default() as graph:
            g.constant(number, name="x")
            train = g.assign_add(g.create_global_step(), 1)
        async with MonitoredSession(ChiefSessionCreator(Scaffold(program=graph)), [hook]) as sess:
            await sess.run(train)
    assert lines("logging_tensor") == ["x = 1.0", "x = 2.0"]


async def test_at_end_the_values_of_the_end_hk_log_7(
    model: Model, lines: Callable[[str], list[str]]
) -> None:
    """A graph computes the loss again; of functions it is that of the last step."""
    hook = h.LoggingTensorHook({"loss": model.loss}, at_end=True)
    async with MonitoredSession(ChiefSessionCreator(program=model.program), [hook]) as sess:
        await sess.run(model.train)
        await sess.run(model.train)
    is_graph = isinstance(model.program, g.Graph)
    assert lines("logging_tensor") == ["loss = 4.0" if is_graph else "loss = 16.0"]


async def test_names_of_a_graph_are_those_of_tensors_everywhere() -> None:
    model = graph_model()
    evaluation = h.EvalHook({"loss": "loss"}, [model.feed(float("nan"))], every_steps=1)
    hooks = [h.NanTensorHook("loss"), evaluation]
    sess = MonitoredSession(ChiefSessionCreator(program=model.program), hooks)
    async with sess:
        await sess.run(model.train)
        with pytest.raises(h.NanLossDuringTrainingError):
            await sess.run(model.train, model.feed(float("nan")))
    assert np.isnan(evaluation.metrics["loss"])


async def test_a_nan_of_the_program_is_seen_and_not_saved(model: Model, tmp_path: Path) -> None:
    scaffold = Scaffold(program=model.program)
    hooks = [
        h.CheckpointSaverHook(tmp_path, save_steps=1, scaffold=scaffold),
        h.NanTensorHook(model.loss),
    ]
    sess = MonitoredSession(ChiefSessionCreator(scaffold, program=model.program), hooks)

    async def diverge() -> None:
        async with sess:
            await sess.run(model.train)
            await sess.run(model.train, model.feed(float("nan")))

    with pytest.raises(h.NanLossDuringTrainingError):
        await diverge()
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.model_checkpoint_path.endswith("-1")
