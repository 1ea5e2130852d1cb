"""GS-1 to GS-9: the global step."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import graph as tf


def test_it_is_found_in_its_collection_or_by_name_gs_1() -> None:
    """GS-1."""
    assert tf.get_global_step() is None
    step = tf.Variable(0, name="global_step", trainable=False)
    assert tf.get_global_step() is step
    with tf.Graph().as_default() as other:
        assert tf.get_global_step() is None
        created = tf.create_global_step(other)
        assert tf.get_global_step() is created


def test_it_is_created_once_gs_2() -> None:
    """GS-2."""
    step = tf.create_global_step()
    assert (step.op.name, step.dtype, step.shape) == ("global_step", tf.int64, ())
    assert tf.global_variables() == tf.get_collection(tf.GraphKeys.GLOBAL_STEP) == [step]
    assert tf.trainable_variables() == []
    with pytest.raises(ValueError, match=r'^"global_step" already exists\.$'):
        tf.create_global_step()


def test_get_or_create_is_idempotent_gs_3() -> None:
    """GS-3."""
    with tf.name_scope("somewhere"):
        step = tf.get_or_create_global_step()
    assert step.op.name == "global_step"
    assert tf.get_or_create_global_step() is step


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: 3, 'Existing "global_step" must be a Variable or Tensor: 3'),
        (lambda: tf.Variable(1.0), "does not have integer type: float32"),
        (lambda: tf.Variable([1, 2]), r"is not scalar: \(2,\)"),
    ],
)
def test_what_cannot_be_one_gs_4(make: Any, text: str) -> None:
    """GS-4."""
    with pytest.raises(TypeError, match=text):
        tf.assert_global_step(make())


def test_two_of_them_are_an_error_in_the_log_gs_5(caplog: pytest.LogCaptureFixture) -> None:
    """GS-5."""
    tf.create_global_step()
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, tf.Variable(0))
    with caplog.at_level(logging.ERROR, "asyncmon"):
        assert tf.get_global_step() is None
    assert "Multiple tensors in global_step collection." in caplog.text


@pytest.mark.asyncio
async def test_it_is_read_from_a_session_gs_6() -> None:
    """GS-6."""
    step = tf.create_global_step()
    async with tf.Session() as sess:
        await sess.run(step.initializer)
        await sess.run(step.assign_add(4))
        for name in (step, "global_step:0"):
            value = await tf.global_step(sess, name)
            assert value == 4
            assert type(value) is int


@pytest.mark.asyncio
async def test_an_int32_step_is_fine_gs_7() -> None:
    """GS-7."""
    step = tf.Variable(0, name="global_step", trainable=False)
    async with tf.Session() as sess:
        await sess.run(step.initializer)
        assert sess.global_step == 0


@pytest.mark.asyncio
async def test_a_fetch_beside_the_increment_is_always_the_new_value_gs_9() -> None:
    """GS-9: no race: a fetched step is the one after the commit, as the session's property is."""
    step = tf.create_global_step()
    increment = step.assign_add(1)
    async with tf.Session() as sess:
        await sess.run(step.initializer)
        for n in range(50):
            assert await sess.run([step, increment.op, step + 0]) == [n + 1, None, n]
            assert sess.global_step == n + 1


@pytest.mark.asyncio
async def test_a_step_of_shape_1_counts_where_it_is_passed(tmp_path: Path) -> None:
    step = tf.Variable(np.array([5]), name="global_step", trainable=False)
    with pytest.raises(TypeError, match="not scalar"):
        tf.get_global_step()
    async with tf.Session() as sess:
        assert sess.global_step is None
        await sess.run(step.initializer)
        assert await am.global_step(sess, step) == 5
        assert sess.global_step == 5
        assert (await am.Saver().save(sess, str(tmp_path / "m"), global_step=step)).endswith("m-5")
    supervisor = am.Supervisor(logdir=str(tmp_path), global_step=step)
    async with supervisor.managed_session() as sess:
        assert await supervisor.current_step(sess) == 5


@pytest.mark.asyncio
@pytest.mark.parametrize("value", [0.5, np.zeros(3, np.int64)])
async def test_another_variable_of_that_name_counts_nothing(value: Any) -> None:
    v = tf.Variable(value, name="global_step")
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert sess.global_step is None
        assert (await sess.snapshot()).step is None


def test_the_global_step_is_a_variable_of_its_scope() -> None:
    tf.reset_default_graph()
    with tf.name_scope("names"), tf.variable_scope("model"):
        step = tf.get_or_create_global_step()
    assert step.name == "model/global_step:0"
    assert tf.get_global_step() is step
    with tf.variable_scope("model", reuse=True):
        assert tf.get_variable("global_step", [], tf.int64) is step
    tf.reset_default_graph()
    with tf.variable_scope("other", reuse=True), pytest.raises(ValueError, match="does not exist"):
        tf.create_global_step()
