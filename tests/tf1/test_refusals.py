"""Arguments that are refused when the graph is built, as TF1 does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

REFUSED: dict[str, tuple[type[Exception], Callable[..., Any]]] = {
    "concat along a vector": (ValueError, lambda x: tf.concat([x, x], [0])),
    "split along a vector": (ValueError, lambda x: tf.split(x, 2, [0])),
    "split by a matrix": (ValueError, lambda x: tf.split(x, [[1, 1]])),
    "split by other sizes": (ValueError, lambda x: tf.split(x, [1, 2])),
    "reshape to another size": (ValueError, lambda x: tf.reshape(x, [5])),
    "reshape by a matrix": (ValueError, lambda x: tf.reshape(x, [[6]])),
    "matmul of other sizes": (ValueError, lambda x: tf.matmul(x, x)),
    "matmul of a vector": (ValueError, lambda x: tf.matmul(x, x[0])),
    "one_hot of two dtypes": (TypeError, lambda x: tf.one_hot([1], 3, on_value=1.0, off_value=0)),
    "one_hot of floats": (TypeError, lambda x: tf.one_hot(x, 3)),
    "multinomial of numbers": (ValueError, lambda x: tf.multinomial(x, [1, 2])),
    "multinomial of a float": (TypeError, lambda x: tf.multinomial(x, 1.0)),
    "split by floats": (TypeError, lambda x: tf.split(x, [1.0, 1.0])),
    "reverse along a scalar": (ValueError, lambda x: tf.reverse(x, tf.constant(1))),
    "meshgrid of two dtypes": (TypeError, lambda x: tf.meshgrid([1.0], [1])),
    "search for a scalar": (ValueError, lambda x: tf.searchsorted([1.0], 1.0)),
    "segment_sum of scalars": (ValueError, lambda x: tf.segment_sum(x, 0)),
    "segment_max of floats": (TypeError, lambda x: tf.segment_max(x, [0.0, 1.0])),
    "message of a number": (TypeError, lambda x: tf.check_numerics(x, 1)),
    "resize to floats": (ValueError, lambda x: tf.image.resize_images(x[None], [1.0, 1.0])),
    "segments of floats": (TypeError, lambda x: tf.unsorted_segment_sum(x, [0.0, 1.0], 2)),
    "diag of strings": (TypeError, lambda x: tf.diag(["a"])),
    "decode_csv without columns": (ValueError, lambda x: tf.decode_csv(["a"], [])),
    "gradients of None": (ValueError, lambda x: tf.gradients(None, x)),
    "gradients of strings": (TypeError, lambda x: tf.gradients(tf.constant("a"), x)),
    "collections by a string": (ValueError, lambda x: tf.Variable(1, collections="a")),
    "padding without ranks": (ValueError, lambda x: tf.PaddingFIFOQueue(1, [tf.int32], [None])),
    "saver of a constant": (TypeError, lambda x: tf.train.Saver([x])),
    "convolution of a matrix": (ValueError, lambda x: tf.nn.conv2d(x, x, [1, 1, 1, 1], "SAME")),
    "pooling of a matrix": (ValueError, lambda x: tf.nn.max_pool(x, [1] * 4, [1] * 4, "SAME")),
    "rnn of a matrix": (
        ValueError,
        lambda x: tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(2), x, dtype=tf.float32),
    ),
    "loss of other shapes": (ValueError, lambda x: tf.losses.mean_squared_error(x, x[0])),
    "batch of unknown shapes": (
        ValueError,
        lambda x: tf.train.batch([tf.placeholder(tf.float32)], 2),
    ),
    "update of another shape": (
        ValueError,
        lambda x: tf.train.GradientDescentOptimizer(0.1).apply_gradients([(x, tf.Variable([1.0]))]),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name: str) -> None:
    kind, build = REFUSED[name]
    with tf.Graph().as_default(), pytest.raises(kind):
        build(tf.constant(np.zeros((2, 3), np.float32)))
