"""Ancestors and descendants of nodes."""

from __future__ import annotations

from collections.abc import Iterable

import asyncmon.graph as tf
from asyncmon.graph.core.walk import ancestors, descendants, predecessors


def _names(ops: Iterable[tf.Operation]) -> list[str]:
    return [op.name for op in ops]


def test_ancestors_come_in_the_order_they_were_built_each_once() -> None:
    x = tf.placeholder(tf.float32, [], "x")
    y = tf.identity(x, "y")
    tf.identity(y, "beside")
    last = tf.add(y, x, "last")
    assert _names(ancestors([last.op, y.op])) == ["x", "y", "last"]


def test_predecessors_are_inputs_and_control_inputs_but_no_variables() -> None:
    v = tf.Variable(1.0, name="v")
    first = tf.no_op("first")
    with tf.control_dependencies([first]):
        write = tf.assign(v, tf.constant(2.0, name="two"), name="write").op
    assert _names(predecessors(write)) == ["two", "first"]
    assert _names(predecessors(write, fed=write.inputs)) == ["first"]


def test_descendants_are_the_starts_and_what_runs_after_them() -> None:
    x, other = tf.placeholder(tf.float32, [], "x"), tf.placeholder(tf.float32, [], "other")
    tf.identity(other)
    with tf.control_dependencies([x]):
        after = tf.no_op("after")
    last = tf.identity(tf.identity(x, "y"), "last")
    ops = tf.get_default_graph().get_operations()
    assert descendants(ops, {x.op}) == {x.op, after, last.op, last.op.inputs[0].op}


def test_a_long_chain_is_walked_without_recursion() -> None:
    x = tf.placeholder(tf.float32, [])
    for _ in range(5000):
        x = tf.identity(x)
    assert len(ancestors([x.op])) == 5001
