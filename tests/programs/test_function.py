"""Programs of functions over a declared state."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from asyncmon.errors import DeadlineExceededError, InvalidArgumentError, NotFoundError
from asyncmon.programs import FunctionProgram
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def counting() -> FunctionProgram:
    program = FunctionProgram(
        state={"w": np.zeros(2), "lr": 0.5, "opt": {"m": [np.ones(3, np.float32), 0]}, "done": False}
    )

    @program.step
    async def train(state: dict[str, Any], batch: Any, scale: float = 1.0) -> dict[str, Any]:
        state["w"] += batch * scale
        state["opt"]["m"][1] += 1
        return {"loss": float(state["w"].sum()), "count": state["opt"]["m"][1]}

    @program.step(read_only=True)
    def evaluate(state: dict[str, Any]) -> float:
        return float(state["w"].sum())

    return program


async def test_a_step_is_called_with_state_and_feeds_and_its_result_returned() -> None:
    session = counting().create_session()
    assert await session.run("train", {"batch": 2.0}) == {"loss": 4.0, "count": 1}
    assert await session.run("train", {"batch": 1.0, "scale": 3.0}) == {"loss": 10.0, "count": 2}
    assert session.global_step == 2
    assert await session.run("evaluate") == 10.0
    assert session.global_step == 2


async def test_fetches_come_back_in_their_structure() -> None:
    class Pair(NamedTuple):
        first: Any
        second: Any

    @dataclass
    class Data:
        loss: Any

    session = counting().create_session()
    fetches = {
        "t": "train",
        "more": ["loss", ("opt/m/1", "lr")],
        "p": Pair("w", "global_step"),
        "d": Data("loss"),
    }
    got = await session.run(fetches, {"batch": 1.0})
    assert got["t"] == {"loss": 2.0, "count": 1}
    assert got["more"] == [2.0, (1, 0.5)]
    assert isinstance(got["p"], Pair)
    assert got["p"].first.tolist() == [1.0, 1.0]
    assert got["p"].second == 1
    assert got["d"] == Data(2.0)
    counted = await session.run(defaultdict(list, {"w": "w"}))
    assert counted["new"] == []
    assert type(await session.run(MappingProxyType({"w": "w"}))) is MappingProxyType
    assert await session.run([]) == []
    assert await session.run("w") is not None
    assert session.global_step == 1


async def test_each_step_of_a_run_is_called_once_and_in_order() -> None:
    calls: list[str] = []
    program = FunctionProgram(steps={"a": lambda: calls.append("a"), "b": lambda: calls.append("b")})
    session = program.create_session()
    await session.run(["b", "a", "b"])
    assert calls == ["b", "a"]
    assert session.global_step == 1


@pytest.mark.parametrize("how", ["raise", "cancel", "unknown fetch", "other form"])
async def test_a_step_that_does_not_complete_leaves_the_state_as_it_was(how: str) -> None:
    program = FunctionProgram(state={"w": np.zeros(2), "n": 0, "items": [1, {"x": 2.0}]})

    @program.step
    async def step(state: dict[str, Any]) -> None:
        state["w"] += 1
        state["n"] = 7
        state["items"][1]["x"] = 9.0
        if how == "raise":
            raise ValueError("no")
        if how == "cancel":
            await asyncio.Event().wait()
        if how == "other form":
            state["items"].append(3)

    session = program.create_session()
    task = asyncio.create_task(session.run(["step", "nowhere"] if how == "unknown fetch" else "step"))
    await wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises((ValueError, asyncio.CancelledError, NotFoundError, TypeError)):
        await task
    snapshot = await session.snapshot()
    assert {name: value.tolist() for name, value in snapshot.items()} == {
        "w": [0, 0], "n": 0, "items/0": 1, "items/1/x": 2.0, "global_step": 0,
    }  # fmt: skip
    assert session.global_step == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"w": np.zeros(3)},
            r"state\['w'\] must stay an array of shape \(2,\) and dtype float64, found sh",
        ),
        ({"w": np.zeros(2, complex)}, "dtype complex128"),
        ({"n": 1.5}, r"state\['n'\] must stay a int, found 1\.5"),
        ({"flag": 2}, r"state\['flag'\] must stay a bool, found 2"),
        ({"items": {}}, r"state\['items'\] must stay a list of 1"),
        ({"new": 1}, r"state must keep the keys"),
    ],
)
async def test_a_change_of_form_is_refused_and_named(change: dict[str, Any], message: str) -> None:
    declared = {"w": np.zeros(2), "n": 1, "flag": True, "items": [1]}
    program = FunctionProgram(declared, {"step": lambda state: state.update(change)})
    with pytest.raises(TypeError, match=message):
        await program.create_session().run("step")


async def test_values_are_converted_to_what_was_declared() -> None:
    declared = {"w": np.zeros(2, np.float32), "x": 1.0, "n": 1}

    def step(state: dict[str, Any]) -> None:
        state.update(w=[1, 2], x=np.float64(2.5), n=np.asarray(5))

    session = FunctionProgram(declared, {"step": step}).create_session()
    wrong = FunctionProgram({"w": np.zeros(1, np.int8)}, {"step": lambda state: state.update(w=[2.5])})
    with pytest.raises(TypeError, match=r"dtype int8, found shape .* and dtype float64"):
        await wrong.create_session().run("step")
    await session.run("step")
    snapshot = await session.snapshot()
    assert snapshot["w"].dtype == np.float32
    assert (await session.run("x"), await session.run("n")) == (2.5, 5)


async def test_what_a_step_keeps_does_not_reach_into_the_state() -> None:
    kept: list[Any] = []

    def step(state: dict[str, Any]) -> Any:
        kept.append(buffer := np.ones(2))
        state["new"] = buffer
        kept.append(state["old"])
        return state["old"]

    session = FunctionProgram({"new": np.zeros(2), "old": np.zeros(2)}, {"step": step}).create_session()
    result = await session.run("step")
    for array in (*kept, result):
        array[:] = 99
    with pytest.raises(ValueError, match="read-only"):
        (await session.run("old"))[:] = 99
    assert (await session.run("new")).tolist() == [1, 1]
    assert (await session.run("old")).tolist() == [0, 0]


async def test_a_snapshot_is_free_and_stays_as_it_was() -> None:
    session = counting().create_session()
    await session.run("train", {"batch": 1.0})
    ordered = session.snapshot()
    await session.run("train", {"batch": 1.0})
    snapshot = await ordered
    assert snapshot.step == 1
    assert snapshot["w"].tolist() == [1, 1]
    assert sorted(snapshot) == ["done", "global_step", "lr", "opt/m/0", "opt/m/1", "w"]


async def test_load_sets_by_name_or_reports_everything() -> None:
    session = counting().create_session()
    await session.load(
        {"w": np.array([3.0, 4.0]), "opt/m/1": np.asarray(8), "global_step": 5, "done": True}
    )
    assert session.global_step == 5
    assert await session.run("evaluate") == 7.0
    assert await session.run(["opt/m/1", "done"]) == [8, True]
    with pytest.raises(InvalidArgumentError) as caught:
        await session.load({"w": np.zeros(3), "v": 1, "lr": 1j, "opt/m/1": np.asarray(0)})
    for part in (
        "'w' has shape (2,)",
        "'v' is not an entry",
        "'lr' has dtype float64",
        "Nothing was loaded",
    ):
        assert part in str(caught.value)
    assert await session.run("opt/m/1") == 8


async def test_the_state_may_declare_and_count_its_own_global_step() -> None:
    program = FunctionProgram({"global_step": 10}, {"step": lambda state: state.update(global_step=12)})
    session = program.create_session()
    assert session.global_step == 10
    await session.run("step")
    assert session.global_step == 12
    assert sorted(await session.snapshot()) == ["global_step"]


async def test_init_sets_the_declared_state() -> None:
    program = counting()
    session = program.create_session()
    await session.run("train", {"batch": 1.0})
    assert await session.run(program.init_op()) is None
    assert session.global_step == 0
    assert await session.run("evaluate") == 0.0


async def test_steps_that_change_state_come_one_after_another_and_readers_do_not_wait() -> None:
    program = FunctionProgram({"n": 0})

    @program.step
    async def slow(state: dict[str, Any]) -> None:
        n = state["n"]
        await asyncio.sleep(1)
        state["n"] = n + 1

    @program.step(read_only=True)
    async def read(state: dict[str, Any]) -> int:
        n: int = state["n"]
        return n

    session = program.create_session()
    runs = [asyncio.create_task(session.run("slow")) for _ in range(3)]
    await asyncio.sleep(1.5)
    assert await session.run("read") == await session.peek("read") == await session.peek("n") == 1
    await asyncio.gather(*runs)
    assert await session.run("n") == 3


async def test_peek_refuses_what_changes_state_by_name() -> None:
    program = counting()
    session = program.create_session()
    assert await session.peek(["w", "evaluate"]) is not None
    with pytest.raises(InvalidArgumentError, match=r"peek\(\) cannot fetch \['train'\]"):
        await session.peek(["w", "train"], {"batch": 1.0})
    with pytest.raises(InvalidArgumentError, match=r"peek\(\) cannot fetch \['init'\]"):
        await session.peek(program.init_op())


async def test_wrong_feeds_and_fetches_are_named() -> None:
    session = counting().create_session()
    with pytest.raises(
        InvalidArgumentError, match="You must feed a value for 'batch' of the step 'train'"
    ):
        await session.run("train")
    with pytest.raises(
        InvalidArgumentError, match=r"No step has a parameter 'bach' to feed\. There are: \['b"
    ):
        await session.run("train", {"bach": 1.0})
    with pytest.raises(TypeError, match=r"feed_dict must map .* to values, got \['batch'\]"):
        await session.run("train", ["batch"])  # type: ignore[arg-type]  # the error is the test
    with pytest.raises(
        NotFoundError,
        match=r"The program has no 'nowhere': it has the steps \[.*'train'",
    ):
        await session.run("nowhere")
    with pytest.raises(NotFoundError, match=r"is called 'nowhere'. Steps that ran: \['evaluate'\]"):
        await session.run(["evaluate", "nowhere"], {"batch": 1.0})
    with pytest.raises(TypeError, match="Cannot be None"):
        await session.run(None)
    with pytest.raises(TypeError, match="Fetches of functions are names, got 5"):
        await session.run([5])
    await session.run("evaluate", {"batch": 1.0})  # another step's feed is no mistake


async def test_timeout_and_metadata() -> None:
    async def sleep(secs: float) -> None:
        await asyncio.sleep(secs)

    async def own_timeout() -> None:
        raise TimeoutError("mine")

    session = FunctionProgram(steps={"sleep": sleep, "own": own_timeout}).create_session()
    with pytest.raises(DeadlineExceededError, match=r"took longer than its timeout of 0\.5 s"):
        await session.run("sleep", {"secs": 10}, RunOptions(timeout_in_ms=500))
    with pytest.raises(TimeoutError, match="mine"):
        await session.run("own", options=RunOptions(timeout_in_ms=500))
    metadata = RunMetadata()
    await session.run("sleep", {"secs": 0}, run_metadata=metadata)
    assert metadata.duration > 0
    assert session.global_step == 1


async def test_a_closed_session_says_so() -> None:
    session = counting().create_session()
    await session.close()
    await session.close()
    for call in (lambda: session.run("evaluate"), lambda: session.peek("w"), lambda: session.load({})):
        with pytest.raises(RuntimeError, match=r"Attempted to use a closed Session\."):
            await call()
    with pytest.raises(RuntimeError, match="closed Session"):
        session.snapshot()


async def test_what_cannot_be_declared_is_refused() -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]\[0\] is b'bytes'; state is made of arrays"):
        FunctionProgram({"a": [b"bytes"]})
    with pytest.raises(ValueError, match=r"state\['a'\] must not end with a null character"):
        FunctionProgram({"a": "text\0"})
    with pytest.raises(TypeError, match="keys of state must be strings"):
        FunctionProgram({1: 2})  # type: ignore[dict-item]  # the mistake under test
    with pytest.raises(ValueError, match="'/' separates levels"):
        FunctionProgram({"a/b": 2})
    with pytest.raises(ValueError, match="The name 'w' is taken"):
        FunctionProgram({"w": 1}, {"w": lambda state: None})
    with pytest.raises(ValueError, match="read_only names no step"):
        FunctionProgram({"w": 1}, read_only=["nowhere"])
    with pytest.raises(TypeError, match="must be a function, got 5"):
        FunctionProgram(steps={"a": 5})  # type: ignore[dict-item]  # the mistake under test
    with pytest.raises(TypeError, match="is a generator"):
        FunctionProgram(steps={"a": (lambda: (yield))})
    with pytest.raises(TypeError, match="cannot be given by name"):
        FunctionProgram(steps={"a": lambda x, /: x})
    with pytest.raises(NotFoundError, match="No session factory registered for target 'grpc://x'"):
        FunctionProgram().create_session("grpc://x")


async def test_a_finalized_program_takes_no_more_steps() -> None:
    program = counting()
    program.finalize()
    with pytest.raises(RuntimeError, match="The program is finalized: the step 'more' cannot be added"):
        program.step(lambda: None, name="more")
    assert program.describe() == {"type": "FunctionProgram", "steps": ["train", "evaluate"]}
    assert program.canonical_feed("batch") == "batch"
    with pytest.raises(TypeError, match=r"names of the steps. parameters, got 5"):
        program.canonical_feed(5)


async def test_parameters_find_the_state_by_name_or_by_place() -> None:
    def by_name(batch: int, state: Any) -> Any:
        return batch, state["n"]

    def by_place(anything: Any, **feeds: Any) -> Any:
        return anything["n"], feeds

    session = FunctionProgram({"n": 3}, {"name": by_name, "place": by_place}).create_session()
    assert await session.run("name", {"batch": 1}) == (1, 3)
    assert await session.run("place", {"batch": 1}) == (3, {"batch": 1})
    without = FunctionProgram(steps={"add": lambda a, b: a + b}).create_session()
    assert await without.run("add", {"a": 1, "b": 2}) == 3


async def test_a_loop_of_steps_that_never_wait_lets_others_have_a_turn() -> None:
    program = FunctionProgram(steps={"step": lambda: None})
    session, turns = program.create_session(), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    while turns < 3:
        await session.run("step")
    task.cancel()


async def test_a_model_that_writes_into_the_saved_state_is_explained() -> None:
    """As scikit-learn's MiniBatchKMeans does, with numpy's error or Cython's."""
    model = {"w": np.zeros(3)}
    program = FunctionProgram(get_state=lambda: dict(model), set_state=model.update)

    @program.step
    def train() -> None:
        model["w"] += 1

    session = program.create_session()
    await session.run(program.init_op())
    with pytest.raises(ValueError, match="is read-only") as caught:
        await session.run("train")
    assert "set_state stores copies" in caught.value.__notes__[0]
    await session.close()
