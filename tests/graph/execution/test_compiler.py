"""Plans: the nodes they compute, the nodes they skip, and their time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.execution.analysis import needed_ops
from asyncmon.graph.execution.compiler import compile_plan
from asyncmon.graph.execution.program import Kind
from asyncmon.graph.execution.state import StateStore


def plan_of(fetches: Any, fed: Any = ()) -> Any:
    return compile_plan(StateStore(0), fetches, fed)


def ops_in(plan: Any) -> list[str]:
    return [instruction[5].type for instruction in plan.code if instruction[5] is not None]


def test_only_what_is_needed_is_in_a_plan() -> None:
    x = tf.placeholder(tf.float32, [])
    y = tf.exp(x)
    tf.sin(y)
    with tf.control_dependencies([tf.tanh(x)]):
        z = y * 2
    assert [op.type for op in needed_ops([y], ())] == ["Placeholder", "Exp"]
    assert [op.type for op in needed_ops([z], {x})] == ["Exp", "Tanh", "Const", "Mul"]
    assert ops_in(plan_of([z], [x, y])) == ["Mul"]  # no node reads the tanh


def test_constants_are_folded() -> None:
    x = tf.placeholder(tf.float32, [])
    y = x * (tf.constant(2.0) * 3 + tf.exp(1.0))
    plan = plan_of([y], [x])
    assert ops_in(plan) == ["Mul"]


def test_what_is_random_stateful_or_large_is_not_folded() -> None:
    shape = tf.constant([3])
    plan = plan_of(
        [tf.random_uniform(shape), tf.py_func(lambda: 1, [], tf.int32), tf.zeros([1000, 1000])]
    )
    assert "RandomUniform" in ops_in(plan)
    assert "PyFunc" in ops_in(plan)
    assert "Fill" in ops_in(plan)


def test_a_constant_that_cannot_be_computed_fails_in_the_run() -> None:
    bad = tf.reshape(tf.constant([1, 2, 3]), tf.constant([2, 2]) + tf.placeholder(tf.int32, [2]) * 0)
    plan_of([bad], [op.outputs[0] for op in bad.graph.get_operations() if op.type == "Placeholder"])


def test_a_known_shape_needs_no_computation() -> None:
    x = tf.placeholder(tf.float32, [3, 4])
    heavy = tf.exp(x)
    assert ops_in(plan_of([tf.shape(heavy)], [x])) == []


def test_large_values_are_forgotten_after_their_last_use() -> None:
    x = tf.placeholder(tf.float32, [1000])
    y = tf.boolean_mask(x, x > 0)  # of unknown size: no part of it is in the arena
    z = tf.boolean_mask(y, y > 1)
    plan = plan_of([tf.reduce_sum(tf.boolean_mask(z, z > 2))], [x])
    freed = [register for i in plan.code if i[0] == Kind.FREE for register in i[2]]
    assert len(freed) == len(set(freed)) >= 3


def test_nested_failures_do_not_keep_plans() -> None:
    x = tf.placeholder(tf.float32, [])
    for _ in range(2):
        with pytest.raises(Exception, match="You must feed"):
            plan_of([x + 1])


@pytest.mark.asyncio
@pytest.mark.parametrize("nodes", [20_000])
async def test_a_long_chain_is_planned_and_run_without_recursion(nodes: int) -> None:
    x = tf.placeholder(tf.float32, [])
    y = x
    for _ in range(nodes):
        y = tf.identity(y)
    y.graph.finalize()
    async with tf.Session() as sess:
        assert await sess.run(y, {x: 3}) == 3


@pytest.mark.asyncio
async def test_several_outputs() -> None:
    x = tf.placeholder(tf.float32, [4])
    a, b = tf.split(x, 2)
    values, indices = tf.top_k(x, 2)
    async with tf.Session() as sess:
        got = await sess.run([a, b, values, indices], {x: [1, 4, 3, 2]})
    assert [np.asarray(g).tolist() for g in got] == [[1, 4], [3, 2], [4, 3], [1, 2]]
