"""Sessions of objects that have their state inside: one trains, others evaluate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import FailedPreconditionError
from asyncmon.programs import FunctionProgram

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Model:
    """Trains in place, as a model of scikit-learn or Keras does."""

    def __init__(self, copy: Callable[[], FunctionProgram] | None = None) -> None:
        self.weight = 0.0
        self.sets = 0
        self.program = FunctionProgram(
            get_state=lambda: {"weight": self.weight}, set_state=self.set, copy=copy
        )
        self.program.step(self.fit)
        self.program.step(self.score, read_only=True)
        self.program.step(self.slow_score, read_only=True)

    def set(self, state: Any) -> None:
        self.weight = float(state["weight"])
        self.sets += 1

    def fit(self, x: float) -> None:
        self.weight += x

    def score(self) -> dict[str, float]:
        return {"accuracy": self.weight}

    async def slow_score(self) -> dict[str, float]:
        before = self.weight
        await asyncio.sleep(10)
        assert self.weight == before
        return {"accuracy": self.weight}


@pytest.mark.parametrize("has_copy", [False, True])
@pytest.mark.parametrize("how", [{}, {"at_start": True}, {"concurrent": False}])
@pytest.mark.parametrize("step", ["score", "slow_score"])
async def test_an_eval_hook_evaluates_the_state_of_its_step(
    tmp_path: Path, has_copy: bool, how: dict[str, bool], step: str
) -> None:
    copies: list[Model] = []

    def copy() -> FunctionProgram:
        copies.append(Model())
        return copies[-1].program

    model = Model(copy if has_copy else None)
    hook = am.EvalHook(step, every_steps=10, **how)
    found: dict[int, float] = {}
    hook.add_listener(lambda at, metrics: found.update({at: metrics["accuracy"]}))
    hooks = [hook, am.StopAtStepHook(last_step=30)]
    async with am.MonitoredTrainingSession(
        program=model.program, checkpoint_dir=tmp_path, hooks=hooks, signals=None
    ) as sess:
        while not sess.should_stop():
            await sess.run("fit", {"x": 1.0})
            await asyncio.sleep(2)
    assert model.weight == 30
    starts = [0] if "at_start" in how else []
    assert found == {step: step for step in (*starts, 10, 20, 30)}
    assert bool(copies) is has_copy


async def test_a_session_beside_the_one_that_trains_evaluates_only() -> None:
    model = Model()
    training, other = (model.program.create_session() for _ in range(2))
    await training.run(model.program.init_op())
    await training.run("fit", {"x": 3.0})
    await other.run(model.program.init_op())
    assert model.weight == 3
    await other.load({"weight": 7.0})
    evaluation = asyncio.create_task(other.run("slow_score"))
    await asyncio.sleep(1)
    assert model.weight == 7
    assert await training.run("fit", {"x": 1.0}) is None  # waits for it
    assert (await evaluation)["accuracy"] == 7
    assert model.weight == 4
    with pytest.raises(FailedPreconditionError, match=r"Another session .* trains: this one e"):
        await other.run("fit", {"x": 1.0})
    await training.close()
    await other.run("fit", {"x": 1.0})
    assert model.weight == 8
    await other.close()


async def test_a_cancelled_evaluation_sets_the_state_back() -> None:
    model = Model()
    training, other = (model.program.create_session() for _ in range(2))
    await training.run("fit", {"x": 3.0})
    evaluation = asyncio.create_task(other.run("slow_score"))
    await asyncio.sleep(1)
    assert model.weight == 0
    evaluation.cancel()
    await asyncio.wait([evaluation])
    assert evaluation.cancelled()
    assert model.weight == 3
    await other.close()
    await training.close()


async def test_a_step_that_evaluates_would_wait_for_itself() -> None:
    model = Model()
    training, other = (model.program.create_session() for _ in range(2))

    async def step() -> Any:
        return await other.run("score")

    model.program.step(step)
    training, other = (model.program.create_session() for _ in range(2))
    await training.run("fit", {"x": 1.0})
    with pytest.raises(RuntimeError, match="from inside a step of the same session"):
        await training.run("step")
    assert (await other.run("score"))["accuracy"] == 0
    assert model.weight == 1


async def test_a_peek_uses_the_copy_beside_the_steps() -> None:
    def build() -> FunctionProgram:
        return Model(build).program

    model = Model(build)
    session = model.program.create_session()
    await session.run("fit", {"x": 3.0})
    slow = asyncio.create_task(session.peek(["slow_score", "global_step"]))
    await asyncio.sleep(1)
    before = asyncio.get_running_loop().time()
    await session.run("fit", {"x": 1.0})
    assert await session.peek("weight") == 4
    assert asyncio.get_running_loop().time() == before
    assert await slow == [{"accuracy": 3.0}, 1]
    assert await session.peek(["score", "global_step"]) == [{"accuracy": 4.0}, 2]
    await session.close()


async def test_a_copy_goes_with_objects() -> None:
    with pytest.raises(ValueError, match="copy is for objects with get_state and set_state"):
        FunctionProgram({"w": 0.0}, copy=lambda: FunctionProgram({}))


@pytest.mark.parametrize("has_copy", [False, True])
async def test_a_task_may_peek_again_after_a_step_that_awaits(has_copy: bool) -> None:
    model = Model((lambda: Model().program) if has_copy else None)
    session = model.program.create_session()
    for count in range(1, 4):
        await session.run("fit", {"x": 1.0})
        assert await session.peek("slow_score") == {"accuracy": count}
        running = asyncio.create_task(session.run("fit", {"x": 0.0}))
        assert await session.peek("score") == {"accuracy": count}
        await running
    await session.close()


async def test_a_cancelled_peek_leaves_no_older_state_in_the_copy() -> None:
    async def set_slowly(_: Any) -> None:
        await asyncio.sleep(5)

    def build() -> FunctionProgram:
        copied = Model()
        program = FunctionProgram(
            get_state=lambda: {"weight": copied.weight},
            set_state=lambda state: (copied.set(state), set_slowly(state))[1],
        )
        program.step(copied.score, read_only=True, name="score")
        return program

    model = Model(build)
    session = model.program.create_session()
    await session.run("fit", {"x": 1.0})
    assert await session.peek("score") == {"accuracy": 1.0}
    await session.run("fit", {"x": 1.0})
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(session.peek(["score", "weight"]), 2)
    assert await session.peek(["score", "weight"]) == [{"accuracy": 2.0}, 2.0]
    await session.close()
