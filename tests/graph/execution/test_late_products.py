"""Gradients of dense layers that are computed along with their update, some rows at a time."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.execution import applying, buffers, late_products

THREADED = tf.SessionConfig(inline_ms=0, intra_op_parallelism_threads=4)
CONFIGS = [None, THREADED]
OPTIMIZERS = [
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    lambda: tf.train.AdamOptimizer(0.01),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with large matrices, done with small ones."""
    monkeypatch.setattr(late_products, "LARGEST", 8)
    monkeypatch.setattr(late_products, "_COLUMNS", range(1, 1000))
    monkeypatch.setattr(applying, "_BLOCK", 64)
    monkeypatch.setattr(applying, "_SHARED", 64)


def put_off(sess: tf.Session) -> set[str]:
    """Return the variables whose gradients are not computed before their update, in the last step."""
    plan = [plan for plan in sess._plans.values() if plan.updates][-1]
    if plan.buffers is None or not all(layout.late for layout in plan.buffers._layouts.values()):
        return set()
    return {update.names[0] for update in plan.updates if update.product is not None}


def layers(x: Any, *sizes: int) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(1)
    variables = []
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        w = tf.Variable(rng.standard_normal((rows, columns)).astype(np.float32), name=f"w{i}")
        b = tf.Variable(np.zeros(columns, np.float32), name=f"b{i}")
        x = tf.tanh(tf.nn.bias_add(x @ w, b))
        variables += [w, b]
    return tf.reduce_mean(tf.square(x)), variables


async def trained(
    make: Any, config: Any, *, fetched: bool, options: Any = None, early: bool = False
) -> list[Any]:
    """Train a net; that its gradients are fetched is a reason to compute them as a whole."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 20])
        loss, variables = layers(x, 20, 30, 12)
        optimizer = make()
        pairs = optimizer.compute_gradients(loss)
        op = optimizer.apply_gradients(pairs)
        fetches = [op, *(grad for grad, _ in pairs)] if fetched else [op]
        async with tf.Session(config=config) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(4):
                feeds = {x: rng.standard_normal((7, 20)).astype(np.float32)}
                await sess.run(fetches, feeds, options, options and tf.RunMetadata())
            assert put_off(sess) == (set() if fetched or early else {"w0", "w1"})
            return [await sess.run(variable) for variable in variables]


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_values_are_what_they_are_with_the_whole_gradient(make: Any, config: Any) -> None:
    whole = await trained(make, config, fetched=True)
    for found, wanted in zip(await trained(make, config, fetched=False), whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_bits_do_not_depend_on_where_it_runs_nor_on_who_traces_it(make: Any) -> None:
    inline = await trained(make, None, fetched=False)
    traced = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    for config, options in ((THREADED, None), (THREADED, traced), (None, traced)):
        found = await trained(make, config, fetched=False, options=options)
        for one, other in zip(found, inline, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.asyncio
async def test_a_trace_names_the_product_and_the_update() -> None:
    x = tf.placeholder(tf.float32, [5, 20])
    loss, _ = layers(x, 20, 30)
    op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
    metadata = tf.RunMetadata()
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        await sess.run(op, {x: np.ones((5, 20), np.float32)}, options, metadata)
        assert put_off(sess) == {"w0"}
    nodes = {node.name: node for node in metadata.nodes}
    product = next(node for name, node in nodes.items() if name.startswith("gradients/matmul_grad"))
    update = next(node for node in metadata.nodes if node.op == "ApplyGradientDescent")
    assert product.nbytes == 20 * 30 * 4
    assert product.start <= update.start


@pytest.mark.asyncio
@pytest.mark.parametrize("flip_a", [False, True])
@pytest.mark.parametrize("flip_b", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
async def test_either_factor_may_be_transposed(flip_a: bool, flip_b: bool, dtype: Any) -> None:
    a, b = tf.placeholder(dtype), tf.placeholder(dtype)
    w = tf.Variable(np.zeros((9, 17), dtype))
    product = tf.matmul(a, b, transpose_a=flip_a, transpose_b=flip_b)
    product.set_shape([9, 17])
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(product, w)])
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((9, 5)).astype(dtype), rng.standard_normal((5, 17)).astype(dtype)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        feeds = {a: left.T if flip_a else left, b: right.T if flip_b else right}
        await sess.run(op, feeds)
        assert put_off(sess) == {"Variable"}
        np.testing.assert_allclose(await sess.run(w), -(left @ right), rtol=1e-5, atol=1e-6)


@pytest.mark.asyncio
async def test_a_gradient_with_another_use_is_computed_once_and_as_a_whole() -> None:
    x = tf.placeholder(tf.float32, [5, 20])
    loss, variables = layers(x, 20, 30, 10)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    gradients, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 0.001)
    op = optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        before = await sess.run(variables)
        await sess.run(op, {x: np.ones((5, 20), np.float32)})
        assert put_off(sess) == set()
        moved = [now - then for now, then in zip(await sess.run(variables), before, strict=True)]
    assert np.sqrt(sum(np.sum(np.square(m)) for m in moved)) == pytest.approx(0.0001, rel=1e-3)


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
async def test_factors_that_are_updated_themselves_are_read_before(config: Any) -> None:
    rng = np.random.default_rng(0)
    left = rng.standard_normal((30, 6)).astype(np.float32)
    right = rng.standard_normal((6, 40)).astype(np.float32)
    wanted = rng.standard_normal((30, 40)).astype(np.float32)
    u, v = tf.Variable(left), tf.Variable(right)
    loss = tf.reduce_sum(tf.square(u @ v - tf.constant(wanted))) / 2.0
    op = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        assert put_off(sess) == set()
        error = left @ right - wanted
        moved = left - 0.01 * error @ right.T, right - 0.01 * left.T @ error
        for found, expected in zip(await sess.run([u, v]), moved, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.asyncio
async def test_a_factor_that_only_others_train_may_be_a_variable() -> None:
    rng = np.random.default_rng(0)
    left = rng.standard_normal((30, 6)).astype(np.float32)
    u = tf.Variable(left, trainable=False)
    v = tf.Variable(np.zeros((6, 40), np.float32))
    op = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(u @ v))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        assert put_off(sess) == {v.op.name}
        wanted = -left.T @ np.ones((30, 40), np.float32)
        np.testing.assert_allclose(await sess.run(v), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shapes", [((9, 5), (4, 17)), ((9, 5), (5, 16)), ((8, 5), (5, 17))])
async def test_factors_that_do_not_fit_fail_at_their_node_and_change_nothing(
    config: Any, shapes: Any
) -> None:
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    w, n = tf.Variable(np.zeros((9, 17), np.float32)), tf.Variable(0)
    product = tf.matmul(a, b, name="uneven")
    product.set_shape([9, 17])
    train = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(product, w)])
    count = tf.assign_add(n, 1)
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        with pytest.raises(
            errors.InvalidArgumentError, match=r"uneven|of shape \(9, 17\) is updated with inputs"
        ):
            await sess.run([count, train], {a: np.ones(shapes[0]), b: np.ones(shapes[1])})
        assert await sess.run(n) == 0
        np.testing.assert_array_equal(await sess.run(w), np.zeros((9, 17)))
        await sess.run([count, train], {a: np.ones((9, 5)), b: np.ones((5, 17))})
        np.testing.assert_array_equal(await sess.run(w), np.full((9, 17), -5))


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
async def test_a_check_that_fails_keeps_the_weights(config: Any) -> None:
    x = tf.placeholder(tf.float32, [None, 20])
    loss, variables = layers(x, 20, 30)
    op = tf.train.AdamOptimizer(0.1).minimize(loss)
    checked = tf.check_numerics(loss, "loss")
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        before = await sess.run(variables)
        with pytest.raises(errors.InvalidArgumentError, match="loss"):
            await sess.run([op, checked], {x: np.full((5, 20), np.nan)})
        for now, then in zip(await sess.run(variables), before, strict=True):
            np.testing.assert_array_equal(now, then)


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
async def test_a_snapshot_stays_what_it_was(config: Any) -> None:
    x = tf.placeholder(tf.float32, [None, 20])
    loss, _ = layers(x, 20, 30, 10)
    op = tf.train.AdamOptimizer(0.1).minimize(loss)
    rng = np.random.default_rng(0)
    async with tf.Session(config=config) as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            snapshot = await sess.snapshot()
            before = {name: array.copy() for name, array in snapshot.items()}
            await sess.run(op, {x: rng.standard_normal((6, 20))})
            for name, array in before.items():
                np.testing.assert_array_equal(snapshot[name], array)


@pytest.mark.asyncio
async def test_values_that_the_product_needs_are_not_written_over() -> None:
    # The activations of each layer are as large as those of the others, and wanted until the end.
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 16])
        loss, variables = layers(x, *[16] * 8)
        gradients = tf.gradients(loss, variables)
        op = tf.train.GradientDescentOptimizer(1.0).apply_gradients(
            list(zip(gradients, variables, strict=True))
        )
        fed = {x: rng.standard_normal((16, 16)).astype(np.float32)}
        async with tf.Session(config=THREADED) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(3):
                before, wanted = await sess.run([variables, gradients], fed)
                await sess.run(op, fed)
                assert len(put_off(sess)) == 7
                after = await sess.run(variables)
                for old, gradient, new in zip(before, wanted, after, strict=True):
                    np.testing.assert_allclose(new, old - gradient, rtol=1e-5, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=2, max_size=5),
    batch=st.integers(1, 20),
    threaded=st.booleans(),
    fetched=st.sets(st.integers(0, 3)),
)
@pytest.mark.asyncio
async def test_any_net_takes_the_step_that_its_gradients_say(
    sizes: list[int], batch: int, threaded: bool, fetched: set[int]
) -> None:
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, sizes[0]])
        loss, variables = layers(x, *sizes)
        gradients = tf.gradients(loss, variables)
        op = tf.train.GradientDescentOptimizer(0.5).apply_gradients(
            list(zip(gradients, variables, strict=True))
        )
        fetches = [op, *(gradients[i] for i in fetched if i < len(gradients))]
        fed = {x: rng.standard_normal((batch, sizes[0])).astype(np.float32)}
        async with tf.Session(config=THREADED if threaded else None) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(2):
                before, wanted = await sess.run([variables, gradients], fed)
                await sess.run(fetches, fed)
                after = await sess.run(variables)
                for old, gradient, new in zip(before, wanted, after, strict=True):
                    np.testing.assert_allclose(new, old - 0.5 * gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_what_takes_long_is_computed_before(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    soon = await trained(make, THREADED, fetched=False)
    monkeypatch.setattr(buffers, "_PUT_OFF", 7 * (20 * 30 + 30 * 12) - 1)
    before = await trained(make, THREADED, fetched=False, early=True)
    for found, wanted in zip(before, soon, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.asyncio
async def test_it_is_decided_for_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "_PUT_OFF", 10 * 20 * 30)
    x = tf.placeholder(tf.float32, [None, 20])
    loss, variables = layers(x, 20, 30)
    (gradient,) = tf.gradients(loss, [variables[0]])
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(gradient, variables[0])])
    rng = np.random.default_rng(0)
    async with tf.Session(config=THREADED) as sess:
        await sess.run(tf.global_variables_initializer())
        for batch in (11, 10, 11, 3, 40, 10):
            fed = {x: rng.standard_normal((batch, 20)).astype(np.float32)}
            before, wanted = await sess.run([variables[0], gradient], fed)
            await sess.run(op, fed)
            after = await sess.run(variables[0])
            np.testing.assert_allclose(after, before - wanted, rtol=1e-5, atol=1e-6)
        plan = [plan for plan in sess._plans.values() if plan.updates][-1]
        assert plan.buffers is not None
        found = {key[0][0]: layout.late for key, layout in plan.buffers._layouts.items()}
        assert found == {11: False, 10: True, 3: True, 40: False}


@pytest.mark.asyncio
async def test_a_matrix_of_a_few_long_rows_has_its_gradient_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_products, "_COLUMNS", range(1, 30))
    x = tf.placeholder(tf.float32, [None, 20])
    loss, _ = layers(x, 20, 30, 12)
    op = tf.train.GradientDescentOptimizer(1.0).minimize(loss)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op, {x: np.ones((3, 20))})
        assert put_off(sess) == {"w1"}
