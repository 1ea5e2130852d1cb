"""Large updates in blocks, by several threads: the same as in one go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.core.op import Spec, VariableOpDef, register, table
from asyncmon.graph.execution import applying
from asyncmon.graph.kernels.parallel import using_team
from asyncmon.graph.kernels.team import Team

SIZE = 1000
THREADED = tf.SessionConfig(inline_ms=0, intra_op_parallelism_threads=4)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applying, "_BLOCK", 64)
    monkeypatch.setattr(applying, "_SHARED", 128)


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
                snapshot = await sess.snapshot() if beside_snapshots else None
                before = {name: array.copy() for name, array in (snapshot or {}).items()}
                await sess.run(op, {x: rng.standard_normal((20, 50)).astype(np.float32)})
                for name, array in before.items():
                    np.testing.assert_array_equal(snapshot[name], array)  # type: ignore[index]
            return await sess.run(v)


@pytest.mark.asyncio
@pytest.mark.parametrize("make", OPTIMIZERS)
async def test_blocks_give_the_same_bits(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await trained(make, None)
    monkeypatch.setattr(applying, "_BLOCK", 64)
    np.testing.assert_array_equal(await trained(make, None), whole)
    monkeypatch.setattr(applying, "_SHARED", 128)
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
    """An update as :func:`apply_all` knows it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.blockwise = True
        self.op = None


@pytest.mark.usefixtures("small_blocks")
def test_every_element_is_written_once_whoever_helps() -> None:
    def add(array: Any, value: Any) -> None:
        array += value

    arrays = [np.zeros(n) for n in (SIZE, 63, 64, 65, 31, 1)]
    calls: Any = [applying.Call((Update(add),), [array], [2.0]) for array in arrays]
    team = Team(3, "help")
    for helpers in (None, team):
        with using_team(helpers):
            for _ in range(25):
                applying.apply_all(calls, None)
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
    monkeypatch.setattr(applying, "CORES", cores)
    monkeypatch.setattr(applying, "_BLOCK", 256)
    sizes: list[int] = []
    update: Any = Update(lambda array: sizes.append(array.size))
    applying.apply_all([applying.Call((update,), [np.zeros(size)], [])], None)
    assert sum(sizes) == size
    assert all(64 <= n <= 256 for n in sizes[:-1])
