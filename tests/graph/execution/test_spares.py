"""Memory for the copies that a snapshot costs: ready before it is needed, freed when it is not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution.spares import Spares

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

SIZE = 1 << 18  # float32: a megabyte


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class Counter:
    """A session with a large variable that each step adds 1 to."""

    def __init__(self) -> None:
        self.variable = tf.Variable(np.zeros(SIZE, np.float32), name="v")
        self.step = self.variable.assign_add(tf.ones([SIZE])).op
        self.session = tf.Session()

    async def __aenter__(self) -> Counter:
        await self.session.run(self.variable.initializer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def train(self) -> int:
        """Do a step, and return where the variable lies then."""
        await self.session.run(self.step)
        return address(self.session._store.values[self.session._store.slot("v")])


async def test_a_row_of_snapshots_takes_turns_with_the_same_memory() -> None:
    async with Counter() as counter:
        seen = [await counter.train()]
        for expected in range(1, 5):
            counter.session.expect_snapshot(1.0)
            with await counter.session.snapshot() as snapshot:
                seen.append(await counter.train())
                assert (snapshot["v"] == expected).all()
        assert seen[1] != seen[0]
        assert set(seen) == set(seen[:2])
        assert (await counter.session.run(counter.variable) == 5).all()


async def test_what_somebody_still_looks_at_is_not_written_to() -> None:
    async with Counter() as counter:
        await counter.train()
        counter.session.expect_snapshot(1.0)
        with await counter.session.snapshot() as snapshot:
            looked_at = snapshot["v"]
            await counter.train()
        with await counter.session.snapshot():
            await counter.train()
        assert (looked_at == 1).all()


async def test_nothing_is_kept_where_no_snapshot_is_expected_soon() -> None:
    async with Counter() as counter:
        await counter.train()
        kept = counter.session._store.spares._arrays
        for secs in (None, 600.0):
            if secs is not None:
                counter.session.expect_snapshot(secs)
            with await counter.session.snapshot():
                await counter.train()
            assert not kept


async def test_what_is_kept_is_freed_when_the_snapshot_does_not_come() -> None:
    async with Counter() as counter:
        await counter.train()
        counter.session.expect_snapshot(1.0)
        with await counter.session.snapshot():
            await counter.train()
        kept = counter.session._store.spares._arrays
        await asyncio.sleep(1.9)
        assert kept
        await asyncio.sleep(0.2)
        assert not kept


async def test_memory_is_made_ready_in_a_thread_for_what_steps_write() -> None:
    tf.Variable(np.zeros(SIZE, np.float32), name="frozen")
    async with Counter() as counter:
        await counter.session.run(tf.global_variables_initializer())
        await counter.train()
        spares, store = counter.session._store.spares, counter.session._store
        assert store.in_place == {store.slot("v")}
        spares.expect(0.001, [store.values[i] for i in store.in_place])
        done = threading.Event()
        spares._worker.start(done.set)
        await asyncio.to_thread(done.wait)
        (ready,) = spares._arrays[(SIZE,), np.dtype(np.float32)]
        there = address(ready)
        del ready
        with await counter.session.snapshot():
            assert await counter.train() == there


async def test_no_memory_is_made_ready_while_a_snapshot_will_let_go_of_as_much() -> None:
    async with Counter() as counter:
        await counter.train()
        with await counter.session.snapshot():
            counter.session.expect_snapshot(1.0)
            assert not counter.session._store.spares._worker._started


async def test_making_ready_stops_when_it_is_too_late() -> None:
    spares = Spares()
    too_late = threading.Event()
    too_late.set()
    spares.expect(1.0, [])
    spares._make_ready([((SIZE,), np.dtype(np.float32))], 3600.0, too_late)
    assert not spares._arrays
    spares._make_ready([((SIZE,), np.dtype(np.float32))], 0.0, threading.Event())
    assert len(spares._arrays) == 1
    spares.give_back()
    spares._make_ready([((SIZE,), np.dtype(np.float32))], 0.0, threading.Event())
    assert not spares._arrays
    spares.close()


async def test_arrays_of_another_kind_are_of_no_use() -> None:
    spares = Spares()
    spares.expect(1.0, [])
    large = np.zeros(SIZE, np.float32)
    spares.keep([large, large[1:], np.zeros(3), 5])
    assert list(spares._arrays) == [((SIZE,), np.dtype(np.float32))]
    assert spares.like(large) is not large  # it has a name here
    assert spares.like(np.zeros((2, 2))).shape == (2, 2)
    spares.close()


async def test_nothing_is_left_after_the_session() -> None:
    async with Counter() as counter:
        await counter.train()
        counter.session.expect_snapshot(1.0)
        snapshot = await counter.session.snapshot()
        await counter.train()
    snapshot.release()
    assert not counter.session._store.spares._arrays


async def test_variables_that_are_updated_together_take_turns_with_the_same_memory() -> None:
    made = [tf.Variable(np.zeros(size, np.float32), name=f"v{size}") for size in (100_000, 50_000)]
    grads = [tf.ones([100_000]), tf.ones([50_000])]
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients(zip(grads, made, strict=True))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        seen = []
        for steps in range(1, 6):
            sess.expect_snapshot(1.0)
            with await sess.snapshot() as snapshot:
                await sess.run(op)
                assert (snapshot["v50000"] == -steps).all()
            ((flats, _),) = sess._store.homes.values()
            seen.append([address(flat) for flat in flats])
        assert seen[0] != seen[1]
        assert seen == [seen[0], seen[1], seen[0], seen[1], seen[0]]
        for value in await sess.run(made):
            assert (value == -6).all()
