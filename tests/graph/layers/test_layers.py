"""Layers: their variables, names, sharing, values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(13)
layers = tf.layers
IMAGES = RNG.normal(size=(2, 5, 6, 3)).astype("f")


def _names(variables: Any) -> list[str]:
    return [v.op.name for v in variables]


def test_dense_makes_named_variables_and_ops(ops: Any) -> None:
    x = tf.constant(RNG.normal(size=(4, 3)), tf.float32)
    y = layers.dense(x, 2, activation=tf.nn.relu)
    layers.dense(y, 1, use_bias=False)
    assert _names(tf.trainable_variables()) == ["dense/kernel", "dense/bias", "dense_1/kernel"]
    assert y.name == "dense/Relu:0"
    assert y.shape == (4, 2)
    value, kernel, bias = ops.evaluate([y, *tf.trainable_variables()[:2]], None)
    assert (bias == 0).all()
    assert np.abs(kernel).max() <= np.sqrt(6 / 5)
    assert (value >= 0).all()


def test_dense_on_higher_ranks(ops: Any) -> None:
    x = RNG.normal(size=(2, 4, 3))
    ones = tf.ones_initializer()

    def run(a: Any) -> Any:
        return layers.dense(a, 2, kernel_initializer=ones, bias_initializer=ones)

    ops.agree(run, np.repeat(x.sum(-1, keepdims=True), 2, -1) + 1, x, known=("all",))
    y = layers.dense(tf.placeholder(tf.float32, [None, 4, 3]), 2)
    assert y.shape.as_list() == [None, 4, 2]


def test_a_layer_can_be_shared() -> None:
    x = tf.ones([1, 3])
    layers.dense(x, 2, name="shared")
    layers.dense(x, 2, name="shared", reuse=True)
    with tf.variable_scope("", reuse=tf.AUTO_REUSE):
        layers.dense(x, 2, name="shared")
    assert _names(tf.global_variables()) == ["shared/kernel", "shared/bias"]
    with pytest.raises(ValueError, match="already exists"):
        layers.dense(x, 2, name="shared")


def test_inputs_must_be_known_enough() -> None:
    with pytest.raises(ValueError, match="last dimension of the inputs to `Dense` should be defined"):
        layers.dense(tf.placeholder(tf.float32, [2, None]), 2)
    with pytest.raises(ValueError, match="expected min_ndim=2, found ndim=1"):
        layers.dense(tf.ones([2]), 2)
    with pytest.raises(ValueError, match="expected ndim=4, found ndim=2"):
        layers.conv2d(tf.ones([2, 2]), 2, 3)
    with pytest.raises(ValueError, match="channel dimension of the inputs should be defined"):
        layers.conv2d(tf.placeholder(tf.float32, [1, 4, 4, None]), 2, 3)
    with pytest.raises(ValueError, match="`data_format` argument must be one of"):
        layers.conv2d(tf.ones([1, 4, 4, 1]), 2, 3, data_format="NHWC")


def test_regularizers_and_constraints(ops: Any) -> None:
    x = tf.ones([1, 2])
    y = layers.dense(
        x,
        2,
        kernel_initializer=tf.ones_initializer(),
        kernel_regularizer=tf.nn.l2_loss,
        activity_regularizer=tf.reduce_sum,
        kernel_constraint=lambda v: tf.clip_by_value(v, 0.0, 0.5),
    )
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert ops.evaluate(losses) == [2.0, 4.0]
    kernel = tf.trainable_variables()[0]
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(y))
    with tf.control_dependencies([train_op]):
        after = kernel.read_value()
    assert (ops.evaluate(after) == 0.5).all()


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_conv2d(ops: Any, data_format: str) -> None:
    x = IMAGES if data_format == "channels_last" else IMAGES.transpose(0, 3, 1, 2)
    y = layers.conv2d(
        tf.constant(x), 4, 3, (2, 1), "same", data_format, activation=tf.nn.relu, name="conv"
    )
    kernel, bias = tf.trainable_variables()
    assert _names([kernel, bias]) == ["conv/kernel", "conv/bias"]
    assert kernel.shape == (3, 3, 3, 4)
    expected = tf.nn.relu(tf.nn.conv2d(tf.constant(IMAGES), kernel, [2, 1], "SAME"))
    value, want = ops.evaluate([y, expected])
    if data_format == "channels_first":
        value = value.transpose(0, 2, 3, 1)
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-6)
    assert layers.conv2d(tf.constant(IMAGES), 1, [2, 3], use_bias=False).shape == (2, 4, 4, 1)


def test_conv2d_has_strides_or_dilation() -> None:
    assert layers.conv2d(tf.constant(IMAGES), 1, 2, dilation_rate=2).shape == (2, 3, 4, 1)
    with pytest.raises(ValueError, match="Strides > 1 are not supported in conjunction with"):
        layers.conv2d(tf.constant(IMAGES), 1, 2, strides=(2, 1), dilation_rate=(1, 2))


def test_pooling() -> None:
    x = tf.constant(IMAGES)
    assert layers.max_pooling2d(x, 2, 2).shape == (2, 2, 3, 3)
    assert layers.average_pooling2d(x, (2, 3), (1, 2), "same").shape == (2, 5, 3, 3)
    first = tf.transpose(x, [0, 3, 1, 2])
    assert layers.max_pooling2d(first, 2, 2, data_format="channels_first").shape == (2, 3, 2, 3)


def test_flatten(ops: Any) -> None:
    ops.agree(layers.flatten, IMAGES.reshape(2, -1), IMAGES)
    with pytest.raises(ValueError, match="expected min_ndim=1, found ndim=None"):
        layers.flatten(tf.placeholder(tf.float32), data_format="channels_first")
    assert layers.flatten(tf.placeholder(tf.float32, [None, 2, 3])).shape.as_list() == [None, 6]
    assert layers.flatten(tf.ones([3])).shape == (3, 1)
    first = IMAGES.transpose(0, 3, 1, 2)

    def run(x: Any) -> Any:
        return layers.flatten(x, data_format="channels_first")

    ops.agree(run, IMAGES.reshape(2, -1), first, known=("all", "rank"))


def test_dropout_only_in_training(ops: Any) -> None:
    x = np.ones(1000, np.float32)
    ops.agree(layers.dropout, x, x)
    dropped = ops.compute(lambda a: layers.dropout(a, 0.3, training=True), x)
    assert 600 < np.count_nonzero(dropped) < 800

    def run(a: Any, t: Any) -> Any:
        return layers.dropout(a, 0.3, training=t)

    np.testing.assert_array_equal(ops.compute(run, x, np.array(False)), x)
    assert np.count_nonzero(ops.compute(run, x, np.array(True))) < 1000


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("how", ["bool", "tensor"])
def test_batch_normalization_in_training(ops: Any, axis: int, how: str) -> None:
    training: Any = True if how == "bool" else tf.constant(True)
    x = tf.constant(IMAGES)
    y = layers.batch_normalization(x, axis, momentum=0.5, training=training)
    assert _names(tf.trainable_variables()) == [
        "batch_normalization/gamma",
        "batch_normalization/beta",
    ]
    others = tuple(i for i in range(4) if i != axis % 4)
    mean, variance = IMAGES.mean(others, keepdims=True), IMAGES.var(others, keepdims=True)
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    value, new_mean, new_variance = ops.evaluate([y, *updates])
    np.testing.assert_allclose(value, (IMAGES - mean) / np.sqrt(variance + 1e-3), atol=1e-5)
    np.testing.assert_allclose(new_mean, mean.reshape(-1) / 2, atol=1e-6)
    count = IMAGES.size // mean.size
    unbiased = variance.reshape(-1) * count / (count - 1)
    np.testing.assert_allclose(new_variance, (1 + unbiased) / 2, rtol=1e-5)


def test_batch_normalization_outside_of_training(ops: Any) -> None:
    x = tf.constant(IMAGES)
    for training in (False, tf.constant(False)):
        with tf.variable_scope("a" if training is False else "b"):
            y = layers.batch_normalization(
                x,
                training=training,
                moving_mean_initializer=tf.constant_initializer([1.0, 2.0, 3.0]),
                beta_initializer=tf.ones_initializer(),
            )
        expected = (IMAGES - [1, 2, 3]) / np.sqrt(1.001) + 1
        np.testing.assert_allclose(ops.evaluate(y), expected, rtol=1e-4, atol=1e-5)
    first = layers.batch_normalization(tf.transpose(x, [0, 3, 1, 2]), axis=1, name="first")
    value = ops.evaluate(first).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(value, IMAGES / np.sqrt(1.001), rtol=1e-4)


def test_outside_of_training_the_averages_stay(ops: Any) -> None:
    layers.batch_normalization(tf.constant(IMAGES), training=tf.constant(False))
    mean, variance = ops.evaluate(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
    assert mean.tolist() == [0, 0, 0]
    assert variance.tolist() == [1, 1, 1]


def test_batch_normalization_of_vectors_and_halves(ops: Any) -> None:
    x = RNG.normal(size=(50, 4)).astype(np.float16)
    y = layers.batch_normalization(tf.constant(x), training=True, center=False, scale=False)
    assert y.dtype is tf.float16
    assert tf.trainable_variables() == []
    value, new_mean, _ = ops.evaluate([y, *tf.get_collection(tf.GraphKeys.UPDATE_OPS)])
    assert abs(float(value.mean())) < 1e-2
    np.testing.assert_allclose(new_mean, x.astype("d").mean(0) * 0.01, atol=1e-5)


@pytest.mark.parametrize("how", [True, False, "tensor"])
def test_gradients_of_batch_normalization(ops: Any, how: Any) -> None:
    x, weights = RNG.normal(size=(6, 3)), RNG.normal(size=(6, 3))

    def run(a: Any) -> Any:
        training = tf.constant(True) if how == "tensor" else how
        return layers.batch_normalization(a, training=training) * tf.cast(weights, a.dtype)

    exact = ops.gradients(run, x)
    again = ops.gradients(run, x, known="all")
    np.testing.assert_allclose(exact, again)
    numeric = np.zeros_like(x)
    for at in np.ndindex(*x.shape):
        step = np.zeros_like(x)
        step[at] = 1e-5
        up, down = (ops.compute(run, x + sign * step).sum() for sign in (1, -1))
        numeric[at] = (up - down) / 2e-5
    np.testing.assert_allclose(exact[0], numeric, rtol=1e-5, atol=1e-6)


def test_batch_normalization_needs_known_sizes() -> None:
    with pytest.raises(ValueError, match="undefined rank"):
        layers.batch_normalization(tf.placeholder(tf.float32))
    with pytest.raises(ValueError, match="undefined `axis` dimension"):
        layers.batch_normalization(tf.placeholder(tf.float32, [2, None]))


def test_a_dense_layer_takes_floats() -> None:
    with pytest.raises(TypeError, match="non-floating point dtype int32"):
        tf.layers.dense(tf.constant([[1, 2]]), 3)


def test_pooling_layers_are_scopes_of_their_ops() -> None:
    x = tf.zeros([1, 4, 4, 1])
    layers = [tf.layers.max_pooling2d, tf.layers.max_pooling2d, tf.layers.average_pooling2d]
    assert [layer(x, 2, 2).op.name for layer in layers] == [
        "max_pooling2d/MaxPool",
        "max_pooling2d_1/MaxPool",
        "average_pooling2d/AvgPool",
    ]


@pytest.mark.parametrize("layer", [layers.batch_normalization, layers.dropout])
def test_a_flag_of_unknown_shape_keeps_the_shape_of_the_inputs(ops: Any, layer: Any) -> None:
    flag = tf.placeholder(tf.bool)
    y = layer(tf.constant(RNG.normal(size=(4, 3)), tf.float32), training=flag)
    z = layers.dense(y, 2)
    assert (y.shape.as_list(), z.shape.as_list()) == ([4, 3], [4, 2])
    assert ops.evaluate(z, {flag: True}).shape == (4, 2)
