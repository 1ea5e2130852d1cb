"""Shapes are checked once, by the rules of the ops, for all that is known before a run; else in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio

CONFIGS = [tf.SessionConfig(inline_ms=1e6), tf.SessionConfig(inline_ms=0)]


async def run(fetches: Any, feeds: Any = None, config: Any = None) -> Any:
    async with tf.Session(config=config) as sess:
        return await sess.run(fetches, feeds)


@pytest.mark.parametrize("config", CONFIGS)
async def test_a_rule_refuses_what_is_fed_at_its_node(config: Any) -> None:
    x, y = tf.placeholder(tf.float32, [None]), tf.placeholder(tf.float32)
    total = tf.add(x, y, name="total")
    with pytest.raises(
        errors.InvalidArgumentError,
        match=r"equal, but are 2 and 3 with input shapes: \[2\], \[3\]\. \[at node 'total' \(AddV2\)\]",
    ):
        await run(total, {x: [1, 2], y: [1, 2, 3]}, config)


async def test_nothing_is_computed_before_the_rules_have_run() -> None:
    calls: list[int] = []
    x = tf.placeholder(tf.float32)
    called = tf.py_func(lambda: calls.append(1), [], [])
    with pytest.raises(errors.InvalidArgumentError, match="rank"):
        await run([called, tf.matmul(x, x)], {x: [1]})
    assert not calls


@pytest.mark.parametrize("config", CONFIGS)
async def test_a_shape_that_depends_on_values_is_checked_in_the_run(config: Any) -> None:
    x = tf.placeholder(tf.float32, [None])
    chosen = tf.boolean_mask(x, x > 0)
    total = tf.add_n([chosen, tf.ones([2])], name="total")
    async with tf.Session(config=config) as sess:
        assert (await sess.run(total, {x: [1, -1, 2]})).tolist() == [2, 3]
        with pytest.raises(errors.InvalidArgumentError, match=r"are 1 and 2 .* 'total'"):
            await sess.run(total, {x: [1, -1, -1]})
        assert (await sess.run(total, {x: [3, 4, -1]})).tolist() == [4, 5]


@pytest.mark.parametrize("config", CONFIGS)
async def test_what_set_shape_says_must_be_so(config: Any) -> None:
    rows = tf.placeholder(tf.int32, [])

    async def later() -> Any:
        return np.ones(3, np.float32)

    plain = tf.py_func(lambda n: np.ones(n, np.float32), [rows], tf.float32, name="plain")
    awaited = tf.py_func(later, [], tf.float32, name="awaited")
    for x in (plain, awaited):
        x.set_shape([2])
    async with tf.Session(config=config) as sess:
        assert await sess.run(tf.reduce_sum(plain * 2), {rows: 2}) == 4
        for x, name in ((plain, "plain"), (awaited, "awaited")):
            with pytest.raises(
                errors.InvalidArgumentError, match=rf"has shape \[3\], not \[2\].*{name}"
            ):
                await sess.run(tf.reduce_sum(x * 2), {rows: 3})


async def test_what_set_shape_says_of_a_constant_must_be_so() -> None:
    x = tf.fill(tf.add_n([tf.constant([1])] * 2), 1.0, name="x")  # of no static shape
    x.set_shape([3])
    with pytest.raises(errors.InvalidArgumentError, match=r"has shape \[2\], not \[3\].*'x'"):
        await run(x * 2)


async def test_what_set_shape_says_of_a_variable_is_not_relied_on() -> None:
    start = tf.placeholder(tf.float32)
    v = tf.Variable(start, validate_shape=False)
    v.set_shape([2])
    total = tf.add_n([v, tf.ones([2])])
    async with tf.Session() as sess:
        await sess.run(v.initializer, {start: np.ones(2)})
        assert (await sess.run(total)).tolist() == [2, 2]
        await sess.run(v.initializer, {start: np.ones(3)})
        with pytest.raises(errors.InvalidArgumentError, match="are 3 and 2"):
            await sess.run(total)


async def test_shapes_inside_branches_and_loops_are_checked() -> None:
    x = tf.placeholder(tf.float32, [None])
    chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.add_n([x, tf.ones([2])]), lambda: x)
    _, grown = tf.while_loop(
        lambda i, _: i < 2,
        lambda i, v: (i + 1, tf.concat([v, tf.add_n([x, tf.ones([2])])], 0)),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
    )
    async with tf.Session() as sess:
        assert (await sess.run(chosen, {x: [1, 2]})).tolist() == [2, 3]
        assert (await sess.run(chosen, {x: [-1, -2, -3]})).tolist() == [-1, -2, -3]
        assert (await sess.run(grown, {x: [1, 2]})).tolist() == [1, 2, 2, 3, 2, 3]
        for fetch in (chosen, grown):
            with pytest.raises(errors.InvalidArgumentError, match=r"equal, but are 3 and 2 .*AddN"):
                await sess.run(fetch, {x: [1, 2, 3]})


async def test_a_loop_refuses_what_contradicts_its_invariants() -> None:
    x = tf.placeholder(tf.float32)
    _, y = tf.while_loop(
        lambda i, _: i < 2,
        lambda i, v: (i + 1, v * 2),
        [0, x],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([2])],
    )
    assert (await run(y, {x: [1, 2]})).tolist() == [4, 8]
    with pytest.raises(errors.InvalidArgumentError, match="the shape invariant"):
        await run(y, {x: [1, 2, 3]})


async def test_a_constant_that_is_fed_says_nothing_of_shapes() -> None:
    n = tf.constant(3)
    x = tf.zeros([n]) + 1
    _, looped = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, v + x), [0, x])
    chosen = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.reduce_sum(x * x), lambda: 0.0)
    v = tf.Variable(np.zeros(3, np.float32))
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        for fed in ({}, {n: 3}, {n: 5}, {n: 2}):
            size = fed.get(n, 3)
            assert (await sess.run(tf.tanh(x) * 0 + x, fed)).tolist() == [1] * size
            assert (await sess.run(looped, fed)).tolist() == [3] * size
            assert await sess.run(chosen, fed) == size
            assert (await sess.run(tf.create_op("Shape", (x,)), fed)).tolist() == [size]
        add = tf.assign_add(v, x)
        assert (await sess.run(add, {n: 3})).tolist() == [1, 1, 1]
        with pytest.raises(errors.InvalidArgumentError, match=r"has \(3,\), the value \(5,\)"):
            await sess.run(add, {n: 5})


async def test_constants_are_checked_before_they_are_folded() -> None:
    shape = tf.placeholder_with_default([2], [1])
    x = tf.fill(tf.add_n([tf.constant([1])] * 2), 1.0)  # of no static shape
    total = tf.add_n([x, tf.ones([3])])
    with pytest.raises(errors.InvalidArgumentError, match="are 2 and 3"):
        await run(total)
    assert (await run(tf.zeros(shape))).tolist() == [0, 0]


async def test_an_update_is_checked_before_anything_is_written() -> None:
    gradient = tf.placeholder(tf.float32, [None])
    chosen = tf.boolean_mask(gradient, gradient > 0)
    steps = tf.Variable(0)
    variables = [tf.Variable(np.zeros(100, np.float32)) for _ in range(2)]
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients(
        [(gradient, variables[0]), (chosen, variables[1])], steps
    )
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        fed = np.ones(100)
        await sess.run(op, {gradient: fed})
        fed[0] = -1
        with pytest.raises(errors.InvalidArgumentError, match=r"ApplyGradientDescent"):
            await sess.run(op, {gradient: fed})
        assert await sess.run(steps) == 1
        assert (await sess.run(variables[0])).tolist() == [-1] * 100


@pytest.mark.parametrize("size", [3, 100])
async def test_an_update_is_checked_against_the_variable_not_what_is_fed_for_it(size: int) -> None:
    v = tf.Variable(np.zeros((1, size), np.float32), validate_shape=False)
    w = tf.Variable(np.zeros(size, np.float32))
    x = tf.placeholder(tf.float32)
    both = [w.assign_add(np.ones(size)).op, v.assign_add(x).op]
    async with tf.Session() as sess:
        await sess.run([v.initializer, w.initializer])
        with pytest.raises(errors.InvalidArgumentError, match="Shapes must be equal"):
            await sess.run(both, {v: np.ones((2, size)), x: np.ones((2, size))})
        await sess.run(both, {v: np.ones((2, size)), x: np.ones((1, size))})
        assert (await sess.run(v) == 1).all()
        assert (await sess.run(w) == 1).all()


async def test_rules_that_refuse_more_when_the_graph_is_built() -> None:
    x, shape = tf.placeholder(tf.float32), tf.placeholder(tf.int32)
    assert (await run(tf.reshape(x, shape), {x: [[1, 2]], shape: 2})).tolist() == [1, 2]
    loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=tf.zeros([2, 3]))
    assert (await run(loss, {x: np.ones((2, 1))})).shape == (2, 3)


async def test_a_rule_runs_once_for_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    from asyncmon.graph.execution import specialise

    calls: list[str] = []
    infer = specialise.infer

    def counted(op: Any, inputs: Any) -> Any:
        calls.append(op.type)
        return infer(op, inputs)

    monkeypatch.setattr(specialise, "infer", counted)
    x = tf.placeholder(tf.float32, [None])
    y = tf.reduce_sum(tf.exp(x)) + tf.reduce_sum(tf.tanh(tf.boolean_mask(x, x > 0)))
    async with tf.Session() as sess:
        await sess.run(y, {x: [1, -2]})
        calls.clear()
        await sess.run(y, {x: [3, -4]})
        assert not calls
        await sess.run(y, {x: [3, 4]})
        assert calls == ["Tanh", "Sum"]


# --- what does not change while shapes do not ------------------------------------------------------


async def computed(sess: Any, fetches: Any, feeds: Any) -> set[str]:
    metadata = tf.RunMetadata()
    await sess.run(fetches, feeds, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
    return {node.op for node in metadata.nodes}


async def test_what_comes_of_sizes_is_computed_once_for_shapes() -> None:
    x = tf.placeholder(tf.float32, [None])
    gradient = tf.gradients(tf.reduce_mean(tf.square(x)), x)[0]
    async with tf.Session() as sess:
        assert not {"Size", "Cast", "BroadcastTo"} & await computed(sess, gradient, {x: [1, 2]})
        assert (await sess.run(gradient, {x: [1, 2]})).tolist() == [1, 2]
        assert (await sess.run(gradient, {x: [4] * 4})).tolist() == [2] * 4
        assert (await sess.run(gradient, {x: [1, 2]})).tolist() == [1, 2]


@pytest.mark.parametrize("config", CONFIGS)
async def test_arrays_that_come_of_sizes_are_the_callers_own(config: Any) -> None:
    x = tf.placeholder(tf.float32, [None, 2])
    shape = tf.shape(x)
    fetches = [shape, tf.reshape(shape, [1, 2]), tf.fill(shape, 3.0)]
    async with tf.Session(config=config) as sess:
        for _ in range(3):
            found = await sess.run(fetches, {x: np.zeros((1, 2))})
            assert [a.tolist() for a in found] == [[1, 2], [[1, 2]], [[3, 3]]]
            for array in found:
                array += 7


async def test_a_variable_takes_what_comes_of_sizes_as_its_own() -> None:
    x = tf.placeholder(tf.float32, [None])
    variable = tf.Variable(tf.zeros([100]))
    filled = variable.assign(tf.fill([100], tf.cast(tf.size(x), tf.float32)))
    added = variable.assign_add(tf.ones([100]))
    async with tf.Session() as sess:
        for _ in range(2):
            await sess.run(filled.op, {x: [0, 0]})
            assert (await sess.run(added))[0] == 3


@pytest.mark.parametrize("config", CONFIGS)
async def test_sizes_in_loops_and_branches_follow_what_is_fed(config: Any) -> None:
    x = tf.placeholder(tf.float32, [None])
    _, total = tf.while_loop(
        lambda i, _: i < 3, lambda i, t: (i + 1, t + tf.cast(tf.size(x), tf.float32)), [0, 0.0]
    )
    chosen = tf.cond(x[0] > 0, lambda: tf.ones(tf.shape(x)), lambda: tf.zeros(tf.shape(x)))
    async with tf.Session(config=config) as sess:
        for values in ([1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0]):
            found = await sess.run([total, chosen], {x: values})
            assert found[0] == 3 * len(values)
            assert found[1].tolist() == [1] * len(values)
            found[1][:] = 5


async def test_a_size_that_depends_on_values_is_computed_in_the_run() -> None:
    x = tf.placeholder(tf.float32, [None])
    count = tf.size(tf.boolean_mask(x, x > 0))
    async with tf.Session() as sess:
        assert await sess.run(count, {x: [1, -1, 1]}) == 2
        assert await sess.run(count, {x: [1, -1, -1]}) == 1
