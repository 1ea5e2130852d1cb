"""Optimizers and averages place their variables beside the originals, as TensorFlow does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

PS = [f"/job:ps/task:{i}" for i in range(3)]
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "GradientDescent": lambda: tf.train.GradientDescentOptimizer(0.1),
    "Momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9),
    "Adam": lambda: tf.train.AdamOptimizer(0.1),
    "AdamW": lambda: tf.train.AdamWOptimizer(0.1, 0.1),
    "Adagrad": lambda: tf.train.AdagradOptimizer(0.1),
    "RMSProp": lambda: tf.train.RMSPropOptimizer(0.1, centered=True),
}


def in_turn() -> Callable[[Any], str]:
    """Return a device function: variables on ps tasks in turn, other ops on the worker."""
    tasks = cycle(PS)
    return lambda op: next(tasks) if op.type == "VariableV2" else "/job:worker"


def model(sparse: bool, dtype: Any = tf.float32) -> tuple[Any, Any, Any]:
    """Return a loss and two variables, the second one by name first."""
    ones = tf.ones_initializer()
    b = tf.get_variable("b", [4, 2], dtype, ones)
    a = tf.get_variable("a", [4, 2], dtype, ones)
    if not sparse:
        return tf.reduce_sum(a * b), a, b
    rows = [tf.nn.embedding_lookup(v, tf.constant([1, 2, 1])) for v in (a, b)]
    return tf.reduce_sum(rows[0] * rows[1]), a, b


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_slots_and_updates_are_beside_their_variable(name: str, sparse: bool) -> None:
    optimizer = OPTIMIZERS[name]()
    with tf.device(in_turn()):
        step = tf.get_or_create_global_step()
        loss, a, b = model(sparse)
        train = optimizer.minimize(loss, step)
        after = tf.get_variable("after", [])
    assert [v.device for v in (step, b, a, after)] == [*PS, PS[0]]
    for slot in optimizer.get_slot_names():
        assert optimizer.get_slot(a, slot).device == PS[2]
        assert optimizer.get_slot(a, slot).initial_value.device == PS[2]
        assert optimizer.get_slot(b, slot).device == PS[1]
    powers = [v for v in optimizer.variables() if "power" in v.name]
    assert [v.device for v in powers] == [PS[2]] * len(powers)
    places: dict[str, set[str]] = {}
    for op in tf.get_default_graph().get_operations():
        for v in (a, b):
            if op.name.startswith(f"{train.name}/update_{v.op.name}/"):
                places.setdefault(v.op.name, set()).add(op.device)
        if op.type == "AssignMul":
            assert op.device == PS[2]
    assert places == {"a": {PS[2]}, "b": {PS[1]}}
    assert {x.op.device for x in (train, *train.inputs)} == {PS[0]}
    (learning_rate,) = [
        op for op in tf.get_default_graph().get_operations() if op.name.endswith("learning_rate")
    ]
    assert learning_rate.device == "/job:worker"


@pytest.mark.asyncio
@pytest.mark.parametrize("name", OPTIMIZERS)
async def test_devices_change_no_values(name: str) -> None:
    async def trained(scope: Any) -> list[Any]:
        with tf.Graph().as_default(), tf.device(scope):
            step = tf.get_or_create_global_step()
            loss, a, b = model(sparse=True)
            train = OPTIMIZERS[name]().minimize(loss, step)
            init = tf.global_variables_initializer()
            async with tf.Session() as sess:
                await sess.run(init)
                for _ in range(3):
                    await sess.run(train)
                return list(await sess.run([a, b, step]))

    for got, expected in zip(await trained(in_turn()), await trained(None), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_hyperparameters_are_converted_once_a_device() -> None:
    with tf.device(in_turn()):
        loss, *_ = model(sparse=False, dtype=tf.float64)
        tf.train.AdagradOptimizer(0.1).minimize(loss)
    casts = [op.device for op in tf.get_default_graph().get_operations() if op.type == "Cast"]
    assert sorted(casts) == PS[:2]


def test_a_constraint_is_applied_where_the_variable_is() -> None:
    with tf.device(in_turn()):
        v = tf.get_variable("v", [2], constraint=lambda value: tf.clip_by_value(value, 0.0, 1.0))
        train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(v))
    (assigned,) = train.control_inputs
    assert assigned.device == assigned.inputs[1].device == PS[0]


def test_averages() -> None:
    with tf.device(in_turn()):
        v = tf.get_variable("v", [2])
        x = tf.identity(v)
        w = tf.get_variable("w", [2])
        averages = tf.train.ExponentialMovingAverage(0.9, zero_debias=True)
        averages.apply([v, x, w])
    assert averages.average(v).device == v.device == PS[0]  # type: ignore[union-attr]  # that of a variable
    assert averages.average(w).device == w.device == PS[1]  # type: ignore[union-attr]  # likewise
    assert averages.average(x).device == PS[2]  # type: ignore[union-attr]  # that of no variable
    biased = [u for u in tf.global_variables() if u.op.name.endswith(("biased", "local_step"))]
    assert [u.device for u in biased] == [PS[2]] * 2
    updates = [op for op in tf.get_default_graph().get_operations() if "Average" in op.type]
    assert [op.device for op in updates] == [PS[0], PS[2], PS[1]]


# --- initial values -----------------------------------------------------------------------------------


def test_the_initial_value_of_a_function_is_computed_where_the_variable_is() -> None:
    def value() -> Any:
        with tf.device("/cpu:5"):
            ones = tf.ones([2])
        return ones + 1

    with tf.device(in_turn()):
        tf.get_variable("v", [3], initializer=tf.glorot_uniform_initializer())
        w = tf.Variable(value)
        x = tf.Variable(tf.random_normal([2]))
        y = tf.Variable(lambda: w + 1)
    assert {op.device for op in tf.get_default_graph().get_operations() if "v/" in op.name} == {PS[0]}
    assert w.initial_value.device == PS[1]
    assert w.initial_value.op.inputs[0].device == "/device:CPU:5"
    assert x.initial_value.device == "/job:worker"
    assert y.initial_value.device == PS[0]  # also of the copy that reads the initial value of w


def test_an_initial_value_with_a_branch_is_computed_where_the_variable_is() -> None:
    inside: list[Any] = []

    def branch() -> Any:
        inside.append(tf.zeros([2]) + 1)
        return inside[-1]

    with tf.device("/job:ps"):
        v = tf.Variable(lambda: tf.cond(tf.constant(True), branch, lambda: tf.ones([2])))
    assert v.initial_value.device == inside[0].device == "/job:ps"


def test_the_loss_of_a_regularizer_is_computed_where_the_variable_is() -> None:
    with tf.device(in_turn()):
        v = tf.get_variable("v", [3], regularizer=lambda value: tf.reduce_sum(value * value))
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert {op.device for op in (loss, loss.op.inputs[0])} == {v.device} == {PS[0]}


# --- gradients ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("colocate", [False, True])
def test_gradients_are_beside_the_ops_on_request_for(colocate: bool) -> None:
    with tf.device("/job:ps"):
        v, w = tf.get_variable("v", [3, 3]), tf.get_variable("w", [3, 3])
    with tf.device("/job:a"):
        p = tf.matmul(v, w)
    with tf.device("/job:b"):
        q = tf.tanh(p)
    with tf.device("/job:c"):
        loss = tf.reduce_sum(q * v)
    with tf.device("/job:g"):
        found = tf.gradients(loss, [v, w, p], colocate_gradients_with_ops=colocate)
        optimizer = tf.train.GradientDescentOptimizer(0.1)
        pairs = optimizer.compute_gradients(loss, colocate_gradients_with_ops=colocate)
    devices = ["/job:ps", "/job:a", "/job:b"] if colocate else ["/job:g"] * 3
    assert [grad.device for grad in found] == devices
    assert [grad.device for grad, _ in pairs] == devices[:2]


def test_rows_are_gathered_where_the_table_is() -> None:
    with tf.device(in_turn()):
        a, b = tf.get_variable("a", [4, 2]), tf.get_variable("b", [4, 2])
        one, both = tf.nn.embedding_lookup(a, [1, 2]), tf.nn.embedding_lookup([a, b], [1, 2])
        grads = tf.gradients(tf.reduce_sum(one) + tf.reduce_sum(both), [a, b])
    assert (one.device, both.device) == (PS[0], "/job:worker")
    gathers = {op.inputs[0].name: op.device for op in tf.get_default_graph().get_operations()
               if op.type == "GatherV2" and op.inputs[0].op.type == "VariableV2"}  # fmt: skip
    assert gathers == {"a:0": PS[0], "b:0": PS[1]}
    assert [grad.dense_shape.device for grad in grads] == PS[:2]
    assert {grad.values.device for grad in grads} == {"/job:worker"}
    assert tf.nn.embedding_lookup(np.eye(3), [1]).device == ""
