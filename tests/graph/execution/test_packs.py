"""Small variables updated as one: nothing to be seen of it from outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio

SHAPES = [(3, 4), (4,), (2, 2, 2), (1,), (5, 1)]
RNG = np.random.default_rng(0)
START = [RNG.standard_normal(shape).astype(np.float32) for shape in SHAPES]
GRADS = [RNG.standard_normal(shape).astype(np.float32) for shape in SHAPES]


def variables() -> list[Any]:
    return [tf.Variable(value, name=f"v{i}") for i, value in enumerate(START)]


def train_op(optimizer: Any, made: list[Any], grads: Any = GRADS) -> Any:
    return optimizer.apply_gradients(
        [(tf.tanh(tf.constant(g)), v) for g, v in zip(grads, made, strict=True)]
    )


def adam(steps: int, value: Any, grad: Any) -> Any:
    """Return a variable after so many steps, computed in double precision."""
    value, grad = value.astype(np.float64), np.tanh(grad.astype(np.float64))
    m, v = np.zeros_like(value), np.zeros_like(value)
    for t in range(1, steps + 1):
        m = 0.9 * m + 0.1 * grad
        v = 0.999 * v + 0.001 * grad * grad
        value = value - 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return value


def packs_of(sess: Any) -> list[Any]:
    return [pack for plan in sess._plans.values() for pack in plan.packs]


async def test_many_variables_are_updated_by_one_call_and_rightly() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for steps in range(1, 6):
            await sess.run(op)
            for got, value, grad in zip(await sess.run(made), START, GRADS, strict=True):
                np.testing.assert_allclose(got, adam(steps, value, grad), rtol=1e-5)
        (pack,) = packs_of(sess)
        assert len(pack.updates) == len(made)


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.train.GradientDescentOptimizer(0.1),
        lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
        lambda: tf.train.AdagradOptimizer(0.1),
        lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
        lambda: tf.train.AdamOptimizer(0.1),
        lambda: tf.train.AdamWOptimizer(0.01, 0.1),
    ],
)
async def test_together_is_what_it_is_alone(make: Any) -> None:
    """To the bit: an update is elementwise."""
    together = tf.Graph()
    with together.as_default():
        made = variables()
        op = train_op(make(), made)
        async with tf.Session() as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(5):
                await sess.run(op)
            found = await sess.run(made)
            assert packs_of(sess)
    for i, got in enumerate(found):
        with tf.Graph().as_default():
            v = tf.Variable(START[i])
            op = train_op(make(), [v], [GRADS[i]])
            async with tf.Session() as sess:
                await sess.run(tf.global_variables_initializer())
                for _ in range(5):
                    await sess.run(op)
                np.testing.assert_array_equal(got, await sess.run(v))


async def test_a_snapshot_does_not_change_while_steps_go_on() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        with await sess.snapshot() as snapshot:
            kept = {name: array.copy() for name, array in snapshot.items()}
            for _ in range(3):
                await sess.run(op)
            for name, array in snapshot.items():
                np.testing.assert_array_equal(array, kept[name])
        await sess.run(op)
        for got, value, grad in zip(await sess.run(made), START, GRADS, strict=True):
            np.testing.assert_allclose(got, adam(5, value, grad), rtol=1e-5)


async def test_what_is_loaded_or_assigned_counts() -> None:
    made = variables()
    op = train_op(tf.train.GradientDescentOptimizer(1.0), made)
    change = tf.assign(made[1], np.full(4, 7, np.float32))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        before = await sess.run(made)
        await sess.load({"v0": np.full((3, 4), 5, np.float32)})
        await sess.run(change)
        await sess.run(op)
        after = await sess.run(made)
    steps = [np.tanh(grad) for grad in GRADS]
    np.testing.assert_allclose(after[0], 5 - steps[0], rtol=1e-6)
    np.testing.assert_allclose(after[1], 7 - steps[1], rtol=1e-6)
    for i in (2, 3, 4):
        np.testing.assert_allclose(after[i], before[i] - steps[i], rtol=1e-5, atol=1e-6)


async def test_results_stay_what_they_were() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    w, b = tf.Variable(np.ones((3, 4), np.float32)), tf.Variable(np.zeros(4, np.float32))
    loss = tf.reduce_sum(tf.nn.bias_add(x @ w, b) ** 2)
    optimizer = tf.train.AdamOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss)
    op = optimizer.apply_gradients(pairs)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        results = [
            await sess.run([op, [g for g, _ in pairs], w, b], {x: np.full((2, 3), i)}) for i in range(5)
        ]
        for i, (_, grads, w_value, b_value) in enumerate(results):
            y = np.full((2, 3), i) @ w_value + b_value
            np.testing.assert_allclose(grads[0], np.full((3, 2), i) @ (2 * y), rtol=1e-5)
            np.testing.assert_allclose(grads[1], (2 * y).sum(0), rtol=1e-5)


async def test_one_gradient_for_two_variables() -> None:
    made = [*variables()[:1], tf.Variable(START[0], name="twin")]
    grad = tf.tanh(tf.constant(GRADS[0]))
    op = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(grad, v) for v in made])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(4):
            await sess.run(op)
        for got in await sess.run(made):
            np.testing.assert_allclose(got, START[0] - 2 * np.tanh(GRADS[0]), rtol=1e-5)


async def test_an_uninitialized_one_keeps_all_as_they_were() -> None:
    made = variables()
    op = train_op(tf.train.MomentumOptimizer(0.1, 0.9), made)
    async with tf.Session() as sess:
        await sess.run([v.initializer for v in made])
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v0/Momentum"):
            await sess.run(op)
        for got, want in zip(await sess.run(made), START, strict=True):
            np.testing.assert_array_equal(got, want)


async def test_plans_that_update_the_same_variables_share_their_place() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        await sess.run([op, made[0] + 1])
        assert len(packs_of(sess)) == 2
        ((flats, _),) = sess._store.homes.values()
        await sess.run(op)
        ((same, _),) = sess._store.homes.values()
        assert same is flats
        for got, value, grad in zip(await sess.run(made), START, GRADS, strict=True):
            np.testing.assert_allclose(got, adam(3, value, grad), rtol=1e-5)


async def test_variables_of_other_types_or_rates_or_of_size_are_apart() -> None:
    small = [tf.Variable(np.ones(3, t)) for t in (np.float32, np.float32, np.float64, np.float64)]
    large = [tf.Variable(np.ones(140_000, np.float32)) for _ in range(2)]
    op = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(v * 1, v) for v in (*small, *large)])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            await sess.run(op)
        (plan,) = (plan for plan in sess._plans.values() if plan.packs)
        assert [pack.dtype for pack in plan.packs] == [np.float32, np.float64]
        assert len(plan.singles) == 2
        for value in await sess.run([*small, *large]):
            np.testing.assert_array_equal(value, np.full_like(value, 0.125))


async def test_the_trace_of_a_run_names_each_update() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    metadata = tf.RunMetadata()
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op, options=tf.RunOptions(trace_level=3), run_metadata=metadata)
    assert len([node for node in metadata.nodes if node.op == "ApplyAdam"]) == len(made)


async def test_a_pack_is_not_larger_than_what_one_reader_may_make_it_cost() -> None:
    made = [tf.Variable(np.ones(size, np.float32)) for size in (100_000, 10, 120_000, 100_000, 7)]
    op = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(v * 1, v) for v in made])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            await sess.run(op)
        packs = packs_of(sess)
        assert [[u.op.inputs[0].spec.shape for u in pack.updates] for pack in packs] == [
            [(120_000,), (100_000,)],
            [(100_000,), (10,), (7,)],
        ]
        for value in await sess.run(made):
            np.testing.assert_array_equal(value, np.full_like(value, 0.125))


async def test_one_that_is_assigned_between_steps_is_copied_to_its_place_alone() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    clipped = tf.assign(made[0], tf.clip_by_value(made[0], -0.5, 0.5))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        ((flats, views),) = sess._store.homes.values()
        for _ in range(3):
            await sess.run(clipped)
            before = await sess.run(made[0])
            await sess.run(op)
            ((same, _),) = sess._store.homes.values()
            assert all(a is b for a, b in zip(same, flats, strict=True))
            value = sess._store.values[sess._store.slot("v0")]
            assert any(value is view for view in views)
            assert np.abs(await sess.run(made[0]) - before).max() < 0.01
    assert np.abs(before).max() <= 0.5


@pytest.mark.parametrize("assigned", [False, True])
async def test_snapshots_and_assignments_by_turns(assigned: bool) -> None:
    """As many steps as without; each snapshot stays what it was."""
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    same = [tf.assign(v, v * 1) for v in made[:2]]
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        kept = []
        for steps in range(1, 8):
            await sess.run(op)
            if assigned and steps % 2:
                await sess.run(same)
            snapshot = await sess.snapshot()
            kept.append((steps, snapshot))
            if steps % 3 == 0:
                kept.pop(0)[1].release()
        for steps, snapshot in kept:
            for i, (value, grad) in enumerate(zip(START, GRADS, strict=True)):
                np.testing.assert_allclose(snapshot[f"v{i}"], adam(steps, value, grad), rtol=1e-5)
            snapshot.release()
