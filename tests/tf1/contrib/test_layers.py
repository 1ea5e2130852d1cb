"""``tf.contrib.layers``: initializers, regularizers, fully_connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

Evaluate = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("graph")
layers = tf.contrib.layers
ROWS = np.random.default_rng(21).normal(size=(4, 3)).astype("f")


@pytest.mark.parametrize(
    ("make", "limit", "deviation"),
    [
        (lambda: layers.xavier_initializer(), np.sqrt(6 / 500), np.sqrt(2 / 500)),
        (lambda: layers.xavier_initializer_conv2d(uniform=False), None, 0.88 * np.sqrt(1.3 * 2 / 500)),
    ],
)
def test_initializers(evaluate: Evaluate, make: Any, limit: float | None, deviation: float) -> None:
    values = evaluate(make()([200, 300]))
    assert values.std() == pytest.approx(deviation, rel=0.03)
    if limit is not None:
        assert limit * 0.99 < abs(values).max() <= limit
    field = evaluate(make()([3, 3, 20, 30]))
    assert field.std() < values.std() * 1.2
    assert evaluate(make()([])).shape == ()


def test_initializers_refuse_what_they_cannot_do() -> None:
    with pytest.raises(TypeError, match="non-floating point type"):
        layers.xavier_initializer(dtype=tf.int32)


def test_a_regularizer_by_itself_and_of_a_layer(evaluate: Evaluate) -> None:
    w = tf.get_variable("w", initializer=tf.constant([1.0, -2.0]))
    loss = layers.l2_regularizer(0.5)(w)
    assert loss is not None
    assert loss.op.name == "l2_regularizer"
    assert evaluate([loss, layers.l2_regularizer(tf.constant(0.5))(w)]) == [1.25, 1.25]
    assert layers.l2_regularizer(0.0)(w) is None
    tf.layers.dense(
        ROWS, 2, kernel_initializer=tf.ones_initializer(), kernel_regularizer=layers.l2_regularizer(0.1)
    )
    assert evaluate(tf.losses.get_regularization_loss()) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="scale cannot be an integer: 1"):
        layers.l2_regularizer(1)
    with pytest.raises(ValueError, match=r"less than 0 on a regularizer: -0\.1"):
        layers.l2_regularizer(-0.1)


def test_fully_connected_and_flatten(evaluate: Evaluate) -> None:
    y = layers.fully_connected(
        ROWS, 2, weights_regularizer=layers.l2_regularizer(0.5), outputs_collections="out"
    )
    z = layers.fully_connected(y, 1, activation_fn=None, biases_initializer=None, scope="last")
    again = layers.fully_connected(y, 1, None, biases_initializer=None, scope="last", reuse=True)
    names = ["fully_connected/weights", "fully_connected/biases", "last/weights"]
    assert [v.op.name for v in tf.trainable_variables()] == names
    assert [v.op.name for v in tf.model_variables()] == names
    assert y.op.name == "fully_connected/Relu"
    assert tf.get_collection("out") == [y]
    assert len(tf.losses.get_regularization_losses()) == 1
    weights, biases, _ = tf.trainable_variables()
    found, product, last, same = evaluate([y, tf.nn.relu(ROWS @ weights + biases), z, again])
    np.testing.assert_allclose(found, product, rtol=1e-5)
    np.testing.assert_array_equal(last, same)
    flat = layers.flatten(tf.ones([2, 3, 4]), outputs_collections=["flat"])
    assert flat.shape == (2, 12)
    assert tf.get_collection("flat") == [flat]
    assert flat.op.name == "Flatten/flatten/Reshape"
    with pytest.raises(ValueError, match="num_outputs should be an int"):
        layers.fully_connected(ROWS, 2.0)


def test_fully_connected_with_a_normalizer_has_no_biases() -> None:
    collections = {"weights": ["mine"]}
    layers.fully_connected(
        ROWS, 2, normalizer_fn=tf.layers.batch_normalization, normalizer_params={"training": True},
        variables_collections=collections, trainable=False,
    )  # fmt: skip
    assert [v.op.name for v in tf.get_collection("mine")] == ["fully_connected/weights"]
    with pytest.raises(AttributeError, match=r"tf\.layers"):
        _ = layers.layer_norm


# --- images ---------------------------------------------------------------------------------------
IMAGES = np.random.default_rng(22).normal(size=(2, 6, 6, 3)).astype("f")


def test_convolutions_and_pools_are_those_of_tf_layers(evaluate: Evaluate) -> None:
    ones = tf.ones_initializer()
    y = layers.conv2d(IMAGES, 4, [3, 3], 2, weights_initializer=ones, biases_initializer=ones)
    z = layers.conv2d(y, 3, 2, padding="VALID", rate=2, activation_fn=None, weights_initializer=ones)
    names = ["Conv/weights", "Conv/biases", "Conv_1/weights", "Conv_1/biases"]
    assert [v.op.name for v in tf.model_variables()] == names
    options = {"kernel_initializer": ones, "bias_initializer": ones, "activation": tf.nn.relu}
    same = tf.layers.conv2d(IMAGES, 4, 3, 2, "same", **options)
    apart = tf.layers.conv2d(same, 3, 2, dilation_rate=2, kernel_initializer=ones)
    turned = tf.transpose(IMAGES, [0, 3, 1, 2])
    pools = [
        layers.max_pool2d(IMAGES, 2), tf.layers.max_pooling2d(IMAGES, 2, 2),
        layers.avg_pool2d(IMAGES, [2, 2], 1, "SAME"), tf.layers.average_pooling2d(IMAGES, 2, 1, "same"),
        tf.transpose(layers.max_pool2d(turned, 3, data_format="NCHW"), [0, 2, 3, 1]),
        tf.layers.max_pooling2d(IMAGES, 3, 2),
    ]  # fmt: skip
    found = evaluate([y, same, z, apart, *pools])
    for one, other in zip(found[::2], found[1::2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
    with pytest.raises(ValueError, match="has to be either NCHW or NHWC, got 'NHCW'"):
        layers.max_pool2d(IMAGES, 2, data_format="NHCW")


@pytest.mark.parametrize("updates", [tf.GraphKeys.UPDATE_OPS, "mine", None])
def test_a_batch_norm_updates_its_averages(evaluate: Evaluate, updates: str | None) -> None:
    y = layers.batch_norm(IMAGES, 0.9, scale=True, updates_collections=updates)
    same = tf.layers.batch_normalization(IMAGES, momentum=0.9, training=True, name="same")
    mean = tf.global_variables()[2]
    assert mean.op.name == "BatchNorm/moving_mean"
    mine = [u for u in tf.get_collection(tf.GraphKeys.UPDATE_OPS) if u.op.name.startswith("BatchNorm")]
    assert len(mine) == (2 if updates == tf.GraphKeys.UPDATE_OPS else 0)
    run = [y, same] if updates is None else [y, same, *tf.get_collection(updates)]
    first, second = evaluate(run)[:2]
    np.testing.assert_allclose(first, second, rtol=1e-5)
    np.testing.assert_allclose(evaluate(run, mean), 0.1 * IMAGES.mean((0, 1, 2)), rtol=1e-4)
    with pytest.raises(ValueError, match="no batch_weights="):
        layers.batch_norm(IMAGES, batch_weights=[1.0])


def test_a_dropout_keeps_a_part(evaluate: Evaluate) -> None:
    found = evaluate(layers.dropout(tf.ones([1000]), 0.8, seed=3))
    assert set(found.tolist()) == {0.0, 1.25}
    assert evaluate(layers.dropout(tf.ones([5]), is_training=False)).tolist() == [1.0] * 5


# --- arg_scope and slim ---------------------------------------------------------------------------
def test_arg_scope_sets_defaults_within_a_block() -> None:
    slim = tf.contrib.slim
    regularizer = slim.l2_regularizer(0.1)
    with slim.arg_scope([slim.conv2d, slim.fully_connected], weights_regularizer=regularizer) as scope:
        with slim.arg_scope([slim.conv2d], padding="VALID", activation_fn=None):
            y = slim.conv2d(IMAGES, 4, [3, 3], scope="first")
        assert slim.conv2d(y, 4, 3, padding="SAME").op.type == "Relu"
    with slim.arg_scope(scope):
        slim.fully_connected(slim.flatten(y), 2)
    slim.fully_connected(slim.flatten(y), 2)
    assert y.shape == (2, 4, 4, 4)
    assert y.op.type == "BiasAdd"
    names = ["first", "Conv", "fully_connected"]
    losses = tf.losses.get_regularization_losses()
    assert [loss.op.name.rpartition("/weights")[0] for loss in losses] == names
    with pytest.raises(ValueError, match="is not decorated with @add_arg_scope"), slim.arg_scope([max]):
        pass
    with pytest.raises(ValueError, match="without arguments"), slim.arg_scope(scope, padding="SAME"):
        pass


def test_own_functions_take_an_arg_scope() -> None:
    @tf.contrib.framework.add_arg_scope
    def power(x: int, by: int = 1) -> int:
        return x**by

    with tf.contrib.framework.arg_scope([power], by=3):
        assert (power(2), power(2, by=2)) == (8, 4)
    assert power(2) == 2


# --- optimize_loss --------------------------------------------------------------------------------
def _loss() -> tuple[Any, Any]:
    v = tf.get_variable("v", initializer=tf.constant([3.0, 4.0]))
    tf.train.create_global_step()
    return v, tf.reduce_sum(v * v) / 2


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({}, 0.5),
        ({"clip_gradients": 2.5}, 0.75),
        ({"clip_gradients": lambda pairs: [(2 * g, v) for g, v in pairs]}, 0.0),
        ({"gradient_multipliers": {"v": 0.5}}, 0.75),
        ({"learning_rate_decay_fn": lambda rate, step: rate * 0.5}, 0.75),
        ({"optimizer": tf.train.GradientDescentOptimizer(0.5)}, 0.5),
        ({"optimizer": tf.train.GradientDescentOptimizer, "learning_rate": tf.constant}, 0.5),
        ({"optimizer": lambda: tf.train.GradientDescentOptimizer(0.5), "learning_rate": None}, 0.5),
    ],
)
def test_optimize_loss_takes_a_step(evaluate: Evaluate, options: Any, factor: float) -> None:
    v, loss = _loss()
    given = {"learning_rate": 0.5, "optimizer": "SGD", **options}
    if given["learning_rate"] is tf.constant:
        given["learning_rate"] = tf.constant(0.5)
    train = layers.optimize_loss(loss, None, **given)
    assert evaluate(train) == 12.5
    found, step = evaluate(train, [v, tf.train.get_global_step()])
    np.testing.assert_allclose(found, np.array([3.0, 4.0]) * factor, rtol=1e-6)
    assert step == 1


def test_optimize_loss_runs_updates_adds_noise_and_writes_summaries(evaluate: Evaluate) -> None:
    v, loss = _loss()
    count = tf.Variable(0.0, trainable=False)
    train = layers.optimize_loss(
        loss, tf.train.get_global_step(), 0.5, "Momentum", gradient_noise_scale=0.1,
        update_ops=[count.assign_add(1.0)], increment_global_step=False,
    )  # fmt: skip
    tags = {value.tag for value in tf.Summary.FromString(evaluate(tf.summary.merge_all())).value}
    inside = {"learning_rate_1", "loss", "global_norm/gradient_norm"}
    assert tags == {f"OptimizeLoss/{name}" for name in inside}
    found, counted, step = evaluate(train, [v, count, tf.train.get_global_step()])
    assert counted == 1
    assert step == 0
    assert 0 < abs(found - np.array([1.5, 2.0])).max() < 0.2


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"optimizer": "Sgd"}, "Optimizer name should be one of Adagrad, Adam"),
        ({"optimizer": 3}, "Unrecognized optimizer 3"),
        ({"learning_rate": None}, "Learning rate is required"),
        ({"learning_rate": tf.constant}, "Invalid learning_rate"),
        ({"summaries": ["norm"]}, r"got \['norm'\]"),
    ],
)
def test_optimize_loss_refuses_other_arguments(options: Any, match: str) -> None:
    _, loss = _loss()
    given = {"learning_rate": 0.5, "optimizer": "SGD", **options}
    if given["learning_rate"] is tf.constant:
        given["learning_rate"] = tf.constant([0.5, 0.1])
    with pytest.raises(ValueError, match=match):
        layers.optimize_loss(loss, None, **given)
