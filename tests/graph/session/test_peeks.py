"""Peeks beside steps in a worker: one whole version each, without waiting for what a step writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import table
from asyncmon.graph.execution import update

pytestmark = pytest.mark.asyncio

IN_WORKER = tf.SessionConfig(inline_ms=0)
SIZES = (3000, 300, 200, 100)  # of float32, the last one updated by rows


class Gate:
    """Updates that add to a variable, when they are allowed to."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.open.set()

    def add(self, ref: Any, value: Any) -> None:
        self.entered.set()
        assert self.open.wait(10)
        ref += value

    def fail(self, ref: Any, value: Any) -> None:
        self.add(ref, value)
        raise MemoryError("no room")

    async def hold(self, step: Any) -> asyncio.Task[Any]:
        """Start a step, and return when it is writing."""
        self.open.clear()
        self.entered.clear()
        task = asyncio.create_task(step)
        assert await asyncio.to_thread(self.entered.wait, 10)
        return task


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    for name, function, blockwise in (
        ("GatedAdd", gate.add, True),
        ("GatedAddRows", gate.add, False),
        ("GatedFailure", gate.fail, True),
    ):
        tf.register(
            tf.VariableOpDef(
                name,
                None,
                lambda ref, x: tf.Spec(ref.dtype, ref.shape),
                update=function,
                blockwise=blockwise,
            )
        )
    yield gate
    gate.open.set()
    for name in ("GatedAdd", "GatedAddRows", "GatedFailure"):
        del table[name]


class Training:
    """A session whose step adds 1 to all variables, in a worker."""

    def __init__(self, kind: str = "GatedAdd") -> None:
        self.variables = [tf.Variable(np.zeros(n, np.float32), name=f"v{n}") for n in SIZES]
        self.variables.append(tf.Variable(0.0, name="scalar"))
        self.step = [tf.create_operation(kind, (v, tf.ones_like(v))) for v in self.variables]
        self.everything = [tf.identity(v) for v in self.variables]
        self.session = tf.Session(config=IN_WORKER)

    async def __aenter__(self) -> Training:
        await self.session.run(tf.global_variables_initializer())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def train(self) -> None:
        await self.session.run(self.step)

    async def peek(self) -> float:
        """Return the number of steps that all elements of all variables have seen."""
        values = await self.session.peek(self.everything)
        (found,) = {float(x) for value in values for x in np.ravel(value)}
        return found

    async def read_often(self, gate: Gate, fetches: Any = None) -> None:
        """Do a step, and peek beside it until steps write to other memory than the peek reads."""
        step = await gate.hold(self.train())
        fetches = self.everything if fetches is None else tf.identity(fetches)
        peeks = [asyncio.create_task(self.session.peek(fetches)) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(peek.done() for peek in peeks)  # the first ones wait
        gate.open.set()
        await step
        await asyncio.wait(peeks)


async def test_a_peek_does_not_wait_for_what_a_step_writes(gate: Gate) -> None:
    async with Training() as training:
        await training.read_often(gate)
        step = await gate.hold(training.train())
        assert await training.peek() == await training.peek() == 1
        gate.open.set()
        await step
        assert await training.peek() == 2


async def test_a_peek_waits_for_nothing_but_what_it_reads(gate: Gate) -> None:
    async with Training() as training:
        frozen, counter = tf.Variable(7.0, trainable=False), tf.Variable(0, trainable=False)
        await training.session.run([frozen.initializer, counter.initializer])
        step = await gate.hold(training.session.run([*training.step, counter.assign_add(1)]))
        assert await training.session.peek([frozen + 0.0, counter + 0]) == [7, 0]
        gate.open.set()
        await step
        assert await training.session.peek(counter + 0) == 1


async def test_a_snapshot_waits_for_what_no_peek_reads(gate: Gate) -> None:
    async with Training() as training:
        await training.read_often(gate, training.variables[0])
        step = await gate.hold(training.train())
        assert (await training.session.peek(training.everything[0]) == 1).all()
        ordered = training.session.snapshot()
        await asyncio.sleep(0)
        assert not ordered.done()
        gate.open.set()
        await step
        assert all((value == 2).all() for value in (await ordered).values())


async def test_a_peek_waits_for_what_is_written_row_by_row(gate: Gate) -> None:
    async with Training("GatedAddRows") as training:
        await training.read_often(gate)
        step = await gate.hold(training.train())
        peek = asyncio.create_task(training.peek())
        await asyncio.sleep(0)
        assert not peek.done()
        gate.open.set()
        assert await peek == 2
        await step


async def test_a_cancelled_peek_leaves_nothing_pinned(gate: Gate) -> None:
    async with Training() as training:
        step = await gate.hold(training.train())
        peeks = [asyncio.create_task(training.peek()) for _ in range(3)]
        await asyncio.sleep(0)
        for peek in peeks:
            peek.cancel()
        gate.open.set()
        await step
        assert all(
            isinstance(x, asyncio.CancelledError)
            for x in await asyncio.gather(*peeks, return_exceptions=True)
        )
        assert await training.peek() == 1
        assert not training.session.backend.store._pins


async def test_a_snapshot_beside_peeks_stays_what_it_was(gate: Gate) -> None:
    async with Training() as training:
        await training.read_often(gate)
        kept = []
        for steps in range(1, 6):
            snapshot = await training.session.snapshot()
            kept.append((steps, snapshot))
            step = await gate.hold(training.train())
            assert await training.peek() == steps
            gate.open.set()
            await step
        for steps, snapshot in kept:
            assert all((value == steps).all() for value in snapshot.values())


async def test_a_peek_that_takes_long_sees_one_version(gate: Gate) -> None:
    async with Training() as training:
        await training.read_often(gate)
        waiting, go_on = asyncio.Event(), asyncio.Event()

        async def hold(x: Any) -> Any:
            waiting.set()
            await go_on.wait()
            return x

        first, last = training.variables[0], training.variables[-1]
        later = [tf.py_func(hold, [last], tf.float32), first]
        peek = asyncio.create_task(training.session.peek(later))
        await waiting.wait()
        for _ in range(4):
            await training.train()
            await training.peek()
        go_on.set()
        scalar, value = await peek
        assert scalar == 1
        assert (value == 1).all()
        assert await training.peek() == 5


async def test_an_update_that_fails_beside_the_state_leaves_it_as_it_was(gate: Gate) -> None:
    async with Training() as training:
        failing = tf.create_operation("GatedFailure", (training.variables[0], tf.ones([SIZES[0]])))
        await training.read_often(gate)
        with pytest.raises(MemoryError):
            await training.session.run([training.step[1], failing])
        assert await training.peek() == 1
        await training.train()
        assert await training.peek() == 2


async def test_a_broken_state_is_not_read(gate: Gate) -> None:
    async with Training() as training:
        failing = tf.create_operation("GatedFailure", (training.variables[0], tf.ones([SIZES[0]])))
        step = await gate.hold(training.session.run(failing))
        peek = asyncio.create_task(training.peek())
        ordered = training.session.snapshot()
        await asyncio.sleep(0)
        gate.open.set()
        for reading in (step, peek, ordered):
            with pytest.raises(errors.InternalError, match="no longer consistent"):
                await reading
        with pytest.raises(errors.InternalError, match="no longer consistent"):
            await training.session.snapshot()


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
async def test_peeks_beside_many_steps_see_whole_versions(
    optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every variable has had the same gradients, so all elements of a version are equal."""
    monkeypatch.setattr(update, "_BLOCK", 1 << 13)
    monkeypatch.setattr(update, "_PARALLEL", 1 << 13)
    made = tf.train.MomentumOptimizer(0.1, 0.5) if optimizer == "momentum" else tf.train.AdamOptimizer()
    variables = [tf.Variable(np.zeros(n, np.float32)) for n in (150_000, 3000, 300, 1)]
    scalar, count = tf.Variable(0.0), tf.create_global_step()
    gradients = [(tf.ones_like(v) * 0.5, v) for v in (*variables, scalar)]
    step = made.apply_gradients(gradients, global_step=count)
    everything = [*(tf.identity(v) for v in variables), tf.identity(scalar), tf.identity(count)]
    seen: dict[int, float] = {}
    async with tf.Session(config=IN_WORKER) as sess:
        await sess.run(tf.global_variables_initializer())

        async def look() -> None:
            *values, steps = await sess.peek(everything)
            (found,) = {float(x) for value in values for x in np.unique(value)}
            assert seen.setdefault(int(steps), found) == found
            assert int(steps) >= max(seen)

        async def looking() -> None:
            while True:
                await look()
                await asyncio.sleep(0)

        task = asyncio.create_task(looking())
        for _ in range(60):
            await sess.run(step)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()
        await look()
    assert len(seen) > 10
    assert max(seen) == 60
    assert len(set(seen.values())) == len(seen)
