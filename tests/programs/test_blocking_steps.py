"""Plain steps in the loop or in a worker, states inside of objects, optional fetches."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.errors import FailedPreconditionError, NotFoundError
from asyncmon.programs import FunctionProgram, optional
from asyncmon.testing import RecordingHook

pytestmark = pytest.mark.asyncio


def where(seconds: float) -> str:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return threading.current_thread().name


MAIN = threading.main_thread().name


async def test_a_long_step_moves_to_a_worker_and_a_short_one_stays() -> None:
    session = FunctionProgram(steps={"long": where, "short": lambda: where(0)}).create_session()
    assert [await session.run("short") for _ in range(20)] == [MAIN] * 20
    names = [await session.run("long", {"seconds": 0.005}) for _ in range(5)]
    assert names[0] == MAIN  # not measured yet
    assert MAIN not in names[1:]
    assert await session.run("short") == MAIN
    await session.close()


async def test_the_thread_of_a_step_can_be_chosen_and_the_limit_is_that_of_the_config() -> None:
    program = FunctionProgram()
    program.step(where, name="worker", thread=True)
    program.step(where, name="loop", thread=False)
    program.step(where, name="measured")
    session = program.create_session()
    assert await session.run("worker", {"seconds": 0}) != MAIN
    assert [await session.run("loop", {"seconds": 0.005}) for _ in range(3)] == [MAIN] * 3
    await session.close()
    none_inline = program.create_session(config=am.SessionConfig(inline_ms=0))
    assert await none_inline.run("measured", {"seconds": 0}) != MAIN
    await none_inline.close()
    with pytest.raises(TypeError, match="is async def and runs in the loop"):
        program.step(asyncio.sleep, name="sleep", thread=True)

    class Sleeps:
        async def __call__(self) -> None: ...

    with pytest.raises(TypeError, match="is async def and runs in the loop"):
        program.step(Sleeps(), name="object", thread=True)


async def test_a_worker_does_not_hold_the_loop_and_a_cancelled_run_waits_for_it() -> None:
    begun, go = threading.Event(), threading.Event()
    program = FunctionProgram({"w": np.zeros(2)})

    @program.step(thread=True)
    def train(state: dict[str, Any]) -> None:
        state["w"] += 1
        begun.set()
        assert go.wait(10)

    @program.step(read_only=True, thread=True)
    def look(state: dict[str, Any]) -> float:
        return float(state["w"].sum())

    session = program.create_session()
    run = asyncio.ensure_future(session.run("train"))
    assert await asyncio.to_thread(begun.wait, 10)
    assert await session.run("look") == 0
    run.cancel()
    await asyncio.sleep(0)
    assert not run.done()
    go.set()
    await asyncio.wait([run])
    assert run.cancelled()
    assert (await session.run("look"), session.global_step) == (0, 0)
    await session.run("train")
    assert (await session.run("look"), session.global_step) == (2, 1)
    await session.close()


async def test_a_plain_step_that_returns_an_awaitable_stays_in_the_loop() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 7

    def call() -> Any:
        where(0.003)
        return asyncio.ensure_future(later())

    session = FunctionProgram(steps={"call": call}).create_session()
    assert [await session.run("call") for _ in range(4)] == [7] * 4


async def test_an_error_in_a_worker_is_raised_and_leaves_the_state() -> None:
    def step(state: dict[str, Any]) -> None:
        state["n"] = 3
        raise LookupError("no")

    program = FunctionProgram({"n": 0})
    program.step(step, thread=True)
    session = program.create_session()
    with pytest.raises(LookupError, match="no"):
        await session.run("step")
    assert await session.run("n") == 0
    await session.close()


class Counter:
    """An object whose state may grow."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {"total": np.zeros(1)}

    def program(self) -> FunctionProgram:
        program = FunctionProgram(
            get_state=lambda: self.state, set_state=lambda state: setattr(self, "state", dict(state))
        )

        @program.step
        def add(x: float) -> dict[str, Any]:
            self.state["total"] = self.state["total"] + x
            if x < 0:
                self.state["negative"] = True
            return {"total": float(self.state["total"][0])}

        @program.step(read_only=True)
        async def look() -> float:
            return float(self.state["total"][0])

        return program


async def test_the_state_of_an_object_is_undone_with_a_step_and_set_by_load() -> None:
    counter = Counter()
    session = counter.program().create_session()
    assert await session.run(["add", "look"], {"x": 2.0}) == [{"total": 2.0}, 2.0]
    with pytest.raises(TypeError, match=r"another form than at the start.*must keep the keys"):
        await session.run("add", {"x": -1.0})
    assert counter.state["total"].tolist() == [2.0]
    with pytest.raises(NotFoundError):
        await session.run(["add", "nowhere"], {"x": 1.0})
    assert await session.peek("look") == await session.run("look") == 2.0
    assert (await session.run("total")).tolist() == [2.0]
    await session.load({"total": np.array([9.0])})
    assert counter.state["total"].tolist() == [9.0]
    assert await session.run("add", {"x": 1.0}) == {"total": 10.0}


async def test_objects_belong_to_one_session_at_a_time() -> None:
    program = Counter().program()
    first, second = program.create_session(), program.create_session()
    await first.run("add", {"x": 1.0})
    with pytest.raises(FailedPreconditionError, match="Another session of this program is open"):
        await second.run("add", {"x": 1.0})
    await first.close()
    assert await second.run("add", {"x": 1.0}) == {"total": 1.0}


async def test_what_goes_with_get_state_is_checked() -> None:
    with pytest.raises(ValueError, match="get_state and set_state, which go together"):
        FunctionProgram(get_state=dict)
    with pytest.raises(ValueError, match="get_state and set_state, which go together"):
        FunctionProgram({"a": 1}, get_state=dict, set_state=print)
    program = FunctionProgram(get_state=lambda: {"a": 1}, set_state=print)
    with pytest.raises(TypeError, match="the state of this program is in the objects of get_state"):
        program.step(lambda state: None, name="wrong")

    async def state() -> dict[str, Any]:
        return {}

    with pytest.raises(TypeError, match="get_state must be a plain function"):
        FunctionProgram(get_state=state, set_state=print)


async def test_hooks_fetch_from_any_running_step(tmp_path: Path) -> None:
    program = FunctionProgram(
        steps={"a": lambda: {"loss": 1.0}, "b": lambda: {"score": 2.0}}, read_only=["b"]
    )
    hook = RecordingHook(fetches={"loss": optional("loss"), "a": optional("a", "not run")})
    async with am.MonitoredSession(am.ChiefSessionCreator(program=program), [hook]) as sess:
        await sess.run("a")
        assert await sess.run({"b": "b", "more": optional("nothing", 5)}) == {
            "b": {"score": 2.0}, "more": 5,
        }  # fmt: skip
        assert await sess.peek([optional("loss"), "b"]) == [None, {"score": 2.0}]
    assert [values.results for values in hook.values] == [
        {"loss": 1.0, "a": {"loss": 1.0}},
        {"loss": None, "a": "not run"},
    ]
    strict = RecordingHook(fetches="loss")
    with pytest.raises(NotFoundError, match=r"called 'loss'.*A hook .* fetches optional\('loss'\)"):
        async with am.MonitoredSession(am.ChiefSessionCreator(program=program), [strict]) as sess:
            await sess.run("b")
    with pytest.raises(TypeError, match="optional\\(\\) takes the name of a value, got 5"):
        optional(5)  # type: ignore[arg-type]  # the mistake under test
