"""Processes that train together, here two sessions in one loop: how they begin and how they stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.programs.process_group import (
    DifferentRunsError,
    ProcessGroupHook,
    hook_fingerprints,
    load_own_states,
    own_states_of,
    restored_states_of,
)

pytestmark = pytest.mark.asyncio


class Exchange:
    """What the two members of a group give in each round."""

    def __init__(self) -> None:
        self.barrier = asyncio.Barrier(2)
        self.given: list[Any] = [None, None]

    async def all(self, number: int, value: Any) -> list[Any]:
        self.given[number] = value
        await self.barrier.wait()
        found = list(self.given)
        await self.barrier.wait()
        return found


class Member(ProcessGroupHook):
    def __init__(self, exchange: Exchange, number: int) -> None:
        super().__init__()
        self._exchange, self._number = exchange, number

    async def share_state(self, session: Any) -> None:
        with await session.snapshot() as snapshot:
            given = dict(snapshot), await restored_states_of(session)
        (values, first), _ = await self._exchange.all(self._number, given)
        if self._number:
            await session.load(values)
            await load_own_states(session, first, first)

    async def gather_stops(self, own: dict[str, Any] | None, run: int) -> list[dict[str, Any] | None]:
        as_array = np.array(run, np.int32)  # as engines exchange it: a larger number is an error
        found = await self._exchange.all(self._number, (own, int(as_array)))
        if any(stop for stop, _ in found):
            return [stop for stop, _ in found]
        if len({one for _, one in found}) > 1:
            raise DifferentRunsError
        return []


class Counter(am.SessionRunHook):
    def __init__(self) -> None:
        self.counted = 0
        self.begun: int | None = None

    async def after_create_session(self, session: Any, coord: Any) -> None:
        self.begun = session.global_step

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.counted += 1

    def state_dict(self) -> dict[str, int]:
        return {"counted": self.counted}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.counted = state["counted"]


async def both(
    directory: Path, steps: int, act: Callable[[int, Any], Any] = lambda number, sess: None
) -> list[tuple[Counter, Any]]:
    """Train with two members, of which the first saves, and return their hooks and sessions."""
    exchange = Exchange()

    async def train(number: int) -> tuple[Counter, Any]:
        program = FunctionProgram({"weight": 0})

        @program.step
        async def step(state: Any) -> None:
            state["weight"] += 1

        @program.step(read_only=True)
        async def look(state: Any) -> int:
            return int(state["weight"])

        counter = Counter()
        hooks = [*Member(exchange, number).hooks(), counter, am.StopAtStepHook(num_steps=steps)]
        place = None if number else directory
        async with am.MonitoredTrainingSession(
            program=program, checkpoint_dir=place, hooks=hooks
        ) as sess:
            while not sess.should_stop():
                await sess.run("step")
                if (acted := act(number, sess)) is not None:
                    await acted
        return counter, sess

    return await asyncio.gather(*map(train, range(2)))


async def test_hooks_of_all_begin_at_the_step_and_with_the_states_of_the_first(tmp_path: Path) -> None:
    await both(tmp_path, 3)
    found = await both(tmp_path, 4)
    assert [(counter.begun, counter.counted) for counter, _ in found] == [(3, 7), (3, 7)]
    assert [sess.global_step for _, sess in found] == [7, 7]


async def test_the_stop_of_another_has_its_number_and_kind(tmp_path: Path) -> None:
    def act(number: int, sess: Any) -> None:
        if number and sess.global_step == 2:
            sess.request_stop("enough")

    (_, first), _ = await both(tmp_path, 9, act)
    assert first.stop_reason == "process 1 stops: enough"
    assert (first.outcome.state, first.global_step) == ("stopped", 2)


async def test_a_run_of_one_alone_is_an_error_of_all(tmp_path: Path) -> None:
    def act(number: int, sess: Any) -> Any:
        return sess.run("look") if number and sess.global_step == 2 else None

    with pytest.raises(am.errors.FailedPreconditionError, match="and another one runs others"):
        await both(tmp_path, 9, act)


async def test_equal_states_of_hooks_are_not_sent() -> None:
    program = FunctionProgram({"weight": 0})
    async with am.MonitoredTrainingSession(program=program, hooks=[counter := Counter()]) as sess:
        raw = sess.raw_session()
        known = await hook_fingerprints(raw)
        same = await own_states_of(raw, known)
        counter.counted = 5
        other = await own_states_of(raw, known)
        counter.counted = 0
        await load_own_states(raw, same, other)
        assert counter.counted == 5
        await load_own_states(raw, other, same)
        assert counter.counted == 5
    assert "Counter" in str(other["data"])
    assert str(same["data"]) == "{}"
