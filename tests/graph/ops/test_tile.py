"""Tensors repeated along their dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(24.0).reshape(2, 3, 4)


def test_tile(ops: Any) -> None:

    def run(x: Any) -> Any:
        return tf.tile(x, [2, 1, 3])

    ops.agree(run, np.tile(X, (2, 1, 3)), X)
    ops.differentiate(run, X, max_elements=4)
    ops.agree(tf.tile, np.tile(X, (2, 1, 3)), X, np.array([2, 1, 3]))
    (grad,) = ops.gradients(lambda x: tf.tile(x, [0, 1, 1]), X)
    np.testing.assert_array_equal(grad, np.zeros_like(X))
    with pytest.raises(ValueError, match="must be equal, but are 1 and 3"):
        tf.tile(tf.constant(X), [2])


def test_a_negative_count_of_tiles_has_no_shape() -> None:
    assert tf.tile(tf.constant([1, 2]), [-1]).shape == (None,)


@pytest.mark.parametrize(
    ("multiples", "text"),
    [
        ([2], "must be equal, but are 1 and 3"),
        ([2, 1, 1, 1], "must be equal, but are 4 and 3"),
        ([[1, 1, 1]], "must be rank 1"),
        (2, "must be rank 1"),
        ([1, -1, 1], r"Expected multiples >= 0, but got \[1, -1, 1\]"),
    ],
)
def test_multiples_that_do_not_fit_fail_in_the_run(ops: Any, multiples: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=text):
        ops.compute(tf.tile, X, np.array(multiples), known="nothing")


@pytest.mark.parametrize("shape", [(2, 3, 4), (0, 3, 4), (4, 3), ()])
def test_a_gradient_of_another_size_is_refused(ops: Any, shape: Any) -> None:
    def run(x: Any, grad: Any) -> Any:
        return tf.gradients(tf.tile(x, [2, 1, 1]), x, grad_ys=[grad])[0]

    with pytest.raises(errors.InvalidArgumentError, match="cannot reshape array of size"):
        ops.compute(run, X, np.ones(shape), known="nothing")
