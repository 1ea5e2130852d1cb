"""The contract of custom ops: the examples of its documentation, and the kinds of record."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core import op as op_module
from asyncmon.graph.core.op import ControlOpDef, table
from asyncmon.testing.gradients import check_gradients

asynchronous = pytest.mark.asyncio


@pytest.fixture
def example() -> Iterator[dict[str, Any]]:
    """What the examples in the docstring define. The ops are taken out of the table afterwards."""
    before = dict(table)
    names = {"np": np, **{name: getattr(tf, name) for name in tf.__all__}}
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", op_module.__doc__ or "")
    exec("\n".join(map(dedent, blocks)), names)
    yield names
    for name in table.keys() - before.keys():
        del table[name]


@asynchronous
async def test_the_pure_op_of_the_docstring(example: dict[str, Any]) -> None:
    x, y = np.array([3.0, 5.0]), np.array([4.0, 12.0])
    async with tf.Session() as sess:
        np.testing.assert_array_equal(await sess.run(example["hypot"](x, y)), [5, 13])
    await check_gradients(example["hypot"], [x, y])
    with pytest.raises(ValueError, match="Hypot needs two tensors of one dtype and shape"):
        example["hypot"](x, y[:1])


@asynchronous
async def test_the_update_of_the_docstring(example: dict[str, Any]) -> None:
    var, accum = tf.Variable(np.ones(3)), tf.Variable(np.full(3, 2.0))
    rate, grad = tf.constant(0.5, tf.float64), tf.constant(np.arange(3.0))
    step = example["descend"](var, accum, rate, grad, 0.5)
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(await sess.run(step), [0.5, 0, -0.5])
        np.testing.assert_array_equal(await sess.run(accum), [1, 2, 3])


@asynchronous
async def test_a_random_op_draws_from_the_graphs_seed_and_its_own() -> None:
    def draw(count: Any, *, rng: np.random.Generator) -> Any:
        return rng.random(int(count))

    def rule(count: tf.Spec, *, seed: int | None = None) -> tf.Spec:
        return tf.Spec(tf.float64, (None,))

    tf.register(tf.RandomOpDef("Draw", draw, rule))
    try:
        tf.set_random_seed(1)
        first, second = (tf.create_op("Draw", (3,), {"seed": seed}) for seed in (None, 7))
        found = []
        for _ in range(2):
            async with tf.Session() as sess:
                found.append(np.array(await sess.run([first, second])))
        np.testing.assert_array_equal(found[0], found[1])
        assert not np.array_equal(*found[0])
    finally:
        del table["Draw"]


@asynchronous
async def test_an_awaited_op_waits_without_holding_the_loop() -> None:
    ready = asyncio.Event()

    async def wait(run: Any, op: Any, x: Any) -> Any:
        await ready.wait()
        return np.add(x, 1)

    tf.register(tf.AwaitedOpDef("WaitAndAdd", wait, lambda x: tf.Spec(x.dtype, x.shape)))
    try:
        later = tf.create_op("WaitAndAdd", (1,))
        async with tf.Session() as sess:
            run = asyncio.create_task(sess.run(later))
            assert await sess.run(tf.constant(5)) == 5
            ready.set()
            assert await run == 2
    finally:
        del table["WaitAndAdd"]


def test_every_record_is_of_one_kind() -> None:
    kinds = (tf.OpDef, tf.RandomOpDef, tf.VariableOpDef, tf.AwaitedOpDef, ControlOpDef)
    for name, record in table.items():
        assert type(record) in kinds, name
        assert isinstance(record, tf.OpDef) or record.stateful, name


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'MatMul' is registered already"):
        tf.register(table["MatMul"])
    with pytest.raises(ValueError, match=r"'NoSuchOp' is not registered\. Import the module"):
        table["NoSuchOp"]
