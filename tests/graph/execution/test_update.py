"""Updates in place give the same bits together or alone, whole or in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import Spec, VariableOpDef, register, table
from asyncmon.graph.execution import update
from asyncmon.graph.execution.update import GroupWrite
from asyncmon.graph.numerics.parallel import Team, using_team

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
    """Return a variable after a number of steps, computed in double precision."""
    value, grad = value.astype(np.float64), np.tanh(grad.astype(np.float64))
    m, v = np.zeros_like(value), np.zeros_like(value)
    for t in range(1, steps + 1):
        m = 0.9 * m + 0.1 * grad
        v = 0.999 * v + 0.001 * grad * grad
        value = value - 0.001 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 1e-8)
    return value


def flat_groups(sess: Any) -> list[Any]:
    return [group for plan in sess._plans.values() for group in plan.groups if group.is_flat]


@pytest.mark.asyncio
async def test_many_variables_are_updated_by_one_call_and_rightly() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for steps in range(1, 6):
            await sess.run(op)
            for got, value, grad in zip(await sess.run(made), START, GRADS, strict=True):
                np.testing.assert_allclose(got, adam(steps, value, grad), rtol=1e-5)
        (group,) = flat_groups(sess)
        assert len(group.updates) == len(made)


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
@pytest.mark.asyncio
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
            assert flat_groups(sess)
    for i, got in enumerate(found):
        with tf.Graph().as_default():
            v = tf.Variable(START[i])
            op = train_op(make(), [v], [GRADS[i]])
            async with tf.Session() as sess:
                await sess.run(tf.global_variables_initializer())
                for _ in range(5):
                    await sess.run(op)
                np.testing.assert_array_equal(got, await sess.run(v))


@pytest.mark.asyncio
async def test_a_snapshot_does_not_change_while_steps_continue() -> None:
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


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_results_stay_what_they_were() -> None:
    x = tf.placeholder(tf.float32, [2, 3])
    w, b = tf.Variable(np.ones((3, 4), np.float32)), tf.Variable(np.zeros(4, np.float32))
    loss = tf.reduce_sum(tf.nn.bias_add(x @ w, b) ** 2)
    optimizer = tf.train.AdamOptimizer(0.1)
    pairs = optimizer.compute_gradients(loss)
    fetches = [optimizer.apply_gradients(pairs), [g for g, _ in pairs], tf.identity(w), tf.identity(b)]
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        results = [await sess.run(fetches, {x: np.full((2, 3), i)}) for i in range(5)]
        for i, (_, grads, w_value, b_value) in enumerate(results):
            y = np.full((2, 3), i) @ w_value + b_value
            np.testing.assert_allclose(grads[0], np.full((3, 2), i) @ (2 * y), rtol=1e-5)
            np.testing.assert_allclose(grads[1], (2 * y).sum(0), rtol=1e-5)


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_an_uninitialized_one_keeps_all_as_they_were() -> None:
    made = variables()
    op = train_op(tf.train.MomentumOptimizer(0.1, 0.9), made)
    async with tf.Session() as sess:
        await sess.run([v.initializer for v in made])
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized value v0/Momentum"):
            await sess.run(op)
        for got, want in zip(await sess.run(made), START, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.asyncio
async def test_plans_that_update_the_same_variables_share_their_place() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        await sess.run([op, made[0] + 1])
        assert len(flat_groups(sess)) == 2
        flats = dict(sess.backend.store.flat_arrays)
        await sess.run(op)
        assert all(
            now.array is flats[slots].array for slots, now in sess.backend.store.flat_arrays.items()
        )
        for got, value, grad in zip(await sess.run(made), START, GRADS, strict=True):
            np.testing.assert_allclose(got, adam(3, value, grad), rtol=1e-5)


@pytest.mark.asyncio
async def test_variables_of_other_types_or_rates_or_of_size_are_apart() -> None:
    small = [tf.Variable(np.ones(3, t)) for t in (np.float32, np.float32, np.float64, np.float64)]
    large = [tf.Variable(np.ones(140_000, np.float32)) for _ in range(2)]
    op = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(v * 1, v) for v in (*small, *large)])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            await sess.run(op)
        assert [group.dtype for group in flat_groups(sess)] == [np.float32, np.float64]
        for value in await sess.run([*small, *large]):
            np.testing.assert_array_equal(value, np.full_like(value, 0.125))


@pytest.mark.asyncio
async def test_the_trace_of_a_run_names_each_update() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    metadata = tf.RunMetadata()
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op, options=tf.RunOptions(trace_level=3), run_metadata=metadata)
    assert len([node for node in metadata.nodes if node.op == "ApplyAdam"]) == len(made)


@pytest.mark.asyncio
async def test_a_group_is_of_limited_size() -> None:
    made = [tf.Variable(np.ones(size, np.float32)) for size in (100_000, 10, 120_000, 100_000, 7)]
    op = tf.train.GradientDescentOptimizer(0.5).apply_gradients([(v * 1, v) for v in made])
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        for _ in range(3):
            await sess.run(op)
        groups = flat_groups(sess)
        assert [[u.op.inputs[0].spec.shape for u in group.updates] for group in groups] == [
            [(120_000,), (100_000,)],
            [(100_000,), (10,), (7,)],
        ]
        for value in await sess.run(made):
            np.testing.assert_array_equal(value, np.full_like(value, 0.125))


@pytest.mark.asyncio
async def test_one_that_is_assigned_between_steps_is_copied_to_its_place_alone() -> None:
    made = variables()
    op = train_op(tf.train.AdamOptimizer(), made)
    clipped = tf.assign(made[0], tf.clip_by_value(made[0], -0.5, 0.5))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op)
        flats = dict(sess.backend.store.flat_arrays)
        for _ in range(3):
            await sess.run(clipped)
            before = await sess.run(made[0])
            await sess.run(op)
            value = sess.backend.store.values[sess.backend.store.slot(made[0].op)]
            assert any(value is part for flat in flats.values() for part in flat.parts)
            assert np.abs(await sess.run(made[0]) - before).max() < 0.01
    assert np.abs(before).max() <= 0.5


@pytest.mark.parametrize("assigned", [False, True])
@pytest.mark.asyncio
async def test_snapshots_and_assignments_by_turns(assigned: bool) -> None:
    """The same number of steps as without; each snapshot is unchanged."""
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


SIZE = 1000
THREADED = tf.SessionConfig(inline_ms=0, intra_op_parallelism_threads=4)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update, "_BLOCK", 64)
    monkeypatch.setattr(update, "_PARALLEL", 128)


OPTIMIZERS = [
    lambda: tf.train.GradientDescentOptimizer(0.1),
    lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    lambda: tf.train.AdagradOptimizer(0.1),
    lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5, centered=True),
    lambda: tf.train.AdamOptimizer(0.1),
    lambda: tf.train.AdamWOptimizer(0.01, 0.1),
]


async def trained(make: Any, config: Any, *, beside_snapshots: bool = False) -> Any:
    with tf.Graph().as_default():
        rng = np.random.default_rng(0)
        x = tf.placeholder(tf.float32, [20, 50])
        v = tf.Variable(rng.standard_normal((50, 20)).astype(np.float32))
        op = make().minimize(tf.reduce_sum(tf.square(x @ v)))
        async with tf.Session(config=config) as sess:
            await sess.run(tf.global_variables_initializer())
            for _ in range(4):
                snapshot: Any = await sess.snapshot() if beside_snapshots else None
                before = {name: array.copy() for name, array in (snapshot or {}).items()}
                await sess.run(op, {x: rng.standard_normal((20, 50)).astype(np.float32)})
                for name, array in before.items():
                    np.testing.assert_array_equal(snapshot[name], array)
            return await sess.run(v)


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_blocks_give_the_same_bits(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await trained(make, None)
    monkeypatch.setattr(update, "_BLOCK", 64)
    np.testing.assert_array_equal(await trained(make, None), whole)
    monkeypatch.setattr(update, "_PARALLEL", 128)
    np.testing.assert_array_equal(await trained(make, THREADED), whole)


@pytest.mark.asyncio
@pytest.mark.usefixtures("small_blocks")
async def test_gradients_in_another_order() -> None:
    x = tf.placeholder(tf.float32, [30, 40])
    v = tf.Variable(np.zeros((40, 30), np.float32))
    op = tf.train.GradientDescentOptimizer(1.0).apply_gradients([(tf.transpose(x), v)])
    fed = np.arange(1200, dtype=np.float32).reshape(30, 40)
    async with tf.Session(config=THREADED) as sess:
        await sess.run(tf.global_variables_initializer())
        await sess.run(op, {x: fed})
        np.testing.assert_array_equal(await sess.run(v), -fed.T)


class Update:
    """An update as :class:`GroupWrite` uses it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.blockwise = True
        self.op = None


@pytest.mark.usefixtures("small_blocks")
def test_every_element_is_written_once_with_any_helper() -> None:
    def add(array: Any, value: Any) -> None:
        array += value

    arrays = [np.zeros(n) for n in (SIZE, 63, 64, 65, 31, 1)]
    calls: Any = [GroupWrite((Update(add),), [array], [2.0]) for array in arrays]
    team = Team(3, "help")
    for helpers in (None, team):
        with using_team(helpers):
            for _ in range(25):
                update.write(calls, None)
    for array in arrays:
        np.testing.assert_array_equal(array, np.full(array.shape, 100.0))
    team.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
@pytest.mark.usefixtures("small_blocks")
async def test_updates_beside_a_snapshot_give_the_same_bits(make: Any) -> None:
    whole = await trained(make, None)
    np.testing.assert_array_equal(await trained(make, THREADED, beside_snapshots=True), whole)


@pytest.mark.asyncio
@pytest.mark.usefixtures("small_blocks")
async def test_a_session_whose_update_failed_half_way_says_so() -> None:
    def half(array: Any, value: Any) -> None:
        array += value
        raise ZeroDivisionError("no")

    register(
        VariableOpDef("HalfWay", None, lambda ref, _: Spec(ref.dtype, ref.shape), update=half,
              blockwise=True)
    )  # fmt: skip
    try:
        v = tf.Variable(np.zeros(SIZE, np.float32))
        op = tf.create_op("HalfWay", (v, 1.0)).op
        async with tf.Session(config=THREADED) as sess:
            await sess.run(v.initializer)
            for _ in range(2):
                with pytest.raises(errors.InternalError, match="no longer consistent"):
                    await sess.run(op)
    finally:
        del table["HalfWay"]


@pytest.mark.parametrize("cores", [1, 2, 7, 64])
@pytest.mark.parametrize("size", [129, 1000, 4096])
def test_on_many_cores_blocks_are_not_too_small(
    cores: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update, "CORES", cores)
    monkeypatch.setattr(update, "_BLOCK", 256)
    sizes: list[int] = []
    written: Any = Update(lambda array: sizes.append(array.size))
    update.write([GroupWrite((written,), [np.zeros(size)], [])], None)
    assert sum(sizes) == size
    assert all(64 <= n <= 256 for n in sizes[:-1])
