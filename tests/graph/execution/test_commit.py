"""What a training step writes: every variable moves by its own gradient, or none moves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.execution import update

THREADED = tf.SessionConfig(inline_ms=0, intra_op_parallelism_threads=4)
CONFIGS = [None, THREADED]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "_BLOCK", 64)
    monkeypatch.setattr(update, "_PARALLEL", 64)


def layers(x: Any, *sizes: int) -> tuple[Any, list[Any]]:
    rng = np.random.default_rng(1)
    variables = []
    for i, (rows, columns) in enumerate(pairwise(sizes)):
        w = tf.Variable(rng.standard_normal((rows, columns)).astype(np.float32), name=f"w{i}")
        b = tf.Variable(np.zeros(columns, np.float32), name=f"b{i}")
        x = tf.tanh(tf.nn.bias_add(x @ w, b))
        variables += [w, b]
    return tf.reduce_mean(tf.square(x)), variables


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
async def test_gradients_are_of_the_values_before_the_step(config: Any) -> None:
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
        error = left @ right - wanted
        moved = left - 0.01 * error @ right.T, right - 0.01 * left.T @ error
        for found, expected in zip(await sess.run([u, v]), moved, strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.asyncio
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("shapes", [((9, 5), (4, 17)), ((9, 5), (5, 16)), ((8, 5), (5, 17))])
async def test_a_gradient_of_another_shape_fails_at_its_node_and_changes_nothing(
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


@settings(max_examples=40)
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
