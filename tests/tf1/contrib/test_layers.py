"""``tf.contrib.layers``: initializers, regularizers, fully_connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

if TYPE_CHECKING:
    from collections.abc import Callable

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
    with pytest.raises(AttributeError, match="conv2d"):
        _ = layers.conv2d
