"""Gradients of which only some rows are not zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncmon import graph as tf
from asyncmon.graph.core.gradients import add_up
from asyncmon.graph.core.indexed_slices import to_dense

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
AT = np.array([1, 0, 1])


def _slices() -> Any:
    return tf.IndexedSlices(tf.constant(ROWS), tf.constant(AT), tf.constant([3, 2]))


def test_it_stands_for_its_dense_tensor(ops: Any) -> None:
    slices = _slices()
    dense = [[3, 4], [6, 8], [0, 0]]
    assert ops.evaluate(tf.convert_to_tensor(slices)).tolist() == dense
    assert ops.evaluate(tf.reduce_sum(slices)) == 21
    assert slices.dtype is tf.float64
    assert slices.name == slices.values.name
    assert slices.op is slices.values.op
    assert slices.graph is tf.get_default_graph()
    assert "IndexedSlices(indices=" in repr(slices)
    assert to_dense(tf.constant(1.0)).shape == ()


def test_sums_of_slices_stay_slices(ops: Any) -> None:
    both = add_up([_slices(), _slices()])
    assert isinstance(both, tf.IndexedSlices)
    assert ops.evaluate(to_dense(both)).tolist() == [[6, 8], [12, 16], [0, 0]]
    mixed = add_up([_slices(), tf.ones([3, 2], tf.float64), _slices()])
    assert isinstance(mixed, tf.Tensor)
    assert ops.evaluate(mixed).tolist() == [[7, 9], [13, 17], [1, 1]]
