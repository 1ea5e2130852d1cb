"""Hooks for training metrics, the best state, gradients, the model and a first evaluation."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.summary import find_event_files, read_scalars

pytestmark = pytest.mark.asyncio

LOSSES = [5.0, 4.0, 3.0, 2.0, 2.5, 2.5, 2.5, 2.5, 1.0]


def program(losses: list[float] = LOSSES) -> am.programs.FunctionProgram:
    made = am.programs.FunctionProgram({"weight": 0.0})

    @made.step
    def train(state: Any) -> dict[str, float]:
        state["weight"] += 1.0
        return {"loss": losses[int(state["weight"]) - 1], "rate": 0.1}

    @made.step(read_only=True)
    def evaluate(state: Any) -> dict[str, float]:
        return {"loss": losses[int(state["weight"]) - 1]}

    return made


async def run(made: Any, hooks: Any, steps: int = len(LOSSES), **arguments: Any) -> Any:
    async with am.MonitoredTrainingSession(program=made, hooks=hooks, **arguments) as sess:
        for _ in range(steps):
            if sess.should_stop():
                break
            await sess.run("train")
    return sess


async def test_training_metrics_stop_early(tmp_path: Path) -> None:
    training = am.TrainingMetricsHook({"loss": "loss"}, every_steps=2)
    found: list[tuple[int, float]] = []
    training.add_listener(lambda step, metrics: found.append((step, metrics["loss"])))
    stop = am.stop_if(training, "loss", no_decrease_in=2)
    sess = await run(program(), [training, stop], summary_dir=tmp_path)
    assert found == [(2, 4.5), (4, 2.5), (6, 2.5), (8, 2.5)]
    assert sess.stop_reason.startswith("no decrease of 'loss' in 2 evaluations up to step 8")
    (paths,) = find_event_files(tmp_path).values()
    assert [point.value for point in read_scalars(paths)["train/loss"]] == [4.5, 2.5, 2.5, 2.5]


async def test_training_metrics_are_those_of_training_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asyncmon.hooks.eval_hook")
    training = am.TrainingMetricsHook({"loss": "loss"}, every_steps=2)
    made = program()
    async with am.MonitoredTrainingSession(program=made, hooks=[training]) as sess:
        await sess.run("train")
        await sess.run("evaluate")
        await sess.run("train")
    assert (training.step, training.metrics) == (2, {"loss": 4.5})
    assert caplog.messages == ["Training metrics 'train' at step 2: loss = 4.5"]
    with pytest.raises(ValueError, match="no metric"):
        am.TrainingMetricsHook({})


@pytest.mark.parametrize("kind", ["evaluation", "training"])
async def test_the_best_state_is_restored_at_the_end(kind: str, tmp_path: Path) -> None:
    evaluation: Any = am.EvalHook("evaluate", every_steps=1, concurrent=False)
    if kind == "training":
        evaluation = am.TrainingMetricsHook({"loss": "loss"}, every_steps=1)
    saver = am.Saver(max_to_keep=2, keep_best=am.KeepBest("loss"), when_busy="wait")
    saves = am.CheckpointSaverHook(tmp_path, save_secs=600, saver=saver, metrics=evaluation)
    sess = await run(
        program(LOSSES[:-1]), [evaluation, saves, am.RestoreBestHook()], steps=8, saver=saver
    )
    assert sess.global_step == 4
    assert (await am.latest_checkpoint(tmp_path)) == f"{tmp_path}/model.ckpt-8"


async def test_a_stop_for_a_reason_like_a_signal_restores_the_best_state(tmp_path: Path) -> None:
    evaluation = am.EvalHook("evaluate", every_steps=1, concurrent=False)
    saver = am.Saver(max_to_keep=2, keep_best=am.KeepBest("loss"), when_busy="wait")
    saves = am.CheckpointSaverHook(tmp_path, save_secs=600, saver=saver, metrics=evaluation)

    @am.every(steps=8)
    async def stop() -> None:
        sess.request_stop("signal SIGMA_MAX was reached")

    hooks = [evaluation, saves, am.RestoreBestHook(), stop]
    async with am.MonitoredTrainingSession(program=program(), hooks=hooks, saver=saver) as sess:
        while not sess.should_stop():
            await sess.run("train")
    assert sess.global_step == 4


async def test_restoring_the_best_state_needs_a_saver_that_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"needs a CheckpointSaverHook\(\.\.\., metrics=evaluation"):
        await run(program(), [am.RestoreBestHook()], checkpoint_dir=tmp_path)


async def test_without_the_metric_the_last_state_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = am.Saver(keep_best=am.KeepBest("loss"))
    saves = am.CheckpointSaverHook(tmp_path, save_secs=600, saver=saver)
    sess = await run(program(), [saves, am.RestoreBestHook()], steps=3, saver=saver)
    assert sess.global_step == 3
    assert "RestoreBestHook: no checkpoint has the metric; the last state stays." in caplog.messages


async def test_training_metrics_have_gradient_norm_and_learning_rate_of_a_graph(tmp_path: Path) -> None:
    with g.Graph().as_default() as graph:
        weight = g.get_variable("weight", initializer=np.array([3.0, 4.0], np.float32))
        step = am.get_or_create_global_step()
        rate = g.train.exponential_decay(0.5, step, 1, 0.5)
        optimizer = g.train.GradientDescentOptimizer(rate)
        gradients = optimizer.compute_gradients(0.5 * g.reduce_sum(g.square(weight)))
        norm = g.global_norm([gradient for gradient, _ in gradients])
        train_op = optimizer.apply_gradients(gradients, step)
    hook = am.TrainingMetricsHook({"gradient_norm": norm, "learning_rate": rate}, every_steps=1)
    async with am.MonitoredTrainingSession(program=graph, summary_dir=tmp_path, hooks=[hook]) as sess:
        for _ in range(3):
            await sess.run(train_op)
    (paths,) = find_event_files(tmp_path).values()
    found = read_scalars(paths)
    norms = [point.value for point in found["train/gradient_norm"]]
    assert norms == [5.0, 2.5, pytest.approx(5.0 * 0.5 * 0.75)]
    assert [point.value for point in found["train/learning_rate"]] == [0.5, 0.25, 0.125]


async def test_a_step_of_torch_returns_the_norm_of_its_gradients(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from asyncmon.programs.torch import TorchProgram

    weight = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(weight.parameters(), lr=0.5)
    made = TorchProgram({"model": weight, "optimizer": optimizer})

    @made.training_step(clip_norm=math.inf)
    def train(state: Any, batch: Any) -> Any:
        return {"loss": state["model"](batch).sum(), "rate": optimizer.param_groups[0]["lr"]}

    hook = am.TrainingMetricsHook({"norm": "grad_norm", "rate": "rate"}, every_steps=1)
    async with am.MonitoredTrainingSession(program=made, summary_dir=tmp_path, hooks=[hook]) as sess:
        await sess.run("train", {"batch": torch.tensor([[3.0, 4.0]])})
    (paths,) = find_event_files(tmp_path).values()
    found = {tag: points[0].value for tag, points in read_scalars(paths).items()}
    assert (found["train/norm"], found["train/rate"]) == (5.0, 0.5)


async def test_the_model_is_listed_once_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asyncmon.hooks.model_summary")
    with g.Graph().as_default() as graph:
        g.get_variable("kernel", [1_000, 3])
        g.get_variable("bias", [3], g.float64)
        step = am.get_or_create_global_step()
        train_op = step.assign_add(1)
    for most in (200, 1):
        async with am.MonitoredTrainingSession(
            program=graph, hooks=[am.ModelSummaryHook(most)]
        ) as sess:
            await sess.run(train_op)
    full, short = (one for one in caplog.messages if one.startswith("3 variables, 12,032 bytes"))
    assert "| kernel | [1000, 3] | float32 | 12,000 |\n| bias | [3] | float64 | 24 |" in full
    assert short.endswith("| kernel | [1000, 3] | float32 | 12,000 |\n| and 2 more | | | |")


async def test_a_variable_of_unknown_shape_is_listed_without_a_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "asyncmon.hooks.model_summary")
    with g.Graph().as_default() as graph:
        rows = g.placeholder_with_default(np.zeros((2, 3), np.float32), None)
        g.Variable(rows, validate_shape=False, name="rows")
        am.get_or_create_global_step()
    async with am.MonitoredTrainingSession(program=graph, hooks=[am.ModelSummaryHook()]):
        pass
    (text,) = (one for one in caplog.messages if one.startswith("2 variables, 8 bytes"))
    assert "| rows | unknown | float32 | 0 |" in text


async def test_a_recovery_lists_the_model_no_second_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "asyncmon.hooks.model_summary")
    made = am.programs.FunctionProgram({"weight": 1.0})
    made.step(lambda state: state.update(weight=state["weight"] + 1.0), name="train")
    hooks = [am.ModelSummaryHook(), am.testing.fail_at_step(2), am.StopAtStepHook(last_step=3)]
    async with am.MonitoredTrainingSession(program=made, hooks=hooks) as sess:
        while not sess.should_stop():
            await sess.run("train")
    assert len([one for one in caplog.messages if "| variable |" in one]) == 1


async def test_a_first_evaluation_comes_before_the_first_step_and_fails_at_once() -> None:
    made = am.programs.FunctionProgram({"weight": 1.0})
    made.step(lambda state: state.update(weight=state["weight"] + 1.0), name="train")
    made.step(lambda state: {"loss": state["weight"]}, name="evaluate", read_only=True)
    evaluation = am.EvalHook("evaluate", every_steps=2, at_start=True)
    found: list[tuple[int, float]] = []
    evaluation.add_listener(lambda step, metrics: found.append((step, metrics["loss"])))
    async with am.MonitoredTrainingSession(program=made, hooks=[evaluation]) as sess:
        assert found == [(0, 1.0)]
        await sess.run("train")
        await sess.run("train")
    assert found == [(0, 1.0), (2, 3.0)]
    wrong = am.EvalHook({"loss": "losss"}, every_steps=1_000, at_start=True)
    with pytest.raises(am.errors.NotFoundError, match="losss"):
        async with am.MonitoredTrainingSession(program=made, hooks=[wrong]):
            raise AssertionError("not reached")


async def test_the_learning_rate_of_a_scheduler_is_logged_without_code() -> None:
    torch = pytest.importorskip("torch")
    from asyncmon.programs.torch import TorchProgram

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    made = TorchProgram(state)

    @made.training_step(scheduler="scheduler")
    def train(state: Any, batch: Any) -> Any:
        return state["model"](batch).square().mean()

    hook = am.TrainingMetricsHook({"loss": "loss"}, every_steps=1)
    rates: list[float] = []
    hook.add_listener(lambda _, metrics: rates.append(metrics["learning_rate"]))
    async with am.MonitoredSession(am.ChiefSessionCreator(program=made), [hook]) as sess:
        for _ in range(3):
            await sess.run("train", {"batch": torch.ones(2, 1)})
    assert rates == [0.5, 0.25, 0.125]


async def test_each_rate_of_several_schedulers_or_groups_has_a_name() -> None:
    torch = pytest.importorskip("torch")
    from asyncmon.programs.torch import TorchProgram

    model = torch.nn.Linear(1, 1)
    groups = [{"params": [model.weight]}, {"params": [model.bias], "lr": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    program = TorchProgram({"optimizer": optimizer, "scheduler": scheduler})
    rates = {"learning_rate/scheduler/0": 1.0, "learning_rate/scheduler/1": 0.5}
    assert program.learning_rates() == rates
    assert TorchProgram({"optimizer": optimizer}).learning_rates() == {}
