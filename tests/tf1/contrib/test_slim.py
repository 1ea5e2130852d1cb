"""``tf.contrib.slim``: queues of batches, and variables by scope."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon.tf1 as tf

pytestmark = [pytest.mark.asyncio, pytest.mark.usefixtures("graph")]
slim = tf.contrib.slim


def names(variables: Any) -> list[str]:
    return [variable.op.name for variable in variables]


@pytest.mark.parametrize("form", ["list", "dict", "padded"])
async def test_a_prefetch_queue_returns_batches_in_their_form(form: str) -> None:
    numbers = tf.train.range_input_producer(6, 1, shuffle=False).dequeue()
    batch: Any = tf.train.batch([numbers, tf.fill([2], numbers)], 2)
    if form == "dict":
        batch = {"n": batch[0], "twice": batch[1]}
    if form == "padded":
        batch = [tf.boolean_mask(batch[0], batch[0] > 0)]
    queue = slim.prefetch_queue.prefetch_queue(batch, capacity=3, dynamic_pad=form == "padded")
    assert isinstance(queue, tf.PaddingFIFOQueue if form == "padded" else tf.FIFOQueue)
    fetch, found = queue.dequeue(), []
    async with tf.train.MonitoredSession() as sess:
        while not sess.should_stop():
            found.append(await sess.run(fetch))
    if form == "padded":
        assert [one.tolist() for one in found] == [[1], [2, 3], [4, 5]]
        return
    first = [one["n"] if form == "dict" else one[0] for one in found]
    assert [one.tolist() for one in first] == [[0, 1], [2, 3], [4, 5]]
    summaries = names(tf.get_collection(tf.GraphKeys.SUMMARIES))
    assert "prefetch_queue/fraction_of_3_full" in summaries


async def test_labels_are_encoded() -> None:
    encoded = slim.one_hot_encoding([1, 0], 3, outputs_collections="out")
    assert encoded.op.name.startswith("OneHotEncoding/")
    assert tf.get_collection("out") == [encoded]
    async with tf.Session() as sess:
        assert (await sess.run(encoded)).tolist() == [[0, 1, 0], [1, 0, 0]]


async def test_variables_by_scope_and_last_name() -> None:
    with tf.variable_scope("a") as scope:
        slim.variable("w", [2], collections=["mine"], device="/cpu:0", trainable=False)
        slim.model_variable("b", [2], initializer=tf.ones_initializer())
    with slim.arg_scope([slim.variable, slim.model_variable], shape=[1]):
        slim.model_variable("c")
        slim.variable("local", collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
    assert names(tf.get_collection("mine")) == ["a/w"]
    assert names(slim.get_variables()) == ["a/b", "c"]
    assert names(slim.get_variables(scope)) == names(slim.get_variables("a/")) == ["a/b"]
    assert names(slim.get_variables(suffix="b")) == ["a/b"]
    assert names(slim.get_model_variables()) == names(slim.get_trainable_variables()) == ["a/b", "c"]
    assert names(slim.get_local_variables()) == ["local"]
    assert names(slim.get_variables_to_restore(exclude=["a"])) == ["c"]
    assert names(slim.get_variables_to_restore(include=["a"], exclude=["c"])) == ["a/b"]
    assert tf.contrib.framework.get_variables is slim.get_variables


async def test_layers_make_their_variables_in_the_scopes_of_variable_and_model_variable() -> None:
    slim = tf.contrib.slim
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2, 3])
        with slim.arg_scope([slim.variable], device="/cpu:3"):
            slim.fully_connected(x, 4, scope="a")
            with slim.arg_scope([slim.model_variable], device="/cpu:1"):
                slim.fully_connected(x, 4, scope="b")
            tf.layers.dense(x, 2, name="c")
        found = {v.op.name: v.device for v in slim.get_variables()}
        assert [found[f"{s}/weights"] for s in "ab"] == ["/device:CPU:3", "/device:CPU:1"]
        assert found["c/kernel"] == ""
        assert len(slim.get_model_variables()) == 4
