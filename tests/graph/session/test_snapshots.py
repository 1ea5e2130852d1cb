"""Snapshots: consistent, shared until written, and loading them back."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import table
from asyncmon.graph.execution.state import RANDOM_STATE

pytestmark = pytest.mark.asyncio


async def test_a_snapshot_holds_the_global_variables_and_the_step() -> None:
    tf.Variable([1.0, 2.0], name="w")
    tf.Variable(1, name="local", trainable=False, collections=[tf.GraphKeys.LOCAL_VARIABLES])
    tf.Variable(1, name="not_initialised", trainable=False)
    step = tf.create_global_step()
    async with tf.Session() as sess:
        await sess.run(
            [tf.get_default_graph().get_operation_by_name(f"{n}/Assign") for n in ("w", "global_step")]
        )
        await sess.run(step.assign_add(3))
        with await sess.snapshot() as snapshot:
            assert set(snapshot) == {"w", "global_step"}
            assert snapshot["w"].tolist() == [1, 2]
            assert (snapshot["global_step"], snapshot.step) == (3, 3)
            with pytest.raises(ValueError, match="read-only"):
                snapshot["w"][0] = 5


async def test_a_snapshot_keeps_its_version_while_steps_continue() -> None:
    v = tf.Variable(np.zeros(10_000), name="v")
    step = v.assign_add(tf.ones([10_000], tf.float64)).op
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        snapshots = []
        for _ in range(3):
            snapshots.append(await sess.snapshot())
            await sess.run(step)
        assert [s["v"][0] for s in snapshots] == [0, 1, 2]
        assert all((s["v"] == s["v"][0]).all() for s in snapshots)
        assert (await sess.run(v))[0] == 3


def stored(sess: tf.Session, variable: tf.Variable) -> Any:
    store = sess.backend.store
    return store.values[store.slot(variable.op)]


async def test_a_snapshot_shares_until_it_is_released() -> None:
    v = tf.Variable(np.zeros(10_000), name="v")
    step = v.assign_add(tf.ones([10_000], tf.float64)).op
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        before = stored(sess, v)
        snapshot = await sess.snapshot()
        assert np.shares_memory(snapshot["v"], before)
        await sess.run(step)
        after = stored(sess, v)
        assert after is not before
        snapshot.release()
        await sess.run(step)
        assert stored(sess, v) is after  # in place again
        snapshot = await sess.snapshot()
        del snapshot
        gc.collect()
        await sess.run(step)
        assert stored(sess, v) is after


async def test_a_snapshot_is_ordered_at_the_call() -> None:
    v = tf.Variable(0, name="v")
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        ordered = sess.snapshot()
        await sess.run(v.assign_add(1))
        assert (await ordered)["v"] == 0


async def test_a_snapshot_ordered_while_a_commit_is_applied_comes_right_after_it() -> None:
    applying, go_on = threading.Event(), threading.Event()

    def slow_update(ref: Any, value: Any) -> None:
        applying.set()
        assert go_on.wait(10)
        ref += value

    table.pop("SlowUpdate", None)
    tf.register(
        tf.VariableOpDef("SlowUpdate", None, lambda r, x: tf.Spec(r.dtype, r.shape), update=slow_update)
    )
    v = tf.Variable(np.zeros(1000), name="v")
    step = tf.create_operation("SlowUpdate", (v, tf.ones([1000], tf.float64)))
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        await sess.run(v.initializer)
        running = asyncio.create_task(sess.run(step))
        assert await asyncio.to_thread(applying.wait, 10)
        ordered = sess.snapshot()
        dropped = sess.snapshot()
        peeking = asyncio.create_task(sess.peek(tf.reduce_sum(v)))
        cancelled = asyncio.create_task(sess.peek(tf.reduce_sum(v)))
        await asyncio.sleep(0)
        cancelled.cancel()
        del dropped
        go_on.set()
        await running
        assert (await ordered)["v"].tolist() == [1] * 1000
        assert await peeking == 1000
        await asyncio.wait([cancelled])


async def test_what_was_snapshot_can_be_loaded() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    x = tf.random_uniform([2])
    async with tf.Session() as first, tf.Session() as second:
        await first.run(v.initializer)
        await first.run([x, v.assign_add([1.0, 1.0])])
        snapshot = await first.snapshot()
        assert RANDOM_STATE in snapshot
        await second.load(snapshot)
        assert (await second.run(v)).tolist() == [2, 3]
        assert (await second.run(x) == await first.run(x)).all()


async def test_loading_checks_everything_before_it_changes_anything() -> None:
    a = tf.Variable([1.0, 2.0], name="a")
    tf.Variable(1, name="b")
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await sess.load(
                {
                    "a": np.zeros(2, np.float32),
                    "b": np.zeros(()),
                    "c": 1,
                    "a/Assign": 1,
                    RANDOM_STATE: np.zeros(2),
                }
            )
        text = str(caught.value)
        assert "'b' has dtype int32, the value float64" in text
        assert "'c' is not a variable" in text
        assert "'a/Assign' is not a variable" in text
        assert RANDOM_STATE in text
        with pytest.raises(
            errors.InvalidArgumentError, match=r"'a' has shape \(2,\), the value \(3,\)"
        ):
            await sess.load({"a": np.zeros(3, np.float32)})
        assert (await sess.run(a)).tolist() == [1, 2]


async def test_loaded_arrays_are_copied() -> None:
    v = tf.Variable(np.zeros(1000), name="v")
    source = np.ones(1000)
    async with tf.Session() as sess:
        await sess.load({"v": source})
        await sess.run(v.assign_add(tf.ones([1000], tf.float64)))
        assert source[0] == 1
        source[0] = 9
        assert (await sess.run(v))[0] == 2


async def test_loading_waits_for_its_turn_and_can_be_cancelled() -> None:
    v = tf.Variable(0, name="v")
    gate = asyncio.Event()

    async def hold(_v: Any) -> Any:
        await gate.wait()
        return np.int32(1)

    slow = v.assign_add(tf.reshape(tf.py_func(hold, [v], tf.int32), []))
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        running = asyncio.create_task(sess.run(slow))
        await asyncio.sleep(0)
        loads = [asyncio.create_task(sess.load({"v": np.int32(n)})) for n in (10, 20)]
        await asyncio.sleep(0)
        loads[1].cancel()
        gate.set()
        await asyncio.gather(running, *loads, return_exceptions=True)
        assert await sess.run(v) == 10


async def test_strings_are_saved_and_loaded() -> None:
    v = tf.Variable(["a", "b"], name="v", trainable=False)
    async with tf.Session() as sess:
        await sess.load({"v": ["c", "d"]})
        assert (await sess.run(v)).tolist() == [b"c", b"d"]
        assert (await sess.snapshot())["v"].tolist() == [b"c", b"d"]
