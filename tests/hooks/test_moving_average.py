"""Moving averages of the weights: kept, saved, restored and evaluated, over each kind of program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.testing import fail_at_step

pytestmark = pytest.mark.asyncio


def graph_program() -> tuple[Any, str, Any]:
    graph = g.Graph()
    with graph.as_default():
        weight = g.get_variable("weight", initializer=np.zeros(3, np.float32))
        step = am.get_or_create_global_step()
        g.get_variable("count", initializer=0.0, trainable=False)
        train = g.group(weight.assign_add(np.ones(3, np.float32)), step.assign_add(1))
        return graph, "weight", (train, {"mean": g.reduce_mean(weight)})


def function_program() -> tuple[Any, str, Any]:
    program = am.programs.FunctionProgram({"weight": np.zeros(3), "count": 0})

    @program.step
    def train(state: Any) -> None:
        state["weight"] = state["weight"] + 1.0

    @program.step(read_only=True)
    def evaluate(state: Any) -> dict[str, float]:
        return {"mean": float(state["weight"].mean())}

    return program, "weight", ("train", "evaluate")


def torch_program() -> tuple[Any, str, Any]:
    torch = pytest.importorskip("torch")
    from asyncmon.programs.torch import TorchProgram

    model = torch.nn.Linear(3, 1, bias=False, dtype=torch.bfloat16)
    torch.nn.init.zeros_(model.weight)
    program = TorchProgram({"model": model})

    @program.step
    def train(state: Any) -> None:
        with torch.no_grad():
            state["model"].weight.add_(1.0)

    @program.step(read_only=True)
    def evaluate(state: Any) -> dict[str, float]:
        return {"mean": float(state["model"].weight.float().mean())}

    return program, "model/weight", ("train", "evaluate")


def jax_program() -> tuple[Any, str, Any]:
    jnp = pytest.importorskip("jax.numpy")
    from asyncmon.programs.jax import JaxProgram

    program = JaxProgram({"params": {"weight": jnp.zeros(3)}})

    @program.step
    def train(state: Any) -> Any:
        return {"params": {"weight": state["params"]["weight"] + 1.0}}, {}

    @program.step(read_only=True)
    def evaluate(state: Any) -> Any:
        return {"mean": state["params"]["weight"].mean()}

    return program, "params/weight", ("train", "evaluate")


@pytest.fixture(params=[graph_program, function_program, torch_program, jax_program])
def made(request: pytest.FixtureRequest) -> tuple[Any, str, Any]:
    made: tuple[Any, str, Any] = request.param()
    return made


def expected(steps: int, decay: float = 0.5) -> float:
    average = 0.0
    for step in range(steps):
        average += (1 - min(decay, (1 + step) / (10 + step))) * (step + 1 - average)
    return average


async def train(made: tuple[Any, str, Any], steps: int, hooks: Any, **arguments: Any) -> None:
    program, _, (op, _) = made
    async with am.MonitoredTrainingSession(program=program, hooks=hooks, **arguments) as sess:
        for _ in range(steps):
            await sess.run(op)


async def test_averages_are_saved_restored_and_evaluated(
    made: tuple[Any, str, Any], tmp_path: Path
) -> None:
    _, name, (_, metrics) = made
    average = am.MovingAverageHook(0.5)
    await train(made, 3, [average], checkpoint_dir=tmp_path)
    assert set(average.averages) == {name}
    np.testing.assert_allclose(average.averages[name].ravel(), expected(3), rtol=1e-6)

    again = am.MovingAverageHook(0.5)
    raw, averaged = (
        am.EvalHook(metrics, every_steps=1),
        am.EvalHook(metrics, every_steps=1, averages=again, name="averages"),
    )
    await train(made, 2, [averaged, raw, again], checkpoint_dir=tmp_path)
    np.testing.assert_allclose(again.averages[name].ravel(), expected(5), rtol=1e-6)
    assert raw.metrics == {"mean": 5.0}
    assert averaged.metrics["mean"] == pytest.approx(expected(5), rel=1e-2)
    assert not average.averages[name].flags.writeable  # a save copies no such array on the loop
    assert not again.averages[name].flags.writeable


async def test_a_concurrent_evaluation_has_the_averages_of_its_step() -> None:
    made = function_program()
    average = am.MovingAverageHook(0.5)
    evaluation = am.EvalHook("evaluate", every_steps=1, averages=average)
    found: dict[int, float] = {}
    evaluation.add_listener(lambda step, metrics: found.update({step: metrics["mean"]}))
    await train(made, 20, [average, evaluation])
    assert 20 in found
    assert found == pytest.approx({step: expected(step) for step in found})


async def test_a_recovery_restores_the_averages(tmp_path: Path) -> None:
    made = function_program()
    average = am.MovingAverageHook(0.5)
    hooks = [average, fail_at_step(5)]
    await train(made, 6, hooks, checkpoint_dir=tmp_path, save_checkpoint_steps=2)
    np.testing.assert_allclose(average.averages["weight"], expected(6))


async def test_a_nan_that_ends_training_leaves_the_averages_as_they_were() -> None:
    """Whichever hook is given first: the guard is called before the averages are updated."""
    program = am.programs.FunctionProgram({"weight": np.zeros(3)})

    @program.step
    def step(state: Any) -> float:
        diverges = state["weight"][0] == 2.0
        state["weight"] = np.full(3, np.nan) if diverges else state["weight"] + 1.0
        return float(state["weight"][0])

    average = am.MovingAverageHook(0.5)
    with pytest.raises(am.NanLossDuringTrainingError):
        await train((program, "weight", ("step", None)), 5, [average, am.NanTensorHook("step")])
    np.testing.assert_allclose(average.averages["weight"], expected(2))


async def test_updates_of_several_steps_and_large_weights_in_a_thread() -> None:
    program = am.programs.FunctionProgram({"model": {"w": np.zeros(100_000)}, "other": np.zeros(1)})

    @program.step
    def step(state: Any) -> None:
        state["model"]["w"] = state["model"]["w"] + 1.0

    average = am.MovingAverageHook(0.01, every_steps=2, names=lambda name: name.startswith("model/"))
    await train((program, "", ("step", None)), 5, [average])
    assert set(average.averages) == {"model/w"}
    np.testing.assert_allclose(average.averages["model/w"][0], 4.0, rtol=1e-3)


async def test_runs_between_updates_skip_the_hook_but_not_a_subclass_that_overrides_it() -> None:
    steps: list[int] = []

    class Counting(am.MovingAverageHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            steps.append(run_values.step)
            await super().after_run(run_context, run_values)

    average, counting = am.MovingAverageHook(every_steps=2), Counting(every_steps=2)
    await train(function_program(), 4, [average, counting])
    assert (average.idle_until_step, counting.idle_until_step) == (6, None)
    assert steps == [1, 2, 3, 4]


async def test_the_averages_can_become_the_weights() -> None:
    program, _, (op, _) = function_program()
    average = am.MovingAverageHook(0.5)
    async with am.MonitoredTrainingSession(program=program, hooks=[average]) as sess:
        await sess.run(op)
        raw = sess.raw_session()
        await raw.load(average.applied(await raw.snapshot()))
        assert (await sess.peek("weight"))[0] == pytest.approx(expected(1))


async def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"invalid decay=1\.0: it must be between 0 and 1"):
        am.MovingAverageHook(1.0)
    with pytest.raises(ValueError, match="invalid every_steps=0"):
        am.MovingAverageHook(every_steps=0)
    program, _, _ = function_program()
    evaluation = am.EvalHook("evaluate", every_steps=1, averages=am.MovingAverageHook())
    with pytest.raises(RuntimeError, match=r"is not among the session's hooks\. Pass both"):
        await am.MonitoredTrainingSession(program=program, hooks=[evaluation]).start()
