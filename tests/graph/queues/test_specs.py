"""What the ops of queues carry is plain data: a copy of it stands for the same queue."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.op import Spec

pytestmark = pytest.mark.asyncio


def assert_plain(value: Any) -> None:
    if isinstance(value, tuple | list):
        for item in value:
            assert_plain(item)
    elif is_dataclass(value) and not isinstance(value, type):
        assert isinstance(value, Spec) or value.__dataclass_params__.frozen, value
        for field in fields(value):
            assert_plain(getattr(value, field.name))
    else:
        assert value is None or isinstance(value, int | float | str | bytes | DType | np.ndarray), value


def copied(value: Any) -> Any:
    return replace(value) if is_dataclass(value) and not isinstance(value, type) else value


def copy_attrs(graph: tf.Graph) -> None:
    """Give each op its own copy of its data, like a graph that was sent."""
    for op in graph.get_operations():
        for value in op.attrs.values():
            assert_plain(value)
        op.attrs = {name: copied(value) for name, value in op.attrs.items()}


async def test_queues_of_all_kinds() -> None:
    with tf.Graph().as_default() as graph:
        queues = [
            tf.FIFOQueue(4, [tf.float32], shapes=[[]]),
            tf.RandomShuffleQueue(4, 0, [tf.float32], shapes=[[]], seed=1, shared_name="shuffled"),
        ]
        values: list[Any] = [1.0, 2.0]
        puts = [queue.enqueue(value) for queue, value in zip(queues, values, strict=True)]
        takes = [queue.dequeue_many(1) for queue in queues]
        sizes = [queue.size() for queue in queues]
        ends = [queue.close() for queue in queues]
        copy_attrs(graph)
        async with tf.Session() as sess:
            await sess.run(puts)
            assert await sess.run(sizes) == [1, 1]
            await sess.run(ends)
            found = await sess.run(takes)
    assert [float(np.ravel(one)[-1]) for one in found] == [1.0, 2.0]


async def test_queues_of_one_node_name_in_two_branches_are_two() -> None:
    def branch(value: float) -> Any:
        queue = tf.FIFOQueue(3, [tf.float32], shapes=[[]])
        with tf.control_dependencies([queue.enqueue(value)]):
            return queue.size()

    with tf.Graph().as_default():
        outer = tf.FIFOQueue(3, [tf.float32], shapes=[[]])
        put, size = outer.enqueue(0.0), outer.size()
        flag = tf.placeholder(tf.bool, [])
        inner = tf.cond(flag, lambda: branch(1.0), lambda: branch(2.0))
        async with tf.Session() as sess:
            await sess.run(put)
            assert await sess.run(inner, {flag: True}) == 1
            assert await sess.run(inner, {flag: True}) == 2
            assert await sess.run(inner, {flag: False}) == 1
            assert await sess.run(size) == 1
