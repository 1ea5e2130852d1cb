"""A step of functions is a transaction, for any use of the arguments by the functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import InvalidArgumentError
from asyncmon.programs import FunctionProgram, FunctionSession
from asyncmon.programs.function_session import CopyOnAccess
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

OPT = {"m": [np.zeros(3), 1.5]}
DECLARED: dict[str, Any] = {"w": np.zeros((2, 2)), "n": 0, "opt": OPT, "flat": np.zeros(4)}


async def everything(session: FunctionSession) -> dict[str, Any]:
    return {name: value.tolist() for name, value in (await session.snapshot()).items()}


def change_all(state: dict[str, Any]) -> None:
    """Write in place, as deep as it goes."""
    state["w"][0] += 1
    np.add(state["flat"], 1, out=state["flat"])
    state["opt"]["m"][0][:] = 7
    state["opt"]["m"][1] = 9.0
    state["opt"]["m"].reverse()
    state["n"] = 5


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError(), KeyboardInterrupt()])
async def test_what_was_written_in_place_is_gone_when_the_step_fails(
    error: BaseException, plain: bool
) -> None:
    def step(state: dict[str, Any]) -> None:
        change_all(state)
        raise error

    async def async_step(state: dict[str, Any]) -> None:
        change_all(state)
        await asyncio.sleep(1)
        raise error

    session = FunctionProgram(DECLARED, {"s": step if plain else async_step}).create_session()
    before = await everything(session)
    with pytest.raises(type(error)):
        await session.run("s")
    assert await everything(session) == before
    assert DECLARED["w"].tolist() == [[0, 0], [0, 0]]


async def test_a_thread_that_a_cancelled_step_left_behind_writes_into_nothing() -> None:
    given: list[Any] = []

    async def step(state: dict[str, Any]) -> None:
        given.append(state)
        await asyncio.Event().wait()

    session = FunctionProgram(DECLARED, {"s": step, "ok": lambda state: None}).create_session()
    before = await everything(session)
    task = asyncio.create_task(session.run("s"))
    await wait_all_tasks_blocked()
    task.cancel()
    await asyncio.wait([task])
    change_all(given[0])
    await session.run("ok")
    assert await everything(session) == before | {"global_step": 1}


VIEWS: dict[str, Callable[[np.ndarray[Any, Any]], Any]] = {
    "itself": lambda w: w,
    "row": lambda w: w[0],
    "slice": lambda w: w[:, ::-1],
    "transposed": lambda w: w.T,
    "flat": lambda w: w.reshape(-1),
    "buffer": lambda w: np.frombuffer(w.data, dtype=w.dtype),
}


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("view", VIEWS)
async def test_a_view_that_outlives_the_step_does_not_reach_into_the_state(
    view: str, returned: bool
) -> None:
    kept: list[Any] = []

    def step(state: dict[str, Any]) -> Any:
        state["w"] += 1
        found = VIEWS[view](state["w"])
        return found if returned else kept.append(found)

    session = FunctionProgram(DECLARED, {"s": step}).create_session()
    result = await session.run("s")
    snapshot = await session.snapshot()
    (result if returned else kept[0])[...] = 99
    assert snapshot["w"].tolist() == [[1, 1], [1, 1]]
    assert (await session.run("w")).tolist() == [[1, 1], [1, 1]]


async def test_an_array_that_only_the_state_has_is_taken_over_without_a_copy() -> None:
    addresses: list[int] = []

    async def step(state: dict[str, Any]) -> float:
        w, m = state["w"], state["opt"]["m"][0]
        addresses.extend([w.ctypes.data, m.ctypes.data])
        await asyncio.sleep(0)
        w += 1
        return float(w.sum())

    session = FunctionProgram(DECLARED, {"s": step}).create_session()
    await session.run("s")
    snapshot = await session.snapshot()
    assert [snapshot["w"].ctypes.data, snapshot["opt/m/0"].ctypes.data] == addresses


async def test_the_same_array_in_two_places_is_two_arrays_afterwards() -> None:
    def alias(state: dict[str, Any]) -> None:
        state["a"] += 1
        state["b"] = state["a"]
        state["c"] = state["a"][::-1]

    def write(state: dict[str, Any]) -> None:
        state["a"][0] = 50

    declared = {"a": np.arange(3.0), "b": np.zeros(3), "c": np.zeros(3)}
    session = FunctionProgram(declared, {"alias": alias, "write": write}).create_session()
    await session.run("alias")
    await session.run("write")
    values = await everything(session)
    assert values == {"a": [50, 2, 3], "b": [1, 2, 3], "c": [3, 2, 1], "global_step": 2}


async def test_arrays_swapped_by_a_step_are_swapped() -> None:
    def swap(state: dict[str, Any]) -> None:
        state["a"], state["b"] = state["b"], state["a"]

    session = FunctionProgram({"a": np.zeros(2), "b": np.ones(2)}, {"swap": swap}).create_session()
    for expected in (1.0, 0.0, 1.0):
        await session.run("swap")
        assert (await session.run("a")).tolist() == [expected] * 2


async def test_sharers_of_an_array_are_found() -> None:
    state = {name: np.zeros(2) for name in ("alone", "view", "kept", "nowhere")}
    borrowed = CopyOnAccess({**state, "deep": {"alone": [np.zeros(1)], "kept": [np.zeros(1)]}})
    others = [borrowed["view"][:1], borrowed["kept"], borrowed["deep"]["kept"][0]]
    alone = [id(borrowed["alone"]), id(borrowed["deep"]["alone"][0])]
    borrowed["nowhere"]
    del borrowed["nowhere"]
    assert set(alone) <= set(borrowed.unshared())
    assert not {id(borrowed["view"]), id(borrowed["kept"]), id(others[2])} & set(borrowed.unshared())


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda state: state.update(n=4), r"set state\['n'\]"),
        (lambda state: state["opt"]["m"].append(4), r"set state\['opt'\]\['m'\]"),
        (lambda state: state["opt"]["m"].__setitem__(1, 4), r"set state\['opt'\]\['m'\]\[1\]"),
        (lambda state: state.pop("n"), r"set state"),
        (lambda state: state.update(w=np.ones((2, 2))), r"set state\['w'\]"),
    ],
)
async def test_a_read_only_step_that_sets_something_fails(
    change: Callable[[Any], Any], where: str, beside: bool
) -> None:
    """Also where a step that may change the state runs beside it, whose changes are not kept then."""

    def look(state: dict[str, Any]) -> None:
        change(state)

    steps = {"train": change_number, "look": look}
    session = FunctionProgram(DECLARED, steps, read_only=["look"]).create_session()
    before = await everything(session)
    with pytest.raises(TypeError, match=f"The step 'look' is read_only, and {where}"):
        await session.run(["train", "look"] if beside else "look")
    assert await everything(session) == before


def change_number(state: dict[str, Any]) -> None:
    state["w"] += 1
    state["n"] += 1


async def test_a_read_only_step_sees_what_the_steps_before_it_made_and_cannot_write_to_it() -> None:
    def look(state: dict[str, Any]) -> tuple[float, int]:
        with pytest.raises(ValueError, match="read-only"):
            state["w"] += 1
        with pytest.raises(ValueError, match="read-only"):
            state["flat"][0] = 1
        return float(state["w"].sum()), state["n"]

    steps = {"train": change_number, "look": look}
    session = FunctionProgram(DECLARED, steps, read_only=["look"]).create_session()
    assert await session.run(["train", "look"]) == [None, (4.0, 1)]
    assert await session.run("look") == await session.peek("look") == (4.0, 1)


async def test_to_initialise_waits_for_the_step_under_way() -> None:
    go = asyncio.Event()
    program = FunctionProgram({"n": 0})

    @program.step
    async def train(state: dict[str, Any]) -> None:
        state["n"] += 1
        await go.wait()

    session = program.create_session()
    step = asyncio.create_task(session.run("train"))
    await wait_all_tasks_blocked()
    again = asyncio.create_task(session.run(program.init_op()))
    await wait_all_tasks_blocked()
    assert not again.done()
    go.set()
    await asyncio.gather(step, again)
    assert (await session.run("n"), session.global_step) == (0, 0)
    with pytest.raises(InvalidArgumentError, match=r"in one run with the steps \['train'\]"):
        await session.run([program.init_op(), "train"])


async def test_a_session_closed_during_a_load_loads_nothing() -> None:
    go = asyncio.Event()

    async def wait(state: dict[str, Any]) -> None:
        await go.wait()

    session = FunctionProgram({"n": 0}, {"wait": wait}).create_session()
    step = asyncio.create_task(session.run("wait"))
    await wait_all_tasks_blocked()
    load = asyncio.create_task(session.load({"n": 5}))
    await wait_all_tasks_blocked()
    await session.close()
    go.set()
    await step
    with pytest.raises(RuntimeError, match="closed Session"):
        await load
