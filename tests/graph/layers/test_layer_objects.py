"""Layers as objects: shared variables of a second call, ownership, names, regularization."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(20)
layers = tf.layers
ROWS = RNG.normal(size=(4, 3)).astype("f")
IMAGES = RNG.normal(size=(2, 6, 5, 3)).astype("f")
CLASSES: dict[str, tuple[Any, ...]] = {
    "Dense": (2,),
    "Conv2D": (2, 3),
    "Conv2DTranspose": (2, 3),
    "BatchNormalization": (),
}
FUNCTIONS = {
    "Dense": "dense",
    "Conv2D": "conv2d",
    "Conv2DTranspose": "conv2d_transpose",
}


def _names(items: Any) -> list[str]:
    return [item.op.name for item in items]


@pytest.mark.parametrize("name", CLASSES)
def test_the_second_call_shares_the_variables(ops: Any, name: str) -> None:
    layer = getattr(layers, name)(*CLASSES[name])
    assert not layer.built
    assert layer.variables == []
    x = tf.constant(IMAGES)
    first = layer(x)
    made = tf.global_variables()
    second, third = layer(x), layer.apply(x)
    assert tf.global_variables() == made == layer.variables == layer.weights
    assert layer.trainable_variables == tf.trainable_variables()
    assert layer.non_trainable_variables == [v for v in made if v not in layer.trainable_variables]
    for other in (second, third):
        np.testing.assert_array_equal(*ops.evaluate([first, other]))
    size = sum(int(np.prod(v.shape.as_list())) for v in made)
    assert layer.count_params() == size


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_a_layer_applied_once(ops: Any, name: str) -> None:
    cls, x = getattr(layers, name), tf.constant(IMAGES)
    function = getattr(layers, FUNCTIONS[name])
    result = function(x, *CLASSES[name], name="mine")
    layer = cls(*CLASSES[name], _scope="mine", _reuse=True)
    again = function(x, *CLASSES[name], name="mine", reuse=True)
    same = layer(x)
    assert _names(layer.variables) == _names(tf.global_variables())
    value, *others = ops.evaluate([result, again, same])
    for other in others:
        np.testing.assert_array_equal(value, other)
    own = list(inspect.signature(cls).parameters)
    taken = list(inspect.signature(function).parameters)
    assert taken == ["inputs", *own[: own.index("name") + 1], "reuse"]
    assert function.__doc__ is not None


def test_arguments_may_be_given_by_place() -> None:
    settings = [None, True, None, tf.zeros_initializer(), None, None, None, None, None, True]
    layers.dense(tf.constant(ROWS), 2, *settings, "placed", None)
    layers.dense(tf.constant(ROWS), 2, *settings, "placed", True)
    assert _names(tf.global_variables()) == ["placed/kernel", "placed/bias"]
    with pytest.raises(TypeError, match="unexpected keyword argument 'units_'"):
        layers.dense(tf.constant(ROWS), units_=2)


def test_layers_are_named_as_in_tf1() -> None:
    x = tf.constant(ROWS)
    first, second = layers.Dense(3), layers.Dense(3)
    assert [first.name, second.name] == ["dense_1", "dense_2"]
    assert [t.name for t in (first(x), first(x), second(x))] == [
        "dense/BiasAdd:0",
        "dense/BiasAdd_1:0",
        "dense_1/BiasAdd:0",
    ]
    assert [first.scope_name, second.scope_name] == ["dense", "dense_1"]
    mine = [layers.Dense(3, name="mine") for _ in range(2)]
    assert [layer(x).op.name for layer in mine] == ["mine/BiasAdd", "mine_1/BiasAdd"]
    assert [layer.name for layer in mine] == ["mine", "mine"]
    with tf.variable_scope("outer"):
        inside = layers.Dense(3)
        inside(x)
    assert inside(x).op.name == "outer/dense/BiasAdd_1"
    assert inside.kernel.op.name == "outer/dense/kernel"
    names = [layers.flatten(x, name="q").op.name, layers.dropout(x).op.name]
    assert names == ["q/Reshape", "dropout/Identity"]
    assert layers.MaxPooling2D(2, 2).name == "max_pooling2d_1"
    with pytest.raises(ValueError, match="No name available"):
        _ = layers.Dense(2).scope_name
    with pytest.raises(ValueError, match="not built"):
        layers.Dense(2).count_params()


@pytest.mark.parametrize("name", CLASSES)
def test_a_layer_may_be_built_by_hand(name: str) -> None:
    x = ROWS if name == "Dense" else IMAGES
    layer = getattr(layers, name)(*CLASSES[name])
    layer.build([None, *x.shape[1:]])
    assert layer.built
    built = _names(layer.variables)
    assert {v.split("/")[0] for v in built} == {layer.scope_name}
    y = layer(tf.constant(x))
    assert _names(tf.global_variables()) == _names(layer.variables) == built
    assert y.op.name.startswith(layer.scope_name)
    getattr(layers, name)(*CLASSES[name])(tf.constant(x))
    assert len(tf.global_variables()) == 2 * len(built)


def test_reuse_without_a_name_takes_the_default_one() -> None:
    x = tf.constant(ROWS)
    layers.dense(x, 3)
    layers.dense(x, 3, reuse=True)
    assert _names(tf.global_variables()) == ["dense/kernel", "dense/bias"]
    for reuse in (None, True, tf.AUTO_REUSE):
        with tf.variable_scope("outer", reuse=reuse):
            layers.dense(x, 3)
    assert _names(tf.global_variables("outer")) == ["outer/dense/kernel", "outer/dense/bias"]
    with pytest.raises(ValueError, match="does not exist"):
        layers.dense(x, 3, name="other", reuse=True)


def test_a_layer_that_is_not_trainable() -> None:
    layer = layers.Dense(3, trainable=False)
    layer(tf.constant(ROWS))
    assert tf.trainable_variables() == [] == layer.trainable_variables
    assert _names(layer.non_trainable_variables) == ["dense/kernel", "dense/bias"]


def test_regularizers_of_variables_and_of_results(ops: Any) -> None:
    x = tf.ones([4, 3])
    layer = layers.Dense(
        2,
        kernel_initializer=tf.ones_initializer(),
        kernel_regularizer=tf.nn.l2_loss,
        activity_regularizer=tf.reduce_sum,
    )
    layer(x)
    collected = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert set(layer.losses) == set(collected)
    assert layer.get_losses_for(None) + layer.get_losses_for([x]) == collected
    assert layer.get_losses_for(x) == layer.get_losses_for([x])
    assert ops.evaluate(collected) == [3.0, 6.0]  # that of the result by the size of the batch
    assert [loss.op.name for loss in collected] == [
        "dense/kernel/Regularizer/L2Loss",
        "dense/ActivityRegularizer/truediv",
    ]
    layer(x)
    assert len(layer.losses) == 3


class Scale(layers.Layer):
    """A layer of a user's."""

    def build(self, input_shape: Any) -> None:
        self.factor = self.add_variable(
            "factor", input_shape[1:], initializer=tf.ones_initializer(), regularizer=tf.reduce_sum
        )
        self.count = self.add_variable("count", [], initializer=tf.zeros_initializer(), trainable=False)

    def call(self, inputs: Any, times: float = 1.0) -> Any:
        self.add_update(self.count.assign_add(1.0))
        self.add_loss(tf.reduce_max(inputs), inputs)
        return inputs * self.factor * times


def test_a_layer_may_be_given_a_scope_and_losses(ops: Any) -> None:
    with tf.variable_scope("mine") as mine:
        pass
    layer = layers.Dense(2, kernel_regularizer=lambda _: None)
    layer(tf.constant(ROWS), scope=mine)
    assert layer.kernel.op.name == "mine/kernel"
    assert layer.losses == []
    layer.add_loss([tf.constant(1.0), tf.constant(2.0)])
    assert layer.get_losses_for(None) == layer.losses
    assert ops.evaluate(layer.losses) == [1.0, 2.0]


def test_a_layer_of_a_users(ops: Any) -> None:
    layer, x = Scale(name="own"), tf.constant(ROWS)
    y = layer(x, times=2.0)
    assert _names(layer.trainable_variables) == ["own/factor"]
    assert _names(layer.non_trainable_variables) == ["own/count"]
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == layer.updates
    assert len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == 2 == len(layer.losses)
    np.testing.assert_allclose(ops.evaluate(y), 2 * ROWS)
    assert Scale().name == "scale_1"

    class Sum(layers.Layer):
        def call(self, inputs: Any) -> Any:
            return tf.add_n(inputs)

    np.testing.assert_allclose(ops.evaluate(Sum()([x, x])), 2 * ROWS)


def test_a_layer_has_one_dtype(ops: Any) -> None:
    layer = layers.Dense(2, dtype=tf.float64)
    assert layer(tf.constant(ROWS)).dtype is tf.float64
    assert layers.Dense(2)([[1.0, 2.0]]).shape == (1, 2)
    plain = layers.Dense(2)
    plain(tf.constant(ROWS))
    with pytest.raises(ValueError, match="Dimensions must be equal"):
        plain(tf.ones([2, 4]))


@pytest.mark.parametrize("padding", ["valid", "same", "causal"])
@pytest.mark.parametrize(("strides", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_sequences(ops: Any, padding: str, strides: int, dilation: int) -> None:
    x = tf.constant(IMAGES[:, 0])
    y = layers.conv1d(x, 4, 3, strides, padding, dilation_rate=dilation, name="plain")
    kernel = tf.trainable_variables()[0]
    assert kernel.shape == (3, 3, 4)
    given = x if padding != "causal" else tf.pad(x, [[0, 0], [2 * dilation, 0], [0, 0]])
    word = "SAME" if padding == "same" else "VALID"
    rows, filters = tf.expand_dims(given, 1), tf.expand_dims(kernel, 0)
    images = tf.nn.conv2d(rows, filters, [1, strides], word, dilations=[1, dilation])
    expected = tf.squeeze(images, [1])
    first = layers.conv1d(
        tf.transpose(x, [0, 2, 1]), 4, 3, strides, padding, "channels_first", dilation,
        name="plain", reuse=True,
    )  # fmt: skip
    value, wanted, turned = ops.evaluate([y, expected, first])
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(turned.transpose(0, 2, 1), wanted, rtol=1e-5, atol=1e-6)


def test_pooling_of_sequences(ops: Any) -> None:
    x = IMAGES[:, 0]
    pairs = x[:, :4].reshape(2, 2, 2, 3)
    found = ops.evaluate([layers.max_pooling1d(x, 2, 2), layers.average_pooling1d(x, 2, 2)])
    np.testing.assert_allclose(found[0], pairs.max(2))
    np.testing.assert_allclose(found[1], pairs.mean(2), rtol=1e-6)
    first = layers.max_pooling1d(x.transpose(0, 2, 1), 2, 2, data_format="channels_first")
    np.testing.assert_allclose(ops.evaluate(first).transpose(0, 2, 1), found[0])
    with pytest.raises(ValueError, match="expected ndim=3"):
        layers.max_pooling1d(IMAGES, 2, 2)


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_transposed_convolution_enlarges(ops: Any, padding: str) -> None:
    x = tf.placeholder(tf.float32, [None, None, None, 3])
    y = layers.conv2d_transpose(x, 2, (3, 1), (2, 2), padding, use_bias=False)
    assert y.shape.as_list() == [None, None, None, 2]
    kernel = tf.trainable_variables()[0]
    assert kernel.shape == (3, 1, 2, 3)
    sizes = (13, 10) if padding == "valid" else (12, 10)
    expected = tf.nn.conv2d_transpose(IMAGES, kernel, [2, *sizes, 2], 2, padding.upper())
    value, wanted = ops.evaluate([y, expected], {x: IMAGES})
    np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
    known = layers.conv2d_transpose(tf.constant(IMAGES), 2, (3, 1), (2, 2), padding)
    assert known.shape == (2, *sizes, 2)
    first = layers.Conv2DTranspose(2, 3, 2, padding, "channels_first")(IMAGES.transpose(0, 3, 1, 2))
    assert first.shape[:2] == (2, 2)


def test_wrong_sizes_are_refused_when_the_layer_is_made() -> None:
    with pytest.raises(ValueError, match=r"`kernel_size` argument must be a tuple of 2 integers"):
        layers.Conv2D(2, (3, 3, 3))
    for made in (
        lambda: layers.Conv1D(2, None),
        lambda: layers.Conv2D(2, 3, strides=None),
        lambda: layers.MaxPooling2D(None, 2),
    ):
        with pytest.raises(ValueError, match=r"must be a tuple of [12] integers. Received: None"):
            made()
    with pytest.raises(ValueError, match="`strides` must not be None"):
        layers.max_pooling1d(IMAGES[:, 0], 2, None)
    with pytest.raises(ValueError, match=r"`padding` argument must be one of \('valid', 'same'\)"):
        layers.Conv2D(2, 3, padding="causal")
    with pytest.raises(ValueError, match="in conjunction with a dilation_rate"):
        layers.Conv1D(2, 3, 2, dilation_rate=2)
    with pytest.raises(ValueError, match="channel dimension of the inputs should be defined"):
        layers.conv1d(tf.placeholder(tf.float32, [2, 3, None]), 2, 3)
    with pytest.raises(ValueError, match="renorm=True is not supported"):
        layers.BatchNormalization(renorm=True)
    with pytest.raises(ValueError, match="axis must be one dimension"):
        layers.BatchNormalization(axis=[1, 2])


def test_fused_chooses_which_variance_of_images_is_averaged(ops: Any) -> None:
    count, biased = IMAGES.size // 3, IMAGES.var((0, 1, 2))
    for fused, variance in [(None, biased * count / (count - 1)), (False, biased)]:
        layer = layers.BatchNormalization(momentum=0.5, fused=fused, axis=[3])
        layer(IMAGES, training=True)
        np.testing.assert_allclose(ops.evaluate(layer.updates[1]), (1 + variance) / 2, rtol=1e-5)


def test_a_layer_without_call_returns_its_inputs() -> None:
    layer = tf.layers.Layer(name="plain")
    x = tf.constant([1.0, 2.0])
    assert (layer.name, layer(x), layer.variables) == ("plain", x, [])
