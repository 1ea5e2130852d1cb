"""Picking by an index expression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(24.0).reshape(2, 3, 4)


def test_slice(ops: Any) -> None:

    def run(x: Any) -> Any:
        return tf.slice(x, [0, 1, 2], [-1, 2, 1])

    ops.agree(run, X[:, 1:3, 2:3], X)
    ops.differentiate(run, X, max_elements=4)


def test_slice_with_bounds_known_only_in_the_run(ops: Any) -> None:
    begin, size = np.array([0, 1, 2]), np.array([1, 2, -1])
    ops.agree(tf.slice, X[:1, 1:3, 2:], X, begin, size)
    for at, wrong in ((begin, size + np.array([0, 1, 0])), (begin + 3, size), (begin - 1, size)):
        with pytest.raises(
            errors.InvalidArgumentError, match=r"Slice of \S+ from \S+ is out of bounds"
        ):
            ops.compute(tf.slice, X, at, wrong)
    with pytest.raises(errors.InvalidArgumentError, match=r"a size of -1 .* or more, got -3"):
        ops.compute(tf.slice, X, begin, size - 2)


def test_slice_refuses_what_cannot_be() -> None:
    x = tf.constant(X)
    with pytest.raises(
        ValueError, match="Slice of 3 from 1 is out of bounds for a dimension of size 3"
    ):
        tf.slice(x, [0, 1, 0], [1, 3, 1])
    with pytest.raises(ValueError, match="Shape must be rank 2 but is rank 3"):
        tf.slice(x, [0, 0], [1, 1])
    for y in (x, tf.placeholder(tf.float32)):
        with pytest.raises(ValueError, match=r"a size of -1 \(all that is left\) or more, got -2"):
            tf.slice(y, [0, 0, 1], [1, 1, -2])
    for start in (4, -1):
        with pytest.raises(ValueError, match=f"Slice of -1 from {start} is out of bounds"):
            tf.slice(x, [0, start, 0], [1, -1, 1])
    assert tf.zeros(tf.slice(tf.shape(x), [1], [2])).shape == (3, 4)


def test_reverse(ops: Any) -> None:
    ops.agree(lambda x: tf.reverse(x, [0, -1]), X[::-1, :, ::-1], X)
    ops.differentiate(lambda x: tf.reverse(x, [0, -1]), X, max_elements=3)
    with pytest.raises(ValueError, match="Invalid axis 3"):
        tf.reverse(tf.constant(X), [3])
    with pytest.raises(ValueError, match="must be distinct"):
        tf.reverse(tf.constant(X), [0, -3])
    with pytest.raises(ValueError, match="Shape must be rank 1 but is rank 0"):
        tf.reverse(tf.constant(X), 0)


def test_boolean_mask(ops: Any) -> None:
    for mask, axis in (
        (np.array([True, False]), None),
        (np.array([False, True, True]), 1),
        (np.array([True, False, True, True]), -1),
        (np.array([[True, False, True], [False, False, True]]), None),
    ):
        at = (axis or 0) % X.ndim
        expected = X[(*[slice(None)] * at, mask)]

        def run(x: Any, m: Any = mask, a: Any = axis) -> Any:
            return tf.boolean_mask(x, m, axis=a)

        ops.agree(run, expected, X, known=("all", "rank"))
        ops.differentiate(run, X, max_elements=4, known=axis != -1)


def test_boolean_mask_checks_its_mask(ops: Any) -> None:
    x = tf.constant(X)
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        tf.boolean_mask(x, [True, False, True])
    with pytest.raises(ValueError, match="mask cannot be scalar"):
        tf.boolean_mask(x, True)
    with pytest.raises(ValueError, match="Number of mask dimensions must be specified"):
        tf.boolean_mask(x, tf.placeholder(tf.bool))
    with pytest.raises(errors.InvalidArgumentError, match="must be equal, but are 2 and 1"):
        ops.compute(lambda a, m: tf.boolean_mask(a, m), X, np.array([True]), known="rank")
