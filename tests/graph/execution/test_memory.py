"""Values in recycled memory: the same results, and no holder ever sees a value change."""

from __future__ import annotations

import asyncio
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon import graph as tf
from asyncmon.graph.execution.compiler import compile_plan
from asyncmon.graph.execution.memory import Arena, FreeList
from asyncmon.graph.execution.state import StateStore

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def plan_of(fetches: Any, fed: Any = ()) -> Any:
    return compile_plan(StateStore(0), fetches, fed)


def placed(plan: Any, *fed: Any) -> tuple[dict[str, Any], Arena]:
    """Return the arrays of nodes that lie in an arena, by op type, and the arena."""
    arena = Arena()
    values = [np.asarray(x) for x in fed]
    program, registers = plan.for_shapes(values), plan.start(values)
    before = registers.copy()
    arena.place(program.layout, registers)
    found = {
        op.type: registers[out]
        for *_, out, op in program.code
        if op is not None and isinstance(out, int) and registers[out] is not before[out]
    }
    return found, arena


def network(inputs: Any) -> tuple[Any, Any, Any]:
    w = tf.Variable(floats(6, 5), name="w")
    b = tf.Variable(floats(5), name="b")
    hidden = tf.nn.relu(tf.nn.bias_add(inputs @ w, b))
    loss = tf.reduce_mean(tf.tanh(hidden) * hidden)
    return hidden, loss, tf.gradients(loss, [w, b])


@pytest.mark.asyncio
@pytest.mark.parametrize("order", ["C", "F"])
async def test_every_run_gives_the_same_bits(order: Any) -> None:
    x = tf.placeholder(tf.float32, [None, 6])
    _, loss, grads = network(x)
    total = [tf.reduce_sum(g) for g in grads]  # so that the gradients themselves are in the arena
    feeds = {x: np.array(floats(7, 6), order=order)}
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        found = [await sess.run([loss, total], feeds) for _ in range(5)]
    assert all(result == found[0] for result in found)


@pytest.mark.asyncio
async def test_results_are_the_callers_own() -> None:
    x = tf.placeholder(tf.float32, [None, 6])
    hidden, loss, grads = network(x)
    scaled = hidden * 2  # reads the fetches, too
    views = [tf.reshape(hidden, [-1]), tf.transpose(scaled), tf.identity(tf.exp(scaled))]
    fetches = [hidden, loss, *grads, *views]
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        results, copies = [], []
        for _ in range(6):
            found = await sess.run(fetches, {x: floats(4, 6)})
            results.append(found)
            copies.append([array.copy() for array in found])
    for found, copied in zip(results, copies, strict=True):
        for got, want in zip(found, copied, strict=True):
            np.testing.assert_array_equal(got, want)
            if got.ndim:
                got[...] = 0  # and they may be written to


@pytest.mark.asyncio
async def test_feeds_are_not_written_to() -> None:
    x = tf.placeholder(tf.float32, [3, 3])
    y = tf.exp(-tf.reshape(x, [9]) + 1) * 2
    fed = floats(3, 3)
    kept = fed.copy()
    async with tf.Session() as sess:
        for _ in range(4):
            await sess.run([tf.reduce_sum(y)], {x: fed})
    np.testing.assert_array_equal(fed, kept)


@pytest.mark.asyncio
async def test_a_function_of_the_user_may_keep_what_it_gets() -> None:
    kept: list[Any] = []
    x = tf.placeholder(tf.float32, [3])
    y = tf.exp(x)
    shown = tf.py_func(
        lambda a: (kept.append(a), np.float32(0))[1], [tf.reshape(y, [1, 3])], tf.float32
    )
    async with tf.Session() as sess:
        for i in range(5):
            await sess.run([shown, tf.reduce_sum(y * 2)], {x: np.full(3, i, np.float32)})
    for i, array in enumerate(kept):
        np.testing.assert_allclose(array, np.full((1, 3), np.exp(i)), rtol=1e-6)


@pytest.mark.asyncio
async def test_queues_keep_what_is_put_in() -> None:
    x = tf.placeholder(tf.float32, [2])
    queue = tf.FIFOQueue(10, [tf.float32], [[2]])
    put = queue.enqueue([tf.exp(x)])
    async with tf.Session() as sess:
        for i in range(5):
            await sess.run(put, {x: [i, i]})
        for i in range(5):
            np.testing.assert_allclose(await sess.run(queue.dequeue()), np.exp([i, i]), rtol=1e-6)


@pytest.mark.asyncio
async def test_batches_of_many_sizes_take_turns() -> None:
    x = tf.placeholder(tf.float32, [None, None])
    y = tf.reduce_sum(tf.exp(tf.tanh(x) * 2) @ tf.transpose(x))
    async with tf.Session() as sess:
        for _ in range(3):
            for n in range(1, 40):
                fed = floats(n, n % 5 + 1)
                want = np.sum(np.exp(np.tanh(fed) * 2) @ fed.T)
                np.testing.assert_allclose(await sess.run(y, {x: fed}), want, rtol=1e-4)


@pytest.mark.asyncio
async def test_shapes_that_depend_on_values() -> None:
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(tf.exp(tf.boolean_mask(x, x > 0)) * 2)
    async with tf.Session() as sess:
        for _ in range(6):
            fed = floats(8)
            np.testing.assert_allclose(
                await sess.run(y, {x: fed}), 2 * np.exp(fed[fed > 0]).sum(), 1e-5
            )


@pytest.mark.asyncio
async def test_runs_at_the_same_time_do_not_share_memory() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait(value: Any) -> Any:
        inside.set()
        assert go_on.wait(10)
        return np.float32(0)

    x = tf.placeholder(tf.float32, [4])
    slow = tf.exp(x)
    with tf.control_dependencies([tf.py_func(wait, [tf.reduce_sum(slow)], tf.float32)]):
        late = tf.reduce_sum(slow * 1)
    quick = tf.reduce_sum(tf.exp(x) * 2)
    async with tf.Session(config=tf.SessionConfig(inline_ms=0)) as sess:
        go_on.set()
        for _ in range(3):
            await sess.run(late, {x: np.zeros(4)})
            await sess.run(quick, {x: np.ones(4)})
        go_on.clear()
        inside.clear()
        task = asyncio.create_task(sess.run(late, {x: np.zeros(4)}))
        assert await asyncio.to_thread(inside.wait, 10)
        for _ in range(3):
            np.testing.assert_allclose(await sess.run(quick, {x: np.ones(4)}), 8 * np.e, rtol=1e-6)
        go_on.set()
        assert await task == 4


def test_a_chain_of_elementwise_ops_lies_in_one_place() -> None:
    x = tf.placeholder(tf.float32, [1000])
    y = tf.exp(tf.tanh(tf.nn.relu(-x) + 1) * 2)
    arrays, arena = placed(plan_of([tf.reduce_sum(y)], [x]), floats(1000))
    assert arena.nbytes == 4032  # 4000 in lines of 64
    assert len(arrays) == 6
    assert len({array.ctypes.data for array in arrays.values()}) == 1


def test_values_that_live_together_lie_apart() -> None:
    x = tf.placeholder(tf.float32, [50, 50])
    a = tf.exp(x)
    b = tf.tanh(a)
    c = a @ b  # not over its inputs
    arrays, _ = placed(plan_of([tf.reduce_sum(a * b + c)], [x]), floats(50, 50))
    first, second, third = (arrays[name] for name in ("Exp", "Tanh", "MatMul"))
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(third, first)
    assert not np.shares_memory(third, second)


def test_an_input_that_something_else_is_a_view_of_is_not_written_over() -> None:
    x = tf.placeholder(tf.float32, [3, 3])
    a = tf.exp(x)
    arrays, _ = placed(plan_of([tf.reduce_sum(a + tf.transpose(a))], [x]), floats(3, 3))
    assert not np.shares_memory(arrays["Exp"], arrays["AddV2"])


def test_what_is_fetched_or_stored_lies_nowhere() -> None:
    x = tf.placeholder(tf.float32, [3, 3])
    v = tf.Variable(np.zeros((3, 3), np.float32))
    a, b = tf.exp(x), tf.tanh(x)
    plan = plan_of([tf.transpose(a), v.assign(tf.reshape(b, [3, 3]))], [x])
    assert plan.for_shapes([floats(3, 3)]).layout is None


def test_a_plan_keeps_a_number_of_shapes() -> None:
    x = tf.placeholder(tf.float32, [None])
    plan = plan_of([tf.reduce_sum(tf.exp(x))], [x])
    programs = [plan.for_shapes([floats(n)]) for n in range(1, 300)]
    assert all(plan.for_shapes([floats(n)]) is programs[n - 1] for n in range(44, 300))
    assert plan.for_shapes([floats(1)]) is not programs[0]


def test_memory_that_grows_lets_go_of_the_old() -> None:
    x = tf.placeholder(tf.float32, [None])
    plan = plan_of([tf.reduce_sum(tf.exp(x))], [x])
    arena = Arena()
    kept = []
    for n in (10, 1000):
        registers = plan.start([floats(n)])
        arena.place(plan.for_shapes([floats(n)]).layout, registers)
        kept += [
            weakref.ref(r.base) for r in registers if isinstance(r, np.ndarray) and r.base is not None
        ]
        del registers
    assert arena.nbytes == 4032
    assert [ref() is None for ref in kept] == [True, False]


# Free stretches of memory.


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=60))
def test_stretches_in_use_never_overlap(actions: list[tuple[bool, int]]) -> None:
    free = FreeList()
    used: list[tuple[int, int]] = []
    for take, number in actions:
        if take or not used:
            start = free.alloc(number)
            assert start % 64 == 0
            assert start + number <= free.size
            assert all(start + number <= a or a + size <= start for a, size in used if number and size)
            used.append((start, number))
        else:
            free.free(*used.pop(number % len(used)))


def test_what_is_given_back_is_used_again() -> None:
    free = FreeList()
    first, second, third = free.alloc(100), free.alloc(100), free.alloc(100)
    size = free.size
    free.free(first, 100)
    free.free(second, 100)  # one stretch now
    assert free.alloc(256) == first
    free.free(third, 100)
    free.alloc(300)  # the free end is extended
    assert free.size == size - 128 + 320


def test_the_smallest_stretch_that_fits_is_taken() -> None:
    free = FreeList()
    large, _, small, _ = (free.alloc(n) for n in (640, 64, 128, 64))
    free.free(large, 640)
    free.free(small, 128)
    assert free.alloc(100) == small
    assert free.alloc(100) == large


# Any graph.

UNARY = (tf.exp, tf.tanh, tf.nn.relu, tf.negative, tf.square, tf.transpose, tf.identity, tf.sigmoid)
BINARY = (tf.add, tf.subtract, tf.multiply, tf.maximum, tf.squared_difference, tf.matmul)
step = st.tuples(st.integers(0, 13), st.integers(0, 99), st.integers(0, 99))


@settings(max_examples=60)
@given(st.lists(step, min_size=1, max_size=25), st.sets(st.integers(0, 99), max_size=4))
def test_any_graph_gives_in_every_run_what_it_gave_in_the_first(steps: Any, fetched: Any) -> None:
    async def main() -> None:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [None, 3])
            nodes = [x, x * 0.5]
            for kind, i, j in steps:
                a, b = nodes[i % len(nodes)], nodes[j % len(nodes)]
                nodes.append(UNARY[kind](a) if kind < 8 else BINARY[kind - 8](a, b))
            fetches = [tf.reduce_sum(nodes[-1]), *(nodes[i % len(nodes)] for i in fetched)]
            feeds = [floats(3, 3) * 0.1 for _ in range(3)]
            async with tf.Session() as sess:
                first = [await sess.run(fetches, {x: fed}) for fed in feeds[:1]]
                later = [await sess.run(fetches, {x: fed}) for fed in (*feeds[1:], *feeds)]
            for fed, got in zip((*feeds[1:], *feeds), later, strict=True):
                async with tf.Session() as fresh:
                    want = await fresh.run(fetches, {x: fed})
                for g, w in zip(got, want, strict=True):
                    np.testing.assert_array_equal(g, w)
            assert len(first) == 1

    asyncio.run(main())
