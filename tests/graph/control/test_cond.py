"""``cond``: branches, their values, writes and gradients."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


async def test_only_the_chosen_branch_runs() -> None:
    calls: list[str] = []

    def note(name: str) -> tf.Tensor:
        return tf.py_func(lambda: calls.append(name) or np.float32(1), [], tf.float32)

    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: note("true"), lambda: note("false"))
    assert await run(y, {p: True}) == 1
    assert await run(y, {p: False}) == 1
    assert calls == ["true", "false"]


async def test_branches_use_what_is_outside() -> None:
    x = tf.placeholder(tf.float32, [])
    c = tf.constant(10.0)
    y = tf.cond(x > 0, lambda: x + c, lambda: -x * c)
    assert await run(y, {x: 2}) == 12
    assert await run(y, {x: -2}) == 20


async def test_structures_come_back() -> None:
    p = tf.placeholder(tf.bool, [])
    one, two = tf.constant(1), tf.constant(2)
    y = tf.cond(p, lambda: {"a": [one, two]}, lambda: {"a": [two, one]})
    assert await run(y, {p: True}) == {"a": [1, 2]}
    single = tf.cond(p, lambda: [one], lambda: [two])
    strict = tf.cond(p, lambda: [one], lambda: [two], strict=True)
    assert await run([single, strict], {p: False}) == [2, [2]]


async def test_an_operation_may_be_a_result() -> None:
    p, v = tf.placeholder(tf.bool, []), tf.Variable(0)
    y = tf.cond(p, lambda: v.assign_add(1).op, tf.no_op)
    assert await run([y, v], {p: True}) == [True, 1]
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        for fed, expected in ((True, 1), (False, 1), (True, 2)):
            await sess.run(y.op, {p: fed})
            assert await sess.run(v) == expected


async def test_shapes_are_what_both_have() -> None:
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.zeros([2, 3]), lambda: tf.zeros([2, 5]))
    assert y.shape == (2, None)
    assert tf.cond(p, lambda: tf.zeros([2]), lambda: tf.zeros([2, 5])).shape.ndims is None


async def test_errors() -> None:
    p, one = tf.placeholder(tf.bool, []), tf.constant(1)
    wrong: Any = True
    with pytest.raises(TypeError, match="pred must not be a Python bool"):
        tf.cond(wrong, lambda: one, lambda: one)
    wrong = one
    with pytest.raises(TypeError, match="true_fn must be callable"):
        tf.cond(p, wrong, lambda: one)
    with pytest.raises(ValueError, match="must have the same type: int32 and float32"):
        tf.cond(p, lambda: one, lambda: tf.constant(1.0))
    with pytest.raises(TypeError, match="may not be set simultaneously"):
        tf.cond(p, lambda: one, lambda: one, fn1=lambda: one)
    with pytest.raises(ValueError, match="same structure"):
        tf.cond(p, lambda: [one, one], lambda: one)
    with pytest.raises(ValueError, match="must return something"):
        tf.cond(p, lambda: None, lambda: one)
    with pytest.raises(TypeError, match="pred must be a bool scalar"):
        tf.cond(one, lambda: one, lambda: one)


async def test_a_tensor_of_a_branch_stays_inside() -> None:
    inside: list[tf.Tensor] = []
    p = tf.placeholder(tf.bool, [])
    tf.cond(p, lambda: inside.append(tf.constant(1) + 1) or inside[0], lambda: tf.constant(1))
    async with tf.Session() as sess:
        with pytest.raises(ValueError, match="not an element of this graph"):
            await sess.run(inside[0], {p: True})


async def test_a_finalized_graph_refuses_branches(graph: tf.Graph) -> None:
    p, one = tf.placeholder(tf.bool, []), tf.constant(1)
    graph.finalize()
    with pytest.raises(RuntimeError, match="finalized"):
        tf.cond(p, lambda: one, lambda: one + 1)


async def test_writes_in_a_branch_are_part_of_the_step() -> None:
    p = tf.placeholder(tf.bool, [])
    v, w = tf.Variable(1.0), tf.Variable(np.zeros(1000, np.float32))
    y = tf.cond(p, lambda: v.assign_add(1.0), lambda: v.assign(100.0))
    z = tf.cond(p, lambda: tf.reduce_sum(w.assign_add(tf.ones([1000]))), lambda: tf.constant(0.0))
    bad = tf.check_numerics(tf.placeholder_with_default(1.0, [], "bad"), "bad")
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        assert await sess.run([v + 0, v, y, z], {p: True}) == [1, 2, 2, 1000]
        with pytest.raises(errors.InvalidArgumentError):
            await sess.run([y, z, bad], {p: False, "bad:0": np.nan})
        assert await sess.run(v) == 2
        assert await sess.run([y, z], {p: False}) == [100, 0]
        assert (await sess.run(w))[0] == 1
        with pytest.raises(errors.InvalidArgumentError, match="changes the state"):
            await sess.peek(y, {p: False})


async def test_reads_in_a_branch_follow_writes_in_it() -> None:
    p, v = tf.placeholder(tf.bool, []), tf.Variable(1.0)

    def branch() -> tf.Tensor:
        with tf.control_dependencies([v.assign_add(10.0)]):
            return v * 2

    y = tf.cond(p, branch, lambda: v + 0)
    assert await run([y, v, v + 0], {p: True}) == [22, 11, 1]
    assert await run([y, v], {p: False}) == [1, 1]


async def test_a_variable_need_not_be_initialised_for_the_other_branch() -> None:
    v = tf.Variable(5.0, name="v")
    y = tf.cond(tf.is_variable_initialized(v), lambda: v + 1, lambda: tf.constant(-1.0))
    w = tf.cond(tf.is_variable_initialized(v), lambda: tf.constant(0.0), lambda: v + 1)
    async with tf.Session() as sess:
        assert await sess.run(y) == -1
        with pytest.raises(errors.FailedPreconditionError, match="value v"):
            await sess.run(w)
        await sess.run(v.initializer)
        assert await sess.run(y) == 6


async def test_variables_made_in_a_branch_are_made_outside(graph: tf.Graph) -> None:
    p = tf.placeholder(tf.bool, [])
    with tf.variable_scope("scope"):
        y = tf.cond(
            p,
            lambda: tf.get_variable("w", [2], initializer=tf.ones_initializer()) * 2,
            lambda: tf.zeros([2]),
        )
    assert [v.op.name for v in tf.global_variables()] == ["scope/w"]
    assert tf.global_variables()[0].graph is graph
    assert (await run(y, {p: True})).tolist() == [2, 2]


async def test_gradients() -> None:
    x, v = tf.placeholder(tf.float64, []), tf.Variable(3.0, dtype=tf.float64)
    y = tf.cond(x > 0, lambda: x * v * v, lambda: tf.exp(x)) * 2.0
    grads = tf.gradients(y, [x, v])
    second = tf.gradients(grads[0], [x, v])
    assert await run(grads + second, {x: 2.0}) == [18, 24, 0, 12]
    e = np.exp(-1.0)
    assert np.allclose(await run(grads + second, {x: -1.0}), [2 * e, 0, 2 * e, 0])


async def test_gradients_by_a_constant() -> None:
    a = tf.constant(3.0)
    y = tf.cond(a > 1.0, lambda: a * a, lambda: a + 1.0)
    assert await run(tf.gradients(y, a)) == [6.0]


async def test_a_gradient_that_would_repeat_a_side_effect_is_refused() -> None:
    x, p = tf.placeholder(tf.float32, []), tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.py_func(lambda a: a, [x], tf.float32), lambda: x)
    with pytest.raises((ValueError, LookupError)):
        tf.gradients(y, [x])


async def test_branches_nest() -> None:
    x, v = tf.placeholder(tf.float32, []), tf.Variable(7.0)
    y = tf.cond(x > 0, lambda: tf.cond(x > 10, lambda: x * v, lambda: x + v), lambda: tf.constant(0.0))
    (dx, dv) = tf.gradients(y, [x, v])
    assert await run([y, dx, dv], {x: 20}) == [140, 7, 20]
    assert await run([y, dx, dv], {x: 2}) == [9, 1, 1]
    assert await run([y, dx, dv], {x: -2}) == [0, 0, 0]


async def test_a_branch_may_wait() -> None:
    async def wait(a: Any) -> Any:
        await asyncio.sleep(0)
        return a * 2

    x, v = tf.placeholder(tf.float32, []), tf.Variable(1.0)
    y = tf.cond(
        x > 0, lambda: tf.py_func(wait, [x], tf.float32), lambda: tf.py_func(wait, [v], tf.float32)
    )
    z = tf.cond(x > 0, lambda: v.assign(tf.reshape(tf.py_func(wait, [v], tf.float32), [])), lambda: x)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([y, z], {x: 4}) == [8, 2]
        assert await sess.run([y, v], {x: -4}) == [4, 2]


async def test_random_numbers_in_a_branch_are_those_of_the_session() -> None:
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.random_uniform([2]), lambda: tf.zeros([2]))
    async with tf.Session() as sess:
        first, second = await sess.run(y, {p: True}), await sess.run(y, {p: True})
        assert (first != second).all()
        assert not (await sess.run(y, {p: False})).any()


async def test_a_constant_result_is_the_callers_own() -> None:
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: tf.constant([1.0, 2.0]), lambda: tf.zeros([2]))
    async with tf.Session() as sess:
        got = await sess.run(y, {p: True})
        got += 10
        assert (await sess.run(y, {p: True})).tolist() == [1, 2]


async def test_an_error_inside_is_located_once_and_a_users_error_is_its_cause() -> None:
    x = tf.placeholder(tf.float32)

    def fail(_a: object) -> object:
        raise ValueError("mine")

    bad = tf.cond(tf.constant(True), lambda: tf.matmul(x, x, name="product"), lambda: x)
    users = tf.cond(tf.constant(True), lambda: tf.py_func(fail, [x], tf.float32), lambda: x)
    async with tf.Session() as sess:
        with pytest.raises(errors.InvalidArgumentError) as caught:
            await sess.run(bad, {x: np.zeros((2, 3))})
        assert str(caught.value).count("at node") == 1
        assert "'product' (MatMul)" in str(caught.value)
        with pytest.raises(errors.InvalidArgumentError, match="raised ValueError: mine") as caught:
            await sess.run(users, {x: 1})
        assert isinstance(caught.value.__cause__, ValueError)
        assert str(caught.value.__notes__).count("at node") == 1


async def test_branches_go_by_their_older_names_too() -> None:
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, fn1=lambda: tf.constant(1), fn2=lambda: tf.constant(2))
    async with tf.Session() as sess:
        assert [await sess.run(y, {p: value}) for value in (True, False)] == [1, 2]


async def test_an_operation_from_outside_is_done_whichever_branch_is_chosen() -> None:
    p, v = tf.placeholder(tf.bool, []), tf.Variable(1.0)
    y = tf.cond(p, lambda: tf.group(v.assign_add(1.0)), tf.no_op)
    outside = v.assign_add(10.0).op
    z = tf.cond(p, lambda: outside, tf.no_op)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        for value, expected in ((True, 12), (False, 22)):
            await sess.run([z, y], {p: value})
            assert await sess.run(v) == expected


async def test_a_branch_may_be_ordered_after_what_is_outside() -> None:
    p, v = tf.placeholder(tf.bool, []), tf.Variable(1.0)
    added = v.assign_add(1.0)

    def after() -> tf.Tensor:
        with tf.control_dependencies([added, v]):
            return v * 10.0

    nested = tf.cond(p, lambda: tf.cond(p, after, lambda: v + 0.0), lambda: v + 0.5)
    (grad,) = tf.gradients(tf.cond(p, lambda: after() * v, lambda: v * v), v)
    for value, expected in ((True, [20, 40]), (False, [2.5, 4])):
        assert await run([nested, grad], {p: value}) == expected


async def test_an_operation_of_the_other_branch_is_refused() -> None:
    p = tf.placeholder(tf.bool, [])
    inside: list[tf.Operation] = []
    with pytest.raises(ValueError, match="not an element of this graph"):
        tf.cond(p, lambda: inside.append(tf.no_op()) or inside[0], lambda: inside[0])


async def test_gradients_flow_through_reads_of_a_variable() -> None:
    p, w = tf.placeholder(tf.bool, []), tf.Variable(2.0)

    def checked() -> tf.Tensor:
        with tf.control_dependencies([tf.Assert(w > 0, [w])]):
            return w * w

    y = tf.cond(p, lambda: w.read_value() * 3.0 * w, lambda: tf.cond(p, lambda: w + 0.0, checked))
    (first,) = tf.gradients(y, w)
    (second,) = tf.gradients(first, w)
    assert await run([y, first, second], {p: True}) == [12, 12, 6]
    assert await run([y, first, second], {p: False}) == [4, 4, 2]


async def test_gradients_of_a_branch_on_whether_a_variable_has_a_value() -> None:
    w = tf.Variable(2.0)
    y = tf.cond(tf.is_variable_initialized(w), lambda: w * 3.0, lambda: w * 1.0)
    z = tf.cond(w > 0, lambda: tf.where(tf.is_variable_initialized(w), w * y, w), lambda: w)
    assert await run(tf.gradients(z, w)) == [12.0]


async def test_a_gradient_that_would_repeat_a_write_further_inside_is_refused() -> None:
    p, w, count = tf.placeholder(tf.bool, []), tf.Variable(2.0), tf.Variable(0.0)

    def inner() -> Any:
        return tf.cond(p, lambda: w * count.assign_add(1.0), lambda: w * 1.0)

    with pytest.raises(ValueError, match="cannot be run a second time"):
        tf.gradients(tf.cond(p, inner, lambda: w), w)


async def test_gradients_inside_by_what_is_outside() -> None:
    p, w = tf.placeholder(tf.bool, []), tf.Variable(3.0)
    square = w * w
    cube = tf.cond(p, lambda: square * w, lambda: w)

    def nested() -> Any:
        z = square * w
        return tf.cond(p, lambda: tf.gradients(z * z, [w, square, z]), lambda: [w, w, w])

    y = tf.cond(
        p,
        lambda: (
            tf.gradients(square * square * w, [w, square])
            + tf.gradients(cube * cube, w)
            + tf.gradients(cube, w, stop_gradients=[square])
            + nested()
        ),
        lambda: [w] * 7,
    )
    assert await run(y, {p: True}) == [5 * 81, 2 * 27, 6 * 243, 9, 6 * 243, 2 * 81, 2 * 27]
    assert await run(y, {p: False}) == [3] * 7
    assert await run(tf.gradients(y[0], w), {p: True}) == [20 * 27]


async def test_gradients_inside_of_reads_in_order() -> None:
    p, w, other = tf.placeholder(tf.bool, []), tf.Variable(3.0), tf.Variable(1.0)
    constant = tf.constant(2.0)

    def inside() -> Any:
        with tf.control_dependencies([tf.Assert(w > 0, [w])]):
            y = w.read_value() ** 2 + w * constant
        (none,) = tf.gradients(y, other)
        assert none is None
        return tf.gradients(y, [w, constant]) + tf.gradients(y, [other], unconnected_gradients="zero")

    assert await run(tf.cond(p, inside, lambda: [w, w, w]), {p: True}) == [8, 3, 0]


@pytest.mark.parametrize("outside", [True, False])
async def test_a_branch_may_be_a_training_step(outside: bool) -> None:
    p, w = tf.placeholder(tf.bool, []), tf.Variable([3.0, 1.0])
    step = tf.train.get_or_create_global_step()
    loss = tf.reduce_sum(w * w * w)
    optimizer = tf.train.MomentumOptimizer(0.1, 0.9)

    def train() -> tf.Operation:
        return optimizer.minimize(loss if outside else tf.reduce_sum(w * w * w), step)

    op = tf.cond(p, train, tf.no_op)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for value in (True, False, True):
            await sess.run(op, {p: value})
        got, steps = await sess.run([w, step])
    assert steps == 2
    assert np.allclose(got, [-2.157, 0.283], rtol=1e-5)


async def test_gradients_outside_by_what_is_inside_are_refused() -> None:
    p, w = tf.placeholder(tf.bool, []), tf.Variable(3.0)
    inside: list[tf.Tensor] = []
    y = tf.cond(p, lambda: inside.append(w * 2.0) or inside[0], lambda: w)
    with pytest.raises(ValueError, match="inside a branch or loop body that none of the ys is in"):
        tf.gradients(y, inside[0])


async def test_a_value_read_twice_has_its_gradient_once() -> None:
    p, w = tf.placeholder(tf.bool, []), tf.Variable(2.0)

    def branch() -> tf.Tensor:
        read = w.read_value()
        _, looped = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * read * w), [0, w])
        return tf.cond(p, lambda: read * w * read, lambda: w) + looped

    def converted() -> tf.Tensor:
        value = tf.convert_to_tensor(w)
        _, looped = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * value * w), [0, value])
        return tf.cond(p, lambda: value * w, lambda: w) + looped

    y, z = tf.cond(p, branch, lambda: w), tf.cond(p, converted, lambda: w)
    assert await run([y, *tf.gradients(y, w)], {p: True}) == [8 + 32, 12 + 80]
    assert await run([z, *tf.gradients(z, w)], {p: True}) == [4 + 32, 4 + 80]


async def test_shapes_inside_follow_constants_from_outside() -> None:
    p, dims, x = tf.placeholder(tf.bool, []), tf.constant([2, 3]), tf.zeros([6])
    y = tf.cond(
        p, lambda: tf.cond(p, lambda: tf.reshape(x, dims), lambda: tf.ones(dims)), lambda: tf.ones(dims)
    )
    assert y.shape == (2, 3)
    (grad,) = tf.gradients(y, x)
    assert grad.shape == (6,)
    assert (await run(y, {p: True})).shape == (2, 3)


@pytest.mark.parametrize("shape", [(1,), (2,), (0,)])
async def test_a_condition_is_a_scalar_in_the_run_too(shape: tuple[int, ...]) -> None:
    x = tf.placeholder(tf.float32)
    y = tf.cond(x > 0.0, lambda: 1.0, lambda: 2.0)
    async with tf.Session() as sess:
        with pytest.raises(errors.InvalidArgumentError, match="pred must be a bool scalar"):
            await sess.run(y, {x: np.ones(shape)})


async def test_what_is_not_used_of_the_chosen_branch_does_not_run() -> None:
    p, x, v = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, []), tf.Variable(0)
    calls: list[int] = []

    def called(_x: Any) -> Any:
        calls.append(1)
        return np.float32(3)

    first, second, third = tf.cond(
        p,
        lambda: (tf.constant(1), v.assign_add(1), tf.py_func(called, [x + 1], tf.float32)),
        lambda: (tf.constant(2), v.assign_add(10), x),
    )
    nested, _ = tf.cond(p, lambda: (first, second), lambda: (first, tf.cast(third, tf.int32)))
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run([first, nested], {p: True}) == [1, 1]  # and x is not fed
        assert await sess.run(v) == 0
        assert await sess.peek(first, {p: False}) == 2
        assert await sess.run([second, v], {p: True}) == [1, 1]
        assert await sess.run(second, {p: False}) == 11
        assert calls == []
        with pytest.raises(errors.InvalidArgumentError, match="must feed a value"):
            await sess.run(third, {p: True})
        assert await sess.run([third, first], {p: True, x: 5}) == [3, 1]
        assert (calls, await sess.run(v)) == ([1], 11)
        assert await sess.run([first, second, third], {p: False, x: 5}) == [2, 21, 5]


async def test_an_awaited_branch_is_pruned_too() -> None:
    p, queue = tf.placeholder(tf.bool, []), tf.FIFOQueue(1, [tf.int32], [[]])
    first, second = tf.cond(
        p, lambda: (tf.constant(1), queue.dequeue()), lambda: (tf.constant(2), tf.constant(3))
    )
    async with tf.Session() as sess:
        assert await sess.run(first, {p: True}) == 1
        assert await sess.run([first, second], {p: False}) == [2, 3]
        await sess.run(queue.enqueue(7))
        assert await sess.run([second, first], {p: True}) == [7, 1]


async def test_a_list_of_one_is_unpacked_in_each_branch_unless_strict() -> None:
    p, one, two = tf.placeholder(tf.bool, []), tf.constant(1), tf.constant(2)
    for first, second in (([one], two), ((one,), [two]), ([one], (two,)), (one, [two])):
        y = tf.cond(p, lambda first=first: first, lambda second=second: second)
        assert await run(y, {p: False}) == 2
    assert tf.cond(p, lambda: [one], lambda: [two], strict=True)[0].op.type == "Identity"
    with pytest.raises(ValueError, match="same structure"):
        tf.cond(p, lambda: [one], lambda: two, strict=True)
    with pytest.raises(TypeError, match="a list where the other one has a tuple"):
        tf.cond(p, lambda: [one, one], lambda: (two, two))
    with pytest.raises(ValueError, match="must return something"):
        tf.cond(p, list, list)


@pytest.mark.parametrize("other", ["rows", "nothing", "table"])
async def test_the_gradient_of_gathered_rows_is_slices(other: str) -> None:
    p, table = tf.placeholder(tf.bool, []), tf.Variable(np.ones((5, 2), np.float32))

    def otherwise() -> tf.Tensor:
        if other == "table":
            return tf.reduce_sum(table)
        if other == "nothing":
            return tf.constant(0.0)
        rows = tf.constant([4], tf.int64)
        return tf.cond(p, lambda: tf.constant(0.0), lambda: tf.reduce_sum(tf.gather(table, rows)))

    y = tf.cond(p, lambda: 3 * tf.reduce_sum(tf.gather(table, [1, 1])), otherwise)
    (slope,) = tf.gradients(y, table)
    if other == "table":
        assert isinstance(slope, tf.Tensor)
        assert (await run(slope, {p: False})).tolist() == [[1, 1]] * 5
        return
    assert isinstance(slope, tf.IndexedSlices)
    found = await run(slope, {p: True})
    assert (found.values.tolist(), found.indices.tolist()) == ([[3, 3]] * 2, [1, 1])
    assert found.dense_shape.tolist() == [5, 2]
    assert (await run(slope, {p: False})).indices.tolist() == ([4] if other == "rows" else [])
    assert (await run(tf.convert_to_tensor(slope), {p: True}))[1].tolist() == [6, 6]


async def test_only_used_placeholders_are_fed() -> None:
    p, x = tf.placeholder(tf.bool, []), tf.placeholder(tf.float32, [])
    unused = tf.placeholder(tf.float32, [], name="unused")

    def first() -> tf.Tensor:
        unused + 1  # not in the result
        return x + 1

    y = tf.cond(p, first, lambda: tf.placeholder(tf.float32, [], name="inside") + 1)
    assert await run(y, {p: True, x: 1}) == 2
    with pytest.raises(errors.InvalidArgumentError, match="placeholder tensor 'inside'"):
        await run(y, {p: False, x: 1})
    total = tf.while_loop(lambda a: a < 3, lambda a: (unused * 2, a + x)[1], [0.0])
    assert await run(total, {x: 1}) == 3


async def test_a_tensor_of_another_branch_or_loop_is_refused() -> None:
    kept: list[tf.Tensor] = []

    def body(i: tf.Tensor) -> tf.Tensor:
        kept.append(i + 1)
        return kept[0]

    tf.while_loop(lambda i: i < 3, body, [0])
    with pytest.raises(ValueError, match="inside another branch or loop body"):
        tf.while_loop(lambda i: i < 3, lambda i: i + kept[0], [0])
    for use in (lambda: kept[0] + 1, lambda: tf.identity(kept[0]), lambda: kept[0][0]):
        with pytest.raises(ValueError, match="of a branch or loop body is used outside of it"):
            use()


async def test_slices_of_both_branches_stay_slices() -> None:
    p, table = tf.placeholder(tf.bool, []), tf.Variable(np.ones((5, 2), np.float32))
    slices, _ = tf.gradients(tf.reduce_sum(tf.gather(table, [1, 3])), [table, p])
    one = tf.constant(1.0)

    def halved() -> tuple[tf.IndexedSlices, tf.Tensor]:
        return tf.IndexedSlices(slices.values / 2, slices.indices, slices.dense_shape), one

    found, _ = tf.cond(p, halved, lambda: (slices, one))
    assert isinstance(found, tf.IndexedSlices)
    assert (await run(found, {p: True})).values.tolist() == [[0.5, 0.5]] * 2
    assert (await run(tf.convert_to_tensor(found), {p: False}))[:, 0].tolist() == [0, 1, 0, 1, 0]
    dense = tf.cond(p, lambda: slices, lambda: tf.zeros([5, 2]))
    assert isinstance(dense, tf.Tensor)
    assert (await run(dense, {p: True}))[:, 0].tolist() == [0, 1, 0, 1, 0]
