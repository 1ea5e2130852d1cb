"""``while_loop``: values, invariants, writes, gradients."""

from __future__ import annotations

import asyncio
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import DeadlineExceededError, InvalidArgumentError

pytestmark = pytest.mark.asyncio

Pair = namedtuple("Pair", ["a", "b"])


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


async def test_it_repeats_while_the_condition_holds() -> None:
    n = tf.placeholder(tf.int32, [])
    i, total = tf.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), [0, 0])
    assert await run([i, total], {n: 5}) == [5, 10]
    assert await run([i, total], {n: -1}) == [0, 0]


async def test_one_variable_needs_no_list() -> None:
    assert await run(tf.while_loop(lambda i: i < 5, lambda i: i + 2, [0])) == 6
    assert await run(tf.while_loop(lambda i: i < 5, lambda i: [i + 2], [0])) == 6
    assert await run(
        tf.while_loop(lambda i: i < 5, lambda i: i + 2, [0], return_same_structure=True)
    ) == [6]


async def test_structures() -> None:
    first = (Pair(tf.constant(0), {"x": tf.constant(1.0)}), [tf.constant(2)])

    def body(pair: Any, rest: Any) -> Any:
        return Pair(pair.a + 1, {"x": pair.b["x"] * 2}), [rest[0] + 1]

    got = await run(tf.while_loop(lambda pair, rest: pair.a < 3, body, first))
    assert got == (Pair(3, {"x": 8.0}), [5])
    assert type(got[0]) is Pair


async def test_maximum_iterations() -> None:
    most = tf.placeholder(tf.int32, [])
    loop = tf.while_loop(lambda i: i < 100, lambda i: i + 1, [0], maximum_iterations=most)
    two = tf.while_loop(lambda i, j: i < 100, lambda i, j: (i + 1, j + 2), (0, 0), maximum_iterations=3)
    assert await run([loop, two], {most: 7}) == [7, (3, 6)]
    assert await run(loop, {most: 1000}) == 100


async def test_shape_invariants() -> None:
    def grow(i: Any, x: Any) -> Any:
        return i + 1, tf.concat([x, x], 0)

    _, x = tf.while_loop(
        lambda i, x: i < 3, grow, [tf.constant(0), tf.ones([1, 2])], shape_invariants=[(), (None, 2)]
    )
    assert x.shape == (None, 2)
    assert (await run(x)).shape == (8, 2)
    with pytest.raises(
        ValueError, match=r"is not an invariant for the loop.*shape \(2, 2\) after one iteration"
    ):
        tf.while_loop(lambda i, x: i < 3, grow, [tf.constant(0), tf.ones([1, 2])])
    with pytest.raises(ValueError, match="does not have the shape invariant"):
        tf.while_loop(lambda i, x: i < 3, grow, [0, tf.ones([1, 2])], shape_invariants=[(), (None, 3)])


async def test_errors() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="cond must be callable"):
        tf.while_loop(wrong, lambda i: i, [0])
    with pytest.raises(TypeError, match="body must be callable"):
        tf.while_loop(lambda i: i < 1, wrong, [0])
    with pytest.raises(ValueError, match="No loop variables"):
        tf.while_loop(lambda: True, lambda: (), [])
    with pytest.raises(ValueError, match="structure of loop_vars"):
        tf.while_loop(lambda i, j: i < 1, lambda i, j: i, [0, 1])
    with pytest.raises(TypeError, match="type int32, but has type float32 after 1 iteration"):
        tf.while_loop(lambda i: i < 1, lambda i: tf.cast(i, tf.float32), [0])
    with pytest.raises(TypeError, match="cond must return a bool scalar"):
        tf.while_loop(lambda i: i, lambda i: i, [0])
    with pytest.raises(ValueError, match=r"cond must return a scalar, got one of shape \(1,\)"):
        tf.while_loop(lambda i: tf.constant([True]), lambda i: i, [0])


async def test_variables_are_read_and_written_in_each_iteration() -> None:
    v = tf.Variable(1)
    loop = tf.while_loop(lambda i: v < 20, lambda i: i + 0 * v.assign(v * 2), [0])
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([loop, v, v + 0]) == [0, 32, 1]
        assert await sess.run(v) == 32


async def test_gradients() -> None:
    x, v = tf.placeholder(tf.float64, []), tf.Variable(3.0, dtype=tf.float64)
    _, y = tf.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * v + x), [tf.constant(0), x])
    dx, dv = tf.gradients(y, [x, v])
    assert await run([y, dx, dv], {x: 2.0}) == [728, 364, 1094]


async def test_gradients_by_a_constant() -> None:
    a = tf.constant(1.5)
    _, y = tf.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * a), [0, 2.0])
    assert await run(tf.gradients(y, a)) == [2 * 3 * 1.5**2]


async def test_gradients_through_a_loop_in_a_loop() -> None:
    x = tf.placeholder(tf.float64, [])

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.while_loop(lambda j, b: j < i, lambda j, b: (j + 1, b * x), [0, a])[1]

    _, y = tf.while_loop(lambda i, a: i < 4, body, [0, x])
    assert await run([y, *tf.gradients(y, x)], {x: 2.0}) == [2**7, 7 * 2**6]


async def test_gradients_through_a_loop_in_a_branch() -> None:
    x, p = tf.placeholder(tf.float64, []), tf.placeholder(tf.bool, [])
    y = tf.cond(
        p, lambda: tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), [0, x])[1], lambda: x
    )
    grads = [y, *tf.gradients(y, x)]
    assert await run(grads, {x: 2.0, p: True}) == [2**4, 4 * 2**3]
    assert await run(grads, {x: 2.0, p: False}) == [2, 1]


async def test_gradients_through_matrices_and_nested_branches() -> None:
    w = tf.Variable(np.array([[0.5, 0.1], [0.2, 0.3]]))
    x = tf.placeholder(tf.float64, [2, 2])

    def body(i: Any, a: Any) -> Any:
        step = tf.cond(i > 1, lambda: tf.tanh(a @ w), lambda: a @ w + x)
        step.set_shape([2, 2])
        return i + 1, step

    _, y = tf.while_loop(lambda i, a: i < 4, body, [tf.constant(0), x])
    loss = tf.reduce_sum(y * y)
    dx, dw = tf.gradients(loss, [x, w])
    fed = np.array([[1.0, 2.0], [3.0, -1.0]])
    async with tf.Session() as sess:
        await sess.run(w.initializer)
        got_x, got_w = await sess.run([dx, dw], {x: fed})
        start = await sess.run(w)
        for index in np.ndindex(2, 2):
            step = np.zeros((2, 2))
            step[index] = 1e-6
            numeric = (
                await sess.run(loss, {x: fed + step}) - await sess.run(loss, {x: fed - step})
            ) / 2e-6
            assert np.isclose(numeric, got_x[index], rtol=1e-5)
            sides = []
            for sign in (1, -1):
                await sess.load({w.op.name: start + sign * step})
                sides.append(await sess.run(loss, {x: fed}))
            await sess.load({w.op.name: start})
            assert np.isclose((sides[0] - sides[1]) / 2e-6, got_w[index], rtol=1e-5)


async def test_the_gradient_sees_the_random_numbers_of_the_loop() -> None:
    x = tf.placeholder(tf.float64, [])

    def body(i: Any, a: Any, noise: Any) -> Any:
        drawn = tf.random_uniform([], dtype=tf.float64)
        return i + 1, a * drawn, noise * drawn

    _, y, product = tf.while_loop(lambda i, a, n: i < 4, body, [0, x, tf.constant(1.0, tf.float64)])
    (dx,) = tf.gradients(y, [x])
    value, grad = await run([product, dx], {x: 2.0})
    assert np.isclose(value, grad)


async def test_each_iteration_draws_numbers_of_its_own() -> None:
    def body(i: Any, x: Any) -> Any:
        return i + 1, tf.concat([x, tf.random_uniform([1])], 0)

    _, x = tf.while_loop(lambda i, x: i < 5, body, [0, tf.zeros([0])], shape_invariants=[(), (None,)])
    assert len(set((await run(x)).tolist())) == 5


async def test_back_prop_can_be_switched_off() -> None:
    x = tf.placeholder(tf.float32, [])
    y = tf.while_loop(lambda a: a < 100, lambda a: a * x, [x], back_prop=False)
    assert tf.gradients(y, [x]) == [None]


async def test_a_body_may_wait() -> None:
    async def wait(a: Any) -> Any:
        await asyncio.sleep(0)
        return np.int32(a + 1)

    def body(i: Any) -> Any:
        step = tf.py_func(wait, [i], tf.int32)
        step.set_shape([])
        return step

    assert await run(tf.while_loop(lambda i: i < 5, body, [0])) == 5


async def test_the_first_run_of_a_loop_does_not_hold_the_event_loop() -> None:
    endless = tf.while_loop(lambda i: i >= 0, lambda i: i * 1, [1])
    async with tf.Session() as sess:
        run = asyncio.create_task(sess.run(endless))
        await asyncio.sleep(0.001)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_an_endless_loop_can_be_stopped(inline_ms: float) -> None:
    loop = tf.while_loop(lambda i: i >= 0, lambda i: i * 1, [1])
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        with pytest.raises(DeadlineExceededError, match="longer than 20 ms"):
            await sess.run(loop, options=tf.RunOptions(timeout_in_ms=20))
        task = asyncio.create_task(sess.run(loop, options=tf.RunOptions(timeout_in_ms=60_000)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_the_result_has_the_structure_the_body_returns() -> None:
    result = tf.while_loop(
        lambda i, x: i < 2,
        lambda i, x: (i + 1, x * 2),
        [0, 1.0],
        parallel_iterations=1,
        swap_memory=True,
    )
    assert isinstance(result, tuple)
    bounded = tf.while_loop(lambda i, x: i < 9, lambda i, x: (i + 1, x), [0, 1.0], maximum_iterations=3)
    assert isinstance(bounded, tuple)
    async with tf.Session() as sess:
        assert await sess.run([*result, *bounded]) == [2, 4.0, 3, 1.0]
    with pytest.raises(TypeError, match="parallel_iterations must be a positive integer"):
        tf.while_loop(lambda i: i < 1, lambda i: i + 1, [0], parallel_iterations=0)


async def test_an_operation_from_outside_is_done_once_before_the_loop() -> None:
    v = tf.Variable(1.0)
    added, doubled = v.assign_add(1.0), tf.assign(v, v * 4.0).op

    def body(i: Any, s: Any) -> Any:
        with tf.control_dependencies([added, doubled]):
            return i + 1, s + v

    i, total = tf.while_loop(lambda i, s: i < 3, body, [0, 0.0])
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([i, total]) == [3, 12]
        assert await sess.run(v) == 4


async def test_gradients_flow_through_reads_of_a_variable() -> None:
    w, u = tf.Variable(2.0), tf.Variable(3.0)

    def body(i: Any, a: Any) -> Any:
        with tf.control_dependencies([tf.Assert(a > 0, [a])]):
            return i + 1, a * w

    _, y = tf.while_loop(lambda i, a: i < 3, body, [0, u])
    assert await run([y, *tf.gradients(y, [w, u])]) == [24, 36, 8]


async def test_gradients_in_the_body() -> None:
    w = tf.Variable(3.0)
    _, square = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * w), [0, 1.0])

    def body(i: Any, a: Any) -> Any:
        by_w, by_a = tf.gradients(w * w * a, [w, a])
        (outer,) = tf.gradients(square, w)
        return i + 1, a + by_w + by_a - outer

    i, y = tf.while_loop(lambda i, a: i < 2, body, [0, 1.0])
    assert await run([i, y]) == [2, 73]


async def test_loops_that_wait_at_the_same_time_draw_as_they_do_alone() -> None:
    def loop(rounds: list[int]) -> Any:
        async def wait(i: Any) -> Any:
            for _ in range(rounds[int(i)]):
                await asyncio.sleep(0)
            return np.int32(i + 1)

        def body(i: Any, drawn: Any) -> Any:
            after = tf.py_func(wait, [i], tf.int32)
            after.set_shape([])
            with tf.control_dependencies([after]):
                number = tf.random_uniform([1], seed=5)
            return after, tf.concat([drawn, number], 0)

        shapes = [tf.TensorShape([]), tf.TensorShape([None])]
        start = [0, tf.zeros([0])]
        return tf.while_loop(lambda i, drawn: i < 4, body, start, shape_invariants=shapes)[1]

    tf.set_random_seed(1)
    loops = [loop([3, 3, 3, 3]), loop([4, 1, 8, 0])]
    alone = [(await run(one)).tolist() for one in loops]
    together = [found.tolist() for found in await run(loops)]
    assert together == alone
    assert len(set(together[0])) == 4


async def test_the_gradient_of_a_body_that_waits_uses_what_it_waited_for() -> None:
    drawn: list[float] = []

    async def number() -> Any:
        await asyncio.sleep(0)
        drawn.append(len(drawn) + 2.0)
        return np.float32(drawn[-1])

    def body(i: Any, y: Any) -> Any:
        factor = tf.py_func(number, [], tf.float32)
        factor.set_shape([])
        return i + 1, y * factor

    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, y: i < 3, body, [0, x])
    assert await run([y, *tf.gradients(y, x)], {x: 10.0}) == [240, 24]
    assert drawn == [2, 3, 4]


@pytest.mark.parametrize("shape", [(1,), (2,), (0,)])
async def test_a_condition_is_a_scalar_in_the_run_too(shape: tuple[int, ...]) -> None:
    x = tf.placeholder(tf.float32)
    y = tf.while_loop(lambda i: i < 3.0, lambda i: i + 1.0, [x])
    async with tf.Session() as sess:
        with pytest.raises(InvalidArgumentError, match="A condition must be a scalar"):
            await sess.run(y, {x: np.ones(shape)})


async def test_gradients_of_a_loop_whose_condition_is_awaited() -> None:
    async def small(x: Any) -> Any:
        return x < 10

    def test(v: Any) -> Any:
        result = tf.py_func(small, [v], tf.bool)
        result.set_shape([])
        return result

    x = tf.placeholder(tf.float32, [])
    y = tf.while_loop(test, lambda v: v * 2, [x])
    assert await run([y, *tf.gradients(y, x)], {x: 1.0}) == [16, 16]


async def test_gradients_of_a_loop_that_writes() -> None:
    v = tf.Variable(1.0)

    def body(i: Any, y: Any) -> Any:
        return i + 1, y * v.assign_add(1.0)

    x = tf.placeholder(tf.float32, [])
    _, y = tf.while_loop(lambda i, _: i < 3, body, [0, x])
    (dx,) = tf.gradients(y, x)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([y, dx], {x: 10.0}) == [240, 24]
        assert await sess.run(v) == 4


async def test_second_gradients() -> None:
    x, w = tf.placeholder(tf.float64, []), tf.Variable(3.0, dtype=tf.float64)
    _, y = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * a * w), [0, x])
    (first,) = tf.gradients(y, x)  # y = x^8 w^7
    got = await run([first, *tf.gradients(first, [x, w])], {x: 2.0})
    assert got == [8 * 2**7 * 3**7, 56 * 2**6 * 3**7, 8 * 2**7 * 7 * 3**6]


async def test_gradients_where_shapes_change() -> None:
    x, w = tf.placeholder(tf.float64, [None, 2]), tf.Variable(np.array([[1.0, 2.0], [3.0, 4.0]]))
    _, y = tf.while_loop(
        lambda i, a: i < 2,
        lambda i, a: (i + 1, tf.concat([a, a @ w + a[0]], 0)),
        [0, x],
        shape_invariants=[(), (None, 2)],
    )
    dx, dw = tf.gradients(tf.reduce_sum(y), [x, w])

    def straight(a: Any, v: Any) -> Any:
        for _ in range(2):
            a = tf.concat([a, a @ v + a[0]], 0)
        return tf.reduce_sum(a)

    expected = tf.gradients(straight(x, w), [x, w])
    got = await run([dx, dw, *expected], {x: [[1.0, -1.0], [2.0, 0.5]]})
    np.testing.assert_allclose(got[0], got[2])
    np.testing.assert_allclose(got[1], got[3])


async def test_gradients_of_no_iteration() -> None:
    x, w = tf.placeholder(tf.float32, [2, 2]), tf.Variable(np.eye(2, dtype=np.float32))
    n = tf.placeholder(tf.int32, [])
    _, y = tf.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, tf.tanh(a @ w)), [0, x])
    dx, dw = await run(tf.gradients(y, [x, w]), {x: np.ones((2, 2)), n: 0})
    assert dx.tolist() == [[1, 1], [1, 1]]
    assert dw.tolist() == [[0, 0], [0, 0]]


async def test_gradients_of_what_is_looked_up_in_the_body_are_slices() -> None:
    table = tf.Variable(np.arange(12, dtype=np.float32).reshape(6, 2))
    rows = tf.constant([[0, 2], [2, 5], [1, 2]])
    _, y = tf.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (i + 1, s + tf.reduce_sum(tf.gather(table, rows[i])) * tf.cast(i + 1, tf.float32)),
        [0, 0.0],
    )
    (grad,) = tf.gradients(y, table)
    assert isinstance(grad, tf.IndexedSlices)
    async with tf.Session() as sess:
        await sess.run(table.initializer)
        dense = await sess.run(tf.convert_to_tensor(grad))
    assert dense[:, 0].tolist() == [1, 3, 6, 0, 0, 2]


async def test_a_plan_from_before_gradients_were_requested_stays_right() -> None:
    x = tf.placeholder(tf.float32, [])
    i, y = tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a * x), [0, x])
    async with tf.Session() as sess:
        assert await sess.run([i, y], {x: 2.0}) == [3, 16]
        assert await sess.run(tf.gradients(y, x), {x: 2.0}) == [32]
        assert await sess.run([i, y], {x: 3.0}) == [3, 81]


async def test_one_variable_comes_back_by_itself_unless_the_structure_is_kept() -> None:
    for single in ([0], (0,)):
        for most in (None, 9):
            made = [
                tf.while_loop(
                    lambda i: i < 3, lambda i: i + 1, single,
                    maximum_iterations=most, return_same_structure=same,
                )
                for same in (False, True)
            ]  # fmt: skip
            assert isinstance(made[0], tf.Tensor)
            assert isinstance(made[1], list | tuple)
            assert await run([made[0], *made[1]]) == [3, 3]
    two = tf.while_loop(lambda i, j: i < 3, lambda i, j: (i + 1, j), (0, 5))
    assert await run(two) == (3, 5)


async def test_what_a_run_returned_stays_as_it_is() -> None:
    x = tf.placeholder(tf.float32, [3])
    _, y = tf.while_loop(lambda i, _: i < 40, lambda i, a: (i + 1, tf.tanh(a * x)), [0, x])
    (dx,) = tf.gradients(y, x)
    kept: list[Any] = []
    held = tf.py_func(lambda a: (kept.append(a), a)[1], [dx], tf.float32)
    async with tf.Session() as sess:
        first = [await sess.run([y, dx, held], {x: np.full(3, value)}) for value in (1.5, 2.0, 2.5)]
        copies = [[part.copy() for part in parts] for parts in first]
        runs = [sess.run([y, dx, held], {x: np.full(3, value)}) for value in (1.5, 2.0, 2.5)]
        again = await asyncio.gather(*runs)
    for parts, copied, repeated, array in zip(first, copies, again, kept, strict=False):
        for one, other, third in zip(parts, copied, repeated, strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, third)
        np.testing.assert_array_equal(array, parts[2])
