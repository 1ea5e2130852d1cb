"""Strided slices by lists and tensors of bounds, with masks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon import errors

X = np.random.default_rng(3).permutation(24).reshape(2, 3, 4) * 0.1 + 0.05


def test_strided_slice_with_masks(ops: Any) -> None:
    for arguments, expected in (
        (([0, 0], [2, 3], [1, 2]), X[0:2, 0:3:2]),
        (([1, 2], [0, 0], [-1, -1]), X[1:0:-1, 2:0:-1]),
        (([1], [2], None, 0, 0, 0, 0, 1), X[1]),
        (([0, 1], [0, 2], None, 1, 1), X[:, 1:2]),
        (([0, 1], [0, 2], None, 0, 0, 1), X[..., 1:2]),
        (([0, 1], [0, 2], None, 0, 0, 0, 1), X[None, 1:2]),
    ):

        def run(x: Any, a: Any = arguments) -> Any:
            return tf.strided_slice(x, *a)

        ops.agree(run, expected, X, known=("all", "rank"))
        ops.differentiate(run, X, max_elements=3)


def test_strided_slice_with_tensors(ops: Any) -> None:
    begin, end = np.array([0, 1], np.int32), np.array([2, 3], np.int32)
    ops.agree(tf.strided_slice, X[0:2, 1:3], X, begin, end, known=("all",))
    assert tf.strided_slice(tf.constant(X), tf.constant([0]), tf.constant([1])).shape == (1, 3, 4)
    with pytest.raises(ValueError, match="must have one length"):
        tf.strided_slice(tf.constant(X), [0, 1], [1])
    with pytest.raises(ValueError, match="Expected a vector"):
        tf.strided_slice(tf.constant(X), 0, 1)
    for step in (-1, 0):
        with pytest.raises(ValueError, match=f"where one element is taken, got {step}"):
            tf.strided_slice(tf.constant(X), [1], [0], [step], shrink_axis_mask=1)
    assert tf.strided_slice(tf.constant(X), [1], [2], [2], shrink_axis_mask=1).shape == (3, 4)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (lambda x, i, j: tf.strided_slice(x, [i, 0], [i + 1, 2]), X[1:2, 0:2]),
        (lambda x, i, j: tf.strided_slice(x, [0, i, 1], [2, 3, j + 3], [1, 1, 2]), X[0:2, 1:3, 1:3:2]),
        (lambda x, i, j: tf.strided_slice(x, tf.stack([i, j]), tf.stack([i + 1, j + 2])), X[1:2, 0:2]),
        (lambda x, i, j: tf.strided_slice(x, [i], [i + 1], shrink_axis_mask=1), X[1]),
    ],
)
def test_scalar_tensors_among_the_bounds(ops: Any, index: Any, expected: Any) -> None:
    ops.agree(index, expected, X, np.int32(1), np.int32(0))


def test_bounds_of_unknown_number(ops: Any) -> None:
    def cut(x: Any, begin: Any, end: Any) -> Any:
        return tf.strided_slice(x, begin, end, shrink_axis_mask=1)

    begin, end = np.array([1, 0], np.int32), np.array([2, 2], np.int32)
    ops.agree(cut, X[1, 0:2], X, begin, end)
    ops.differentiate(cut, X, begin, end, max_elements=3)
    with pytest.raises(errors.InvalidArgumentError, match="must have one length"):
        ops.compute(cut, X, begin, end[:1], known="rank")
