"""Versions of the state: where commits write while one is pinned or read, and what memory is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution import state

pytestmark = pytest.mark.asyncio

SIZE = 1 << 18


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass for the state."""
    now = [100.0]
    monkeypatch.setattr(state, "perf_counter", lambda: now[0])

    def wait(secs: float) -> None:
        now[0] += secs

    return wait


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class Counters:
    """A session with variables that each step adds 1 to: a large one, and small ones together."""

    def __init__(self) -> None:
        self.variables = [tf.Variable(np.zeros(n, np.float32), name=f"v{n}") for n in (SIZE, 300, 200)]
        ones = [(-tf.ones_like(v), v) for v in self.variables]
        self.step = tf.train.GradientDescentOptimizer(1.0).apply_gradients(ones)
        self.session = tf.Session()
        self.store = self.session.backend.store
        self.slots = tuple(self.store.slot(v.op) for v in self.variables)

    async def __aenter__(self) -> Counters:
        await self.session.run(tf.global_variables_initializer())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def train(self) -> tuple[int, ...]:
        """Do a step, and return where the variables lie then."""
        await self.session.run(self.step)
        return tuple(address(self.store.values[slot]) for slot in self.slots)

    async def check(self, steps: int) -> None:
        for value in await self.session.run(self.variables):
            assert (value == steps).all()


async def test_a_commit_writes_in_place_where_nothing_is_pinned() -> None:
    async with Counters() as counters:
        assert len({await counters.train() for _ in range(3)}) == 1


async def test_snapshots_in_a_row_take_turns_with_the_same_memory(wait: Any) -> None:
    async with Counters() as counters:
        seen = []
        for step in range(7):
            wait(1.0)
            with await counters.session.snapshot() as snapshot:
                seen.append(await counters.train())
                assert all((snapshot[v.op.name] == step).all() for v in counters.variables)
        assert seen[1:] == [seen[1], seen[2]] * 3  # the first one came as a surprise
        assert not set(seen[1]) & set(seen[2])
        await counters.check(7)


async def test_a_pinned_version_is_not_written_and_costs_its_own_memory_only(wait: Any) -> None:
    async with Counters() as counters:
        await counters.train()
        kept = [await counters.session.snapshot()]
        first = await counters.train()
        assert await counters.train() == first  # nothing has pinned that one
        kept.append(await counters.session.snapshot())
        second = await counters.train()
        kept[0].release()
        kept.append(await counters.session.snapshot())
        third = await counters.train()
        assert len({first, second, third}) == 3
        for snapshot, step in zip(kept[1:], (3, 4), strict=True):
            assert all((snapshot[v.op.name] == step).all() for v in counters.variables)
            snapshot.release()
        await counters.check(5)


async def test_a_commit_writes_elsewhere_only_what_is_pinned() -> None:
    async with Counters() as counters:
        before = await counters.train()
        pin = await counters.store.pinned(lambda pin: pin, counters.slots[:1])
        after = await counters.train()
        assert after[0] != before[0]
        assert after[1:] == before[1:]
        assert (pin.values[counters.slots[0]] == 1).all()
        counters.store.unpin(pin)
        assert await counters.train() == after
        await counters.check(3)


async def test_nothing_is_kept_for_snapshots_that_are_rare(wait: Any) -> None:
    async with Counters() as counters:
        for _ in range(3):
            wait(600.0)
            with await counters.session.snapshot():
                await counters.train()
            assert not counters.store.free_arrays


async def test_memory_comes_back_when_snapshots_stop(wait: Any) -> None:
    async with Counters() as counters:
        for _ in range(3):
            with await counters.session.snapshot():
                await counters.train()
        assert counters.store.free_arrays
        wait(4.9)
        await counters.train()
        assert counters.store.free_arrays
        wait(0.2)
        await counters.train()
        assert not counters.store.free_arrays
        await counters.check(5)


async def test_memory_comes_back_when_steps_stop_and_snapshots_continue(wait: Any) -> None:
    async with Counters() as counters:
        for _ in range(3):
            counters.store.note_read(counters.slots)
            await counters.train()
        assert counters.store.free_arrays
        wait(5.1)
        (await counters.session.snapshot()).release()
        assert not counters.store.free_arrays
        await counters.train()
        await counters.check(4)


async def test_a_state_that_is_read_often_takes_turns_with_two_pieces_of_memory(wait: Any) -> None:
    async with Counters() as counters:
        await counters.train()
        for _ in range(2):
            wait(0.9)
            counters.store.note_read(counters.slots)
        seen = [await counters.train() for _ in range(6)]
        assert seen == [seen[0], seen[1]] * 3
        assert not set(seen[0]) & set(seen[1])
        wait(1.1)
        assert await counters.train() == await counters.train() == seen[1]
        await counters.check(9)


async def test_only_what_is_read_often_is_written_elsewhere(wait: Any) -> None:
    async with Counters() as counters:
        before = await counters.train()
        for _ in range(2):
            counters.store.note_read(counters.slots[:1])
        after = await counters.train()
        assert after[0] != before[0]
        assert after[1:] == before[1:]


async def test_rare_reads_leave_commits_in_place(wait: Any) -> None:
    async with Counters() as counters:
        seen = set()
        for _ in range(4):
            wait(1.1)
            counters.store.note_read(counters.slots)
            seen.add(await counters.train())
        assert len(seen) == 1
