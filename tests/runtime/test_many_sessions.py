"""Sessions of one loop share its time: each has its turns, at any cost of their steps."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace

import pytest

import asyncmon as am
from asyncmon.programs import FunctionProgram
from asyncmon.system import loop_budget

pytestmark = pytest.mark.asyncio

COSTS = [0.00001, 0.00003, 0.0001, 0.0003, 0.0009] * 4
"""Seconds that a step of each session holds the loop."""


class Shares:
    """A counted clock, and the holders of the loop on it.

    Attributes:
        turns: the numbers of sessions, one for each time that the loop passed to another.
        held: seconds by session.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.turns: list[int] = []
        self.held: Counter[int] = Counter()

    def session(self, number: int) -> am.MonitoredSession:
        async def train() -> None:
            self.now += COSTS[number]
            self.held[number] += COSTS[number]
            if self.turns[-1:] != [number]:
                self.turns.append(number)

        program = FunctionProgram(steps={"train": train})
        return am.MonitoredSession(am.ChiefSessionCreator(program=program))


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Shares:
    found = Shares()
    clock = SimpleNamespace(perf_counter=lambda: found.now)
    monkeypatch.setattr(loop_budget, "time", clock)
    return found


async def train_all(shares: Shares, secs: float) -> None:
    all_are_open = asyncio.Barrier(len(COSTS))

    async def train(number: int) -> None:
        async with shares.session(number) as sess:
            await all_are_open.wait()
            while shares.now < secs:
                await sess.run("train")

    async with asyncio.TaskGroup() as group:
        for number in range(len(COSTS)):
            group.create_task(train(number))


async def test_each_session_has_a_turn_in_each_round(shares: Shares) -> None:
    await train_all(shares, 2.0)
    rounds = len(shares.turns) // len(COSTS)
    assert rounds > 100
    for number in range(len(COSTS)):
        at = [i for i, turn in enumerate(shares.turns) if turn == number]
        assert max(b - a for a, b in pairwise(at)) <= len(COSTS) + 1
        assert abs(len(at) - rounds) <= 2


async def test_sessions_with_equal_steps_have_equal_shares(shares: Shares) -> None:
    await train_all(shares, 2.0)
    for cost in set(COSTS):
        alike = [shares.held[n] for n in range(len(COSTS)) if COSTS[n] == cost]
        assert max(alike) < 1.05 * min(alike)


async def test_a_turn_is_as_long_for_any_cost_of_a_step_but_the_last(shares: Shares) -> None:
    await train_all(shares, 2.0)
    turns = Counter(shares.turns)
    for number, cost in enumerate(COSTS):
        assert 0.0001 < shares.held[number] / turns[number] < 0.0001 + 1.2 * cost + 0.00002
