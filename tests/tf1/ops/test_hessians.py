"""Second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from tests.graph.conftest import ops as ops

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


def test_hessians(ops: Any) -> None:
    x = tf.constant([1.0, 2.0], tf.float64)
    matrix = np.array([[2.0, 1.0], [1.0, 4.0]])
    y = tf.reduce_sum(x * tf.reshape(tf.constant(matrix) @ tf.reshape(x, [2, 1]), [2])) / 2
    np.testing.assert_allclose(ops.evaluate(tf.hessians(y, [x])[0]), matrix)
    v = tf.Variable(X)
    assert tf.hessians(tf.reduce_sum(v * v), v)[0].shape == (2, 3, 2, 3)
    s = tf.constant(3.0)
    assert ops.evaluate(tf.hessians(s * s * s, s)[0]) == 18
    with pytest.raises(ValueError, match="needs a known shape"):
        tf.hessians(y * 0.0 + tf.placeholder(tf.float64, [None])[0], tf.placeholder(tf.float64, [None]))


def test_hessians_refuse_an_unknown_shape() -> None:
    x = tf.placeholder(tf.float32, [None])
    with pytest.raises(ValueError, match="needs a known shape"):
        tf.hessians(tf.reduce_sum(x * x), x)


@pytest.mark.parametrize("colocate", [False, True])
def test_rows_are_beside_the_ops_on_request_for(colocate: bool) -> None:
    with tf.device("/job:a"):
        p = tf.get_variable("p", [2, 2])
    with tf.device("/job:b"):
        loss = tf.reduce_sum(tf.tanh(p))
    with tf.device("/job:g"):
        (second,) = tf.hessians(loss, p, colocate_gradients_with_ops=colocate)
    assert second.device == "/job:g"
    rows = second.op.inputs[0].op.inputs
    assert {row.device for row in rows} == {"/job:b" if colocate else "/job:g"}
