"""The two kinds of program that the runtime's tests run over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.dtypes import float32
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import identity, placeholder
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.variables.global_step import create_global_step, get_global_step
from asyncmon.graph.variables.variable import Variable
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, MonitoredSession, SingularMonitoredSession


@dataclass
class World:
    """A program that adds its feeds to a weight and counts its steps, and names for its parts.

    ``train`` gives the weight after the step and needs the feed ``{x: ...}``; ``weight`` reads it.
    """

    program: Any
    train: Any
    x: Any
    x_by_name: Any
    weight: Any

    def creator(self, **kwargs: Any) -> ChiefSessionCreator:
        return ChiefSessionCreator(program=self.program, **kwargs)

    def session(self, hooks: Any = None, *, checkpoint_dir: Path | None = None, **kwargs: Any) -> Any:
        creator = self.creator(checkpoint_dir=checkpoint_dir)
        return MonitoredSession(creator, hooks=hooks, **kwargs)

    def singular(self, hooks: Any = None, **kwargs: Any) -> Any:
        return SingularMonitoredSession(hooks=hooks, program=self.program, **kwargs)

    def feed(self, value: float = 1.0) -> dict[Any, Any]:
        return {self.x: value}


def graph_world() -> World:
    with Graph().as_default() as graph:
        step = create_global_step()
        x = placeholder(float32, [], name="x")
        weight = Variable(np.float32(0), name="weight")
        with control_dependencies([assign_add(step, 1)]):
            train = identity(assign_add(weight, x), name="train")
        assert get_global_step() is step
    return World(graph, train, x, "x:0", weight)


def function_world() -> World:
    program = FunctionProgram(state={"weight": np.float32(0)})

    @program.step
    async def train(state: dict[str, Any], x: float) -> Any:
        state["weight"] += x
        return state["weight"]

    return World(program, "train", "x", "x", "weight")


WORLDS = {"graph": graph_world, "functions": function_world}


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest) -> World:
    """The world of a graph, and that of functions."""
    return WORLDS[request.param]()
