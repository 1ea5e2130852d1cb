"""Adding a gradient up to the shape of an operand, and leaving it alone where that is sure."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from asyncmon import graph as tf
from asyncmon.graph.ops.shape_ops import sum_to_shape, unbroadcast


@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, max_side=3))
def test_sums_undo_broadcasting(shapes: Any) -> None:
    shape = shapes.input_shapes[0]
    value = np.arange(float(np.prod(shapes.result_shape))).reshape(shapes.result_shape)
    found = sum_to_shape(value, shape)
    assert np.shape(found) == shape
    np.testing.assert_allclose(found.sum(), value.sum())


@pytest.mark.parametrize(
    ("shape", "other", "adds"),
    [
        ([2, 3], [2, 3], False),
        ([2, 3], [3], False),
        ([2, 3], [1, 3], False),
        ([3], [2, 3], True),
        ([1, 3], [2, 3], True),
        ([None, 3], [3], False),
        ([None, 3], [None, 3], True),
        (None, [3], True),
        ([3], None, True),
    ],
)
def test_nodes_are_added_only_where_they_may_be_needed(shape: Any, other: Any, adds: bool) -> None:
    x, y = tf.placeholder(tf.float32, shape), tf.placeholder(tf.float32, other)
    grad = x + y
    assert (unbroadcast(grad, x, y) is not grad) is adds
    assert unbroadcast(grad, x, x) is grad
