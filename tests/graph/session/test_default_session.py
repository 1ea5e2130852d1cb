"""The default session: which one it is, and what nodes and variables do with it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.training import MonitoredTrainingSession

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def own_graph() -> None:
    tf.reset_default_graph()


async def test_tensors_operations_and_variables_use_it() -> None:
    x = tf.placeholder(tf.float32, [])
    v = tf.Variable(3.0)
    async with tf.Session():
        assert await v.initializer.run() is None
        assert await (v + x).eval({x: 1.0}) == 4.0
        assert await v.eval() == 3.0
        await v.load(8.0)
        await v.assign_add(x).op.run({x: 1.0})
        assert await v.eval() == 9.0


async def test_load_sets_a_variable_that_has_no_value_and_adds_no_operation() -> None:
    v = tf.Variable(np.zeros((2, 3), np.float32))
    async with tf.Session() as sess:
        sess.graph.finalize()
        await v.load(np.ones((2, 3)))
        assert (await v.eval(sess)).sum() == 6
        with pytest.raises(ValueError, match="shape"):
            await v.load([1.0], sess)


async def test_without_one_or_of_another_graph_the_call_is_refused_with_the_original_text() -> None:
    x, v = tf.constant(1), tf.Variable(1)
    text = (
        r"No default session is registered. Use `with sess.as_default\(\)` or pass an explicit session"
    )
    with pytest.raises(ValueError, match=rf"Cannot evaluate tensor using `eval\(\)`: {text} to `eval"):
        x.eval()
    with pytest.raises(ValueError, match=rf"Cannot execute operation using `run\(\)`: {text}"):
        x.op.run()
    with pytest.raises(ValueError, match="No default session is registered"):
        v.load(1)
    async with tf.Session(graph=tf.Graph()) as other:
        with pytest.raises(ValueError, match=r"Cannot use the default session .*different from the s"):
            x.eval()
    with pytest.raises(ValueError, match=r"Cannot use the given session to execute operation"):
        x.op.run(session=other)


async def test_blocks_nest_and_end() -> None:
    assert tf.get_default_session() is None
    async with tf.Session() as outer:
        async with tf.Session() as inner:
            assert tf.get_default_session() is inner
            with outer.as_default() as entered:
                assert entered is outer
                assert tf.get_default_session() is outer
            assert tf.get_default_session() is inner
        assert tf.get_default_session() is outer
    assert tf.get_default_session() is None


async def test_as_default_neither_changes_the_graph_nor_closes() -> None:
    graph = tf.get_default_graph()
    sess = tf.Session(graph=tf.Graph())
    with sess.as_default():
        assert tf.get_default_graph() is graph
    assert not sess.closed
    await sess.close()


async def test_each_task_has_its_own_and_inherits_that_of_its_start() -> None:
    x = tf.constant(5)
    seen: dict[str, Any] = {}

    async def inside(name: str) -> None:
        async with tf.Session() as mine:
            await asyncio.sleep(0)
            seen[name] = tf.get_default_session() is mine

    async with tf.Session() as sess:

        async def inherits() -> None:
            seen["value"] = await x.eval()
            seen["session"] = tf.get_default_session() is sess

        await asyncio.gather(inside("a"), inside("b"), inherits())
        assert tf.get_default_session() is sess
    assert seen == {"a": True, "b": True, "value": 5, "session": True}


async def test_the_session_is_the_one_of_the_call_not_of_the_await() -> None:
    x = tf.constant(5)
    sess = tf.Session()
    with sess.as_default():
        value = x.eval()
    assert await value == 5
    await sess.close()


async def test_a_monitored_session_is_no_default_but_can_be_given() -> None:
    step = tf.get_or_create_global_step()
    v = tf.Variable(1.0)
    more = v + 1
    async with MonitoredTrainingSession() as sess:
        assert tf.get_default_session() is None
        assert await v.eval(sess) == 1.0
        await v.load(2.0, sess)
        assert await more.eval(session=sess) == 3.0
        assert await step.eval(session=sess.raw_session()) == 0


async def test_a_callable_feeds_its_arguments() -> None:
    x = tf.placeholder(tf.float32, [], name="x")
    async with tf.Session() as sess:
        more = x + 1
        add = sess.make_callable([more, {"x": x}], ["x:0"])
        assert await add(3.0) == [4.0, {"x": 3.0}]
        metadata = tf.RunMetadata()
        await add(3.0, options=tf.RunOptions(trace_level=3), run_metadata=metadata)
        assert metadata.nodes
        with pytest.raises(TypeError, match="takes 1 values, for"):
            await add()
        with pytest.raises(errors.InvalidArgumentError, match="feed"):
            await sess.make_callable(more)()
        with pytest.raises(TypeError, match="Can not convert"):
            sess.make_callable([3.5])
