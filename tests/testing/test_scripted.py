"""``ScriptedSession`` keeps to its script and to the session protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from asyncmon.errors import AbortedError, InvalidArgumentError, OutOfRangeError
from asyncmon.system import clock
from asyncmon.testing import ScriptedCreator, ScriptedSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Pair(NamedTuple):
    a: Any
    b: Any


async def test_outcomes_come_in_order_and_then_the_data_ends() -> None:
    session = ScriptedSession([0.5, {"loss": 2.0}, None])
    assert await session.run("loss") == 0.5
    assert await session.run("loss") == 2.0
    assert await session.run("loss") is None
    with pytest.raises(OutOfRangeError, match="at its end"):
        await session.run("loss")
    assert session.global_step == 3


@pytest.mark.parametrize("error", [AbortedError("gone"), AbortedError])
async def test_an_error_is_raised_and_does_no_step(error: Any) -> None:
    session = ScriptedSession([error, 1.0])
    with pytest.raises(AbortedError):
        await session.run("loss")
    assert session.global_step == 0
    assert await session.run("loss") == 1.0
    assert session.runs == ["loss", "loss"]


@pytest.mark.parametrize("wrap", [lambda fn: fn, lambda fn: lambda: fn()])
async def test_a_callable_takes_its_time(wrap: Callable[[Any], Any]) -> None:
    async def slow() -> float:
        await asyncio.sleep(5)
        return 1.5

    assert await ScriptedSession([wrap(slow)]).run("x") == 1.5
    assert clock.monotonic() == 5


async def test_results_have_the_structure_of_the_fetches() -> None:
    session = ScriptedSession([{"a": 1, "b": 2}], values={"c": lambda: 3}, state={"w": [4, 5]})
    result = await session.run({"x": ["a", ("b",)], "y": Pair("c", "w"), "z": "train"})
    assert result["x"] == [1, (2,)]
    assert result["y"].a == 3
    assert result["y"].b.tolist() == [4, 5]
    assert result["z"] is None


async def test_the_step_can_be_set_or_jump() -> None:
    session = ScriptedSession([None, {"global_step": 50}, None], steps_per_run=7)
    steps = []
    for _ in range(3):
        await session.run("train")
        steps.append(session.global_step)
    assert steps == [7, 50, 57]


async def test_a_peek_does_not_move_the_script() -> None:
    session = ScriptedSession([1.0], values={"loss": 9.0})
    assert await session.peek(["loss", "global_step"]) == [9.0, 0]
    assert session.global_step == 0


async def test_snapshot_is_of_the_moment_of_the_call_and_loads_back() -> None:
    session = ScriptedSession(state={"w": np.zeros(2)})
    await session.run("train")
    ordered = session.snapshot()
    await session.run("train")
    snapshot = await ordered
    assert snapshot.step == 1
    await session.load({"w": [1.0, 2.0], "global_step": 40})
    assert session.global_step == 40
    assert snapshot["w"].tolist() == [0, 0]


async def test_load_reports_everything_before_it_changes_anything() -> None:
    session = ScriptedSession(state={"w": np.zeros(2)})
    with pytest.raises(InvalidArgumentError, match="Nothing was loaded") as caught:
        await session.load({"global_step": 5, "v": 1, "w": 1})
    assert "'v' is not an entry of the state" in str(caught.value)
    assert "'w' has shape (2,), the value ()" in str(caught.value)
    assert session.global_step == 0


async def test_a_closed_session_refuses() -> None:
    session = ScriptedSession()
    await session.close()
    await session.close()
    with pytest.raises(RuntimeError, match="closed Session"):
        await session.run("x")


async def test_the_creator_hands_out_sessions_and_errors() -> None:
    first, second = ScriptedSession(), ScriptedSession()
    creator = ScriptedCreator(first, AbortedError("not yet"), second)
    assert await creator.create_session() is first
    with pytest.raises(AbortedError):
        await creator.create_session()
    assert await creator.create_session() is second
    with pytest.raises(RuntimeError, match="no session left after 2"):
        await creator.create_session()


async def test_the_creator_refuses_what_is_no_session() -> None:
    """A class or a function, given in haste, would fail far away from here."""
    with pytest.raises(TypeError, match="takes sessions and exceptions, got <class"):
        ScriptedCreator(ScriptedSession)  # type: ignore[arg-type]  # the wrong type under test
