"""A step is a transaction: all of its writes or none, in every failure."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import table

pytestmark = pytest.mark.asyncio

SIZE = 100_000
THREADED = tf.SessionConfig(inline_ms=0)


def two_counters() -> tuple[tf.Variable, tf.Variable]:
    return tf.Variable(np.zeros(SIZE)), tf.Variable(0)


def plain() -> Any:
    a, b = two_counters()
    return a, b, [a.assign_add(tf.ones([SIZE], tf.float64)).op, b.assign_add(1)]


@pytest.mark.parametrize("config", [tf.SessionConfig(inline_ms=1000), THREADED])
async def test_a_failing_run_changes_nothing(config: tf.SessionConfig) -> None:
    a, b, step = plain()
    p = tf.placeholder(tf.float32)
    bad = tf.check_numerics(p, "bad")
    late = a.assign(tf.py_func(lambda: np.zeros(3), [], tf.float64))  # of a wrong shape
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(errors.InvalidArgumentError, match="NaN"):
            await sess.run([step, bad], {p: np.nan})
        with pytest.raises(errors.InvalidArgumentError, match=r"the variable has .*, the value \(3,\)"):
            await sess.run([late, b.assign_add(1)])
        first, second = await sess.run([a, b])
        assert second == 0
        assert not first.any()


@pytest.mark.parametrize("config", [tf.SessionConfig(inline_ms=1000), THREADED, None])
async def test_concurrent_steps_lose_no_update(config: tf.SessionConfig | None) -> None:
    a, b, step = plain()

    async def work(n: int) -> None:
        for _ in range(n):
            await sess.run(step)
            await asyncio.sleep(0)

    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        await asyncio.gather(*(work(25) for _ in range(4)))
        first, second = await sess.run([a, b])
    assert second == 100
    assert (first == 100).all()


async def test_waiting_runs_come_in_the_order_of_their_calls() -> None:
    order: list[int] = []
    v = tf.Variable(0)
    gate = asyncio.Event()

    async def hold(_v: Any) -> Any:
        await gate.wait()
        return np.int32(1)

    slow = v.assign_add(tf.reshape(tf.py_func(hold, [v], tf.int32), []))
    note = tf.placeholder(tf.int32, [])
    with tf.control_dependencies([tf.py_func(lambda n: order.append(int(n)), [note], [])]):
        quick = v.assign_add(note)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        first = asyncio.create_task(sess.run(slow))
        await asyncio.sleep(0)
        others = []
        for n in (3, 1, 2):
            others.append(asyncio.create_task(sess.run(quick, {note: n})))
            await asyncio.sleep(0)
        assert order == []
        gate.set()
        await asyncio.gather(first, *others)
        assert order == [3, 1, 2]
        assert await sess.run(v) == 7


async def test_a_cancelled_waiter_hands_its_turn_on() -> None:
    v = tf.Variable(0)
    gate = asyncio.Event()

    async def hold(_v: Any) -> Any:
        await gate.wait()
        return np.int32(1)

    slow = v.assign_add(tf.reshape(tf.py_func(hold, [v], tf.int32), []))
    step = v.assign_add(1)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        tasks = [asyncio.create_task(sess.run(slow))]
        await asyncio.sleep(0)
        tasks += [asyncio.create_task(sess.run(step)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[2].cancel()
        gate.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(r) for r in results].count(asyncio.CancelledError) == 1
        assert await sess.run(v) == 3


async def test_producers_run_while_a_step_waits_for_its_input() -> None:
    v, w = tf.Variable(0), tf.Variable(0)
    gate = asyncio.Event()

    async def arrive() -> Any:
        await gate.wait()
        return np.int32(5)

    step = v.assign_add(tf.reshape(tf.py_func(arrive, [], tf.int32), []))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        waiting = asyncio.create_task(sess.run(step))
        await asyncio.sleep(0)
        for n in range(1, 4):
            assert await sess.run(w.assign_add(1)) == n
        gate.set()
        assert await waiting == 5


async def test_reads_see_the_state_before_the_runs_writes() -> None:
    v = tf.Variable(np.zeros(1000))
    scalar = tf.Variable(0)
    add, inc = v.assign_add(tf.ones([1000], tf.float64)), scalar.assign_add(1)
    late_sum = tf.reduce_sum(v)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for n in range(3):
            got = await sess.run([late_sum, add.op, tf.identity(scalar), inc, v.value()[0], scalar * 2])
            assert got == [1000 * n, None, n, n + 1, n, 2 * n]


@pytest.mark.parametrize("size", [(), (3,), (1000,)])
@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_a_fetched_variable_is_read_after_the_runs_writes(
    inline_ms: float, size: tuple[int, ...]
) -> None:
    v = tf.Variable(np.zeros(size), name="v")
    once = tf.group(v.assign_add(tf.ones(size, tf.float64)))
    before = [tf.identity(v), v.read_value()]
    after = [v, "v:0", v.value(), tf.get_default_graph().get_tensor_by_name("v:0")]
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        results = await sess.run([v.initializer, v])
        assert np.sum(results[1]) == 0
        for n in range(3):
            for fetches in ([*after, once, *before], [v, once]):
                await sess.run(v.assign(np.full(size, n)))
                results = await sess.run(fetches)
                assert [np.shape(x) for x in results if x is not None] == [size] * (len(fetches) - 1)
                expected = [n + (fetch not in before) for fetch in fetches if fetch is not once]
                assert [np.max(x) for x in results if x is not None] == expected
        kept = await sess.run([once, v])
        await sess.run(once)
        assert np.max(kept[1]) == 4  # the caller's own
        assert type(kept[1]) is (np.ndarray if size else np.float64)


async def test_a_fetched_variable_that_a_run_initialises_need_not_have_a_value_before() -> None:
    v, w = tf.Variable(np.zeros(1000)), tf.Variable(1.0)
    async with tf.Session() as sess:
        _, first, second = await sess.run([tf.global_variables_initializer(), v, w])
        assert (first[0], second) == (0, 1)
        with pytest.raises(errors.FailedPreconditionError):
            await sess.run([tf.Variable(2.0, name="new"), w])


async def test_a_fetched_variable_that_is_fed_is_what_is_fed() -> None:
    v = tf.Variable(1.0)
    add = v.assign_add(1.0)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([add.op, v], {v: 5.0}) == [None, 5]
        assert await sess.run(v) == 2


async def test_updates_that_use_a_fetched_variable_use_what_it_was_before() -> None:
    v, w = tf.Variable(np.zeros(1000)), tf.Variable(np.zeros(1000))
    both = tf.group(v.assign_add(np.ones(1000)), w.assign_add(v + 10))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        _, x, y = await sess.run([both, v, w])
        assert (x[0], y[0]) == (1, 10)
        with tf.control_dependencies([v.assign_add(np.ones(1000))]):
            third = tf.group(v.assign_add(np.ones(1000)))
        assert (await sess.run([third, v]))[1][0] == 3


async def test_reads_after_a_control_dependency_see_the_write() -> None:
    v = tf.Variable(np.zeros(1000))
    add = v.assign_add(tf.ones([1000], tf.float64))
    with tf.control_dependencies([add]):
        after = tf.reduce_sum(v)
        doubled = tf.identity(v) * 2
        with tf.control_dependencies([tf.group(v.assign_add(tf.ones([1000], tf.float64)))]):
            later = v.read_value()
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        before, end, total, twice, last = await sess.run([tf.identity(v), v, after, doubled, later])
        assert (before[0], end[0], total, twice[0], last[0]) == (0, 2, 1000, 2, 2)
        assert (await sess.run(v))[0] == 2


async def test_unordered_writes_compose_in_the_order_they_were_built() -> None:
    v = tf.Variable(1.0)
    first = v.assign_add(2.0)
    second = v.assign(10.0)
    third = v.assign_sub(4.0)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([third, second, first]) == [6, 10, 3]
        assert await sess.run(v) == 6


async def test_an_update_may_use_what_another_update_changes() -> None:
    a = tf.Variable(np.full(1000, 1.0))
    b = tf.Variable(np.full(1000, 2.0))
    swap = tf.group(a.assign_add(b), b.assign_add(a))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(swap)
        assert [x[0] for x in await sess.run([a, b])] == [3, 3]
        await sess.run(a.assign_add(a.value()[::-1]))
        assert (await sess.run(a) == 6).all()


async def test_variables_assigned_the_same_tensor_stay_apart() -> None:
    a, b = tf.Variable(np.zeros(1000)), tf.Variable(np.zeros(1000))
    x = tf.placeholder(tf.float64, [1000])
    both = tf.group(a.assign(x), b.assign(x))
    copy = a.assign(b)
    fed = np.ones(1000)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for step in (both, copy):
            await sess.run(step, {x: fed} if step is both else None)
            fed[0] = 7
            await sess.run(a.assign_add(tf.ones([1000], tf.float64)).op)
            got = await sess.run([a, b])
            assert (got[0][0], got[1][0]) == (2, 1)


async def test_a_peek_during_a_long_step_sees_one_version() -> None:
    a, b = two_counters()
    inside, go_on = threading.Event(), threading.Event()

    def dawdle() -> Any:
        inside.set()
        assert go_on.wait(10)
        return np.ones(SIZE)

    x = tf.py_func(dawdle, [], tf.float64)
    x.set_shape([SIZE])
    step = [a.assign_add(x).op, b.assign_add(1)]
    total = tf.reduce_sum(a)
    async with tf.Session(config=THREADED) as sess:
        await sess.run(tf.global_variables_initializer())
        running = asyncio.create_task(sess.run(step))
        assert await asyncio.to_thread(inside.wait, 10)
        assert await sess.peek([total, b]) == [0, 0]
        assert await sess.run([total, b]) == [0, 0]  # a run that changes nothing need not wait either
        snapshot = await sess.snapshot()
        go_on.set()
        await running
        assert await sess.peek([total, b]) == [SIZE, 1]
        assert not snapshot[a.op.name].any()


async def test_a_peek_that_would_change_the_state_is_refused_by_name() -> None:
    v = tf.Variable(0, name="v")
    step = v.assign_add(1, name="increment")
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        with pytest.raises(errors.InvalidArgumentError, match="'increment' changes the state"):
            await sess.peek([v, step])
        assert await sess.peek({"v": v}) == {"v": 0}


async def test_random_numbers_of_a_failed_run_are_not_spent() -> None:
    p = tf.placeholder(tf.float32, [])
    x = tf.random_uniform([3], seed=1)
    fails = [x, tf.check_numerics(p, "bad")]
    async with tf.Session() as first, tf.Session() as second:
        await first.run(x)
        await second.run(x)
        with pytest.raises(errors.InvalidArgumentError):
            await first.run(fails, {p: np.nan})
        peeked = await first.peek(x)
        expected = await second.run(x)
        assert (peeked == expected).all()
        assert (await first.run(x) == expected).all()
        assert (await first.run(x) != expected).all()


async def test_a_broken_in_place_update_ends_the_session() -> None:
    def update(ref: Any, value: Any) -> None:
        raise MemoryError("no room")

    if "BreaksWhenApplied" not in table:
        tf.register(
            tf.VariableOpDef(
                "BreaksWhenApplied",
                None,
                lambda ref, value: tf.Spec(ref.dtype, ref.shape),
                update=update,
            )
        )
    v = tf.Variable(np.zeros(1000))
    op = tf.create_operation("BreaksWhenApplied", (v, tf.ones([1000], tf.float64)))
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        for _ in range(2):
            with pytest.raises(errors.InternalError, match="no longer consistent"):
                await sess.run(op)


async def test_an_interrupted_commit_ends_the_session_and_is_not_hidden() -> None:
    class Interrupted(list[Any]):
        def __setitem__(self, at: Any, value: Any) -> None:
            super().__setitem__(at, value)
            raise KeyboardInterrupt

    a, b = tf.Variable(0), tf.Variable(0)
    step = [a.assign_add(1), b.assign_add(1)]
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        sess.backend.store.values = Interrupted(sess.backend.store.values)
        with pytest.raises(KeyboardInterrupt):
            await sess.run(step)
        with pytest.raises(errors.InternalError, match="no longer consistent"):
            await sess.run(step)
