"""The greatest of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.array([[0.1, 0.9, 0.5, 0.3], [0.8, 0.2, 0.7, 0.4]])


@pytest.mark.parametrize("k", [0, 1, 3, 4])
def test_values_and_indices(ops: Any, k: int) -> None:
    order = np.argsort(-X, axis=1)[:, :k]
    ops.agree(lambda x: tf.nn.top_k(x, k), [np.take_along_axis(X, order, 1), order], X)
    if k:
        ops.differentiate(lambda x: tf.nn.top_k(x, k).values, X, order=2, max_elements=3)


def test_of_equal_elements_the_first_comes_first(ops: Any) -> None:
    found = ops.compute(lambda x: tf.nn.top_k(x, 3), np.array([1, 3, 3, 2], np.int32))
    assert found[0].tolist() == [3, 3, 2]
    assert found[1].tolist() == [1, 2, 3]
    assert found[1].dtype == np.int32


def test_second_derivatives_flow_through_the_choice(ops: Any) -> None:
    ops.differentiate(lambda x: tf.square(tf.nn.top_k(x, 2).values), X, order=2, max_elements=3)


def test_k_may_be_a_tensor_and_must_fit(ops: Any) -> None:
    assert ops.compute(lambda x, k: tf.nn.top_k(x, k).values, X, np.array(2)).shape == (2, 2)
    with pytest.raises(ValueError, match="input must have last dimension >= k = 5 but is 4"):
        tf.nn.top_k(tf.constant(X), 5)
    with pytest.raises(errors.InvalidArgumentError, match="Had 4, needed 5"):
        ops.compute(lambda x, k: tf.nn.top_k(x, k).values, X, np.array(5))
    with pytest.raises(ValueError, match="at least rank 1"):
        tf.nn.top_k(tf.constant(1.0))
    for x in (tf.constant(X), tf.placeholder(tf.float32)):
        with pytest.raises(ValueError, match="k must be non-negative, got -1"):
            tf.nn.top_k(x, -1)
