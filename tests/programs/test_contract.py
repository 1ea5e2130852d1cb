"""The contract of programs, over graphs and functions, and over programs that break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.programs import FunctionProgram, FunctionSession
from asyncmon.testing import PROGRAM_CASES, ProgramCase, check_program

pytestmark = [pytest.mark.asyncio]


def feeds(number: int) -> dict[str, Any]:
    return {"x": np.arange(4.0) + number}


def graph_case(master: str = "") -> ProgramCase:
    """A line that is fitted by Adam."""
    with g.Graph().as_default() as graph:
        x = g.placeholder(g.float64, [4], name="x")
        weight = g.Variable(np.arange(4.0), name="weight")
        checked = g.Assert(g.logical_not(g.reduce_any(g.greater(x, 100.0))), ["too large"])
        with g.control_dependencies([checked]):
            loss = g.reduce_sum(g.square(g.identity(x) - weight))
        train = g.train.AdamOptimizer(0.1).minimize(loss, g.train.get_or_create_global_step())
    return ProgramCase(
        program=graph, step=train, loss=loss, entry="weight", read=weight, master=master,
        feeds=lambda number: {x: np.arange(4.0) ** 2 + number},
        nan_feeds={x: np.full(4, np.nan)},
        bad_feeds={x: np.full(4, 200.0)},
    )  # fmt: skip


def update(state: dict[str, Any], x: Any) -> dict[str, Any]:
    state["seen"][0] += 1
    state["weight"] *= 0.9
    state["weight"] += x
    state["name"] = f"{x[0]} é"
    if (x > 100).any():
        raise ValueError("too large")
    return {"loss": float(np.square(state["weight"]).sum()), "mean": x.mean()}


class Model:
    """An object with its state inside, which is changed in place."""

    def __init__(self) -> None:
        self.inside = {"weight": np.zeros(4), "seen": [0, True], "name": "model"}

    def get(self) -> dict[str, Any]:
        return self.inside

    def set(self, state: dict[str, Any]) -> None:
        self.inside = {**state, "weight": state["weight"].copy(), "seen": list(state["seen"])}

    def train(self, x: Any) -> dict[str, Any]:
        return update(self.inside, x)


def outside_program() -> FunctionProgram:
    model = Model()
    program = FunctionProgram(get_state=model.get, set_state=model.set)
    program.step(model.train, thread=True)
    return program


def function_case(kind: str) -> ProgramCase:
    program = FunctionProgram({"weight": np.zeros(4), "seen": [0, True], "name": "é", "none": ""})
    if kind == "outside":
        program = outside_program()
    elif kind == "async":

        @program.step
        async def train(state: dict[str, Any], x: Any) -> dict[str, Any]:
            return update(state, x)

    else:
        program.step(update, name="train", thread=kind == "thread")
    return ProgramCase(
        program=program, step="train", loss="loss", entry="weight", feeds=feeds,
        nan_feeds={"x": np.full(4, np.nan)}, bad_feeds={"x": np.full(4, 200.0)},
    )  # fmt: skip


FACTORIES: dict[str, Callable[[], ProgramCase]] = {
    "graph": graph_case,
    "functions": lambda: function_case("async"),
    "plain functions": lambda: function_case("plain"),
    "functions in threads": lambda: function_case("thread"),
    "objects": lambda: function_case("outside"),
}


@pytest.mark.parametrize("case", PROGRAM_CASES)
@pytest.mark.parametrize("name", FACTORIES)
async def test_the_contract(name: str, case: str, tmp_path: Path) -> None:
    await check_program(FACTORIES[name], [case], checkpoint_dir=tmp_path)


@pytest.mark.parametrize(
    "case", ["run_is_one_step", "cancelled_run_is_before_or_after", "snapshot_is_consistent"]
)
async def test_the_contract_in_another_process(case: str, tmp_path: Path) -> None:
    await check_program(lambda: graph_case("local"), [case], checkpoint_dir=tmp_path)


class Broken:
    """The program of :func:`function_case`, with sessions of a class that breaks the contract."""

    def __init__(self, program: FunctionProgram, session: type[FunctionSession]) -> None:
        self._program, self._session = program, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._program, name)

    def create_session(self, target: str = "", config: Any = None) -> Any:
        return self._session(self, self._program.state, self._program.steps)


class LateSnapshot(FunctionSession):
    async def snapshot(self) -> Any:  # wrong: of its await, not of its order
        return await super().snapshot()


class ForgetsTheStep(FunctionSession):
    async def load(self, values: Any) -> None:
        await super().load({name: v for name, v in values.items() if name != "global_step"})


class LoadsInPart(FunctionSession):
    async def load(self, values: Any) -> None:
        await super().load(
            {name: v for name, v in values.items() if name in dict(await self.snapshot())}
        )


class PeeksByRunning(FunctionSession):
    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        return await self.run(fetches, feed_dict)


class OpensAgain(FunctionSession):
    async def close(self) -> None:
        self._closed = not self._closed


class KeepsFailures(FunctionSession):
    async def run(self, fetches: Any, *args: Any) -> Any:  # a coroutine, too
        try:
            return await super().run(fetches, *args)
        except ValueError:
            self._step += 1
            raise


@pytest.mark.parametrize(
    ("session", "case"),
    [
        (LateSnapshot, "snapshot_is_consistent"),
        (ForgetsTheStep, "load_sets_the_state"),
        (LoadsInPart, "wrong_load_changes_nothing"),
        (PeeksByRunning, "peek_changes_nothing"),
        (OpensAgain, "close_is_final"),
        (ForgetsTheStep, "interrupted_training_resumes_exactly"),
        (KeepsFailures, "failed_step_changes_nothing"),
    ],
)
async def test_a_program_that_breaks_the_contract_is_found_out(
    session: type[FunctionSession], case: str, tmp_path: Path
) -> None:
    def factory() -> ProgramCase:
        sound = function_case("async")
        return replace(sound, program=Broken(sound.program, session))

    with pytest.raises(AssertionError) as caught:
        await check_program(factory, [case], checkpoint_dir=tmp_path)
    assert f"In the case {case!r} of check_program." in caught.value.__notes__


async def test_all_cases_run_in_one_call() -> None:
    await check_program(FACTORIES["functions"])
    with pytest.raises(KeyError, match="no_such_case"):
        await check_program(FACTORIES["functions"], ["no_such_case"])
