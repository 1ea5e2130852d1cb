"""Peeks beside the steps of a torch program."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch

from asyncmon.programs.torch import TorchProgram
from asyncmon.session_config import SessionConfig

pytestmark = pytest.mark.asyncio


class Net(torch.nn.Linear):
    """Counted by its class."""


class Held:
    """A program whose steps wait, in a thread, until an event is set."""

    def __init__(self) -> None:
        self.may_train, self.may_look, self.trains = (threading.Event() for _ in range(3))
        self.may_train.set()
        self.may_look.set()
        self.program = TorchProgram({"net": Net(1, 1, bias=False), "total": torch.zeros(())})
        self.program.step(self.train)
        self.program.step(self.look, read_only=True)

    def session(self) -> Any:
        return self.program.create_session(config=SessionConfig(inline_ms=0))

    def train(self, state: Any) -> None:
        with torch.no_grad():
            state["total"] += 1
        self.trains.set()
        assert self.may_train.wait(20)
        with torch.no_grad():
            state["net"].weight.fill_(state["total"])

    def look(self, state: Any) -> tuple[float, float]:
        first = float(state["net"].weight)
        assert self.may_look.wait(20)
        return first, float(state["total"])


async def test_a_peek_sees_the_last_complete_step_and_waits_for_none() -> None:
    held = Held()
    session = held.session()
    await session.run("train")
    assert await session.peek("look") == (1, 1)
    await session.run("train")
    assert await session.peek(["look", "global_step"]) == [(2, 2), 2]
    held.may_train.clear()
    held.trains.clear()
    step = asyncio.create_task(session.run("train"))
    await asyncio.to_thread(held.trains.wait)
    for _ in range(2):
        assert await session.peek("look") == (2, 2)
    assert (await session.peek("net/weight")).tolist() == [[2]]
    held.may_train.set()
    await step
    assert await session.peek("look") == (3, 3)
    await session.close()


async def test_a_slow_peek_delays_no_step() -> None:
    held = Held()
    session = held.session()
    await session.run("train")
    await session.peek("look")
    held.may_look.clear()
    slow = asyncio.create_task(session.peek("look"))
    for _ in range(3):
        await session.run("train")
    held.may_look.set()
    first, total = await slow
    assert first == total  # of one version
    assert await session.peek("look") == (4, 4)
    await session.close()


async def test_peeks_without_a_pause_are_of_later_and_later_steps() -> None:
    held = Held()
    session = held.session()
    await session.run("train")
    seen = [await session.peek("look")]

    async def look() -> None:
        while session.global_step < 200 or seen[-1][0] < 200:
            seen.append(await session.peek("look"))

    async with asyncio.TaskGroup() as group:
        looking = [group.create_task(look()) for _ in range(3)]
        for _ in range(199):
            await session.run("train")
    assert all(one.done() for one in looking)
    assert all(first == total for first, total in seen)
    assert seen == sorted(seen)
    assert seen[-1] == (200, 200)
    await session.close()


async def test_a_close_that_is_cancelled_beside_a_peek_closes_the_session() -> None:
    held = Held()
    session = held.session()
    await session.run("train")
    await session.peek("look")
    held.may_look.clear()
    slow = asyncio.create_task(session.peek("look"))
    await asyncio.sleep(0)
    closing = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    closing.cancel()
    held.may_look.set()
    await asyncio.wait([closing, slow])
    assert session.closed
    with pytest.raises(RuntimeError, match="closed Session"):
        await session.run("train")
    await session.close()


async def test_the_name_of_a_module_gives_its_whole_state() -> None:
    program = TorchProgram({"net": torch.nn.BatchNorm1d(2)})
    session = program.create_session()
    state = await session.peek("net")
    assert sorted(state) == sorted(program.state["net"].state_dict())
    assert state["weight"].tolist() == [1, 1]
    await session.close()


async def test_what_no_copy_has_is_read_in_place() -> None:
    model = Net(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    program = TorchProgram({"net": model, "optimizer": optimizer})
    program.step(lambda state: state["optimizer"].param_groups[0]["lr"], name="rate", read_only=True)
    session = program.create_session()
    assert await session.peek("rate") == 0.5
    await session.close()


@pytest.mark.virtual_time
async def test_the_copy_goes_with_the_peeks() -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(one) is Net for one in gc.get_objects())

    before = alive()
    held = Held()
    session = held.session()
    await session.run("train")
    assert alive() == before + 1
    await session.peek("look")
    assert alive() == before + 2
    await asyncio.sleep(59)
    await session.run("train")
    assert alive() == before + 2
    await asyncio.sleep(2)
    await session.run("train")
    assert alive() == before + 1
    assert await session.peek("look") == (3, 3)
    await session.close()


async def test_a_task_may_peek_again_after_a_step_that_awaits() -> None:
    program = TorchProgram({"net": Net(1, 1, bias=False), "total": torch.zeros(())})

    @program.step(read_only=True)
    async def look(state: Any) -> float:
        await asyncio.sleep(0)
        return float(state["total"])

    @program.step
    def train(state: Any) -> None:
        state["total"] += 1

    session = program.create_session()
    for count in range(1, 4):
        await session.run("train")
        assert await session.peek("look") == count
        assert await session.peek(["look", "total"]) == [count, count]
    await session.close()
