"""Tensors with more around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "symmetric"])
def test_pad(ops: Any, mode: str) -> None:
    widths = [[1, 1], [0, 2], [2, 1]]

    def run(x: Any) -> Any:
        return tf.pad(x, widths, mode)

    expected = np.pad(X, widths, mode.lower())  # type: ignore[call-overload]  # a name
    ops.agree(run, expected, X)
    ops.differentiate(run, X, max_elements=4)


def test_pad_with_a_value_and_widths_known_only_in_the_run(ops: Any) -> None:
    widths = np.array([[1, 0], [0, 1], [0, 0]], np.int32)
    expected = np.pad(X, widths, constant_values=7)
    ops.agree(lambda x, w: tf.pad(x, w, constant_values=7), expected, X, widths)
    with pytest.raises(errors.InvalidArgumentError, match="non-negative"):
        ops.compute(tf.pad, X, -widths)
    with pytest.raises(errors.InvalidArgumentError, match="must be equal, but are 2 and 3"):
        ops.compute(tf.pad, X, widths[:2], known="nothing")


def test_pad_refuses_what_cannot_be(ops: Any) -> None:
    x = tf.constant(X)
    for widths, mode, text in (
        ([[1, 1]], "CONSTANT", "must be equal, but are 1 and 3"),
        ([[1], [1], [1]], "CONSTANT", "must be equal, but are 1 and 2"),
        ([[-1, 1], [0, 0], [0, 0]], "CONSTANT", "non-negative"),
        ([[1, 1], [0, 0], [0, 0]], "WRAP", "expected to be one of CONSTANT, REFLECT, SYMMETRIC"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.pad(x, widths, mode)
    for mode, width in (("REFLECT", 2), ("SYMMETRIC", 3)):
        with pytest.raises(errors.InvalidArgumentError, match="paddings must be"):
            ops.compute(lambda a, m=mode, w=width: tf.pad(a, [[w, 0], [0, 0], [0, 0]], m), X)


def test_padding_is_nothing_in_any_dtype(ops: Any) -> None:
    for value in (np.array([True]), np.array([1], np.int64), np.array([1.5], np.float16)):
        ops.agree(lambda x: tf.pad(x, [[1, 0]]), np.pad(value, (1, 0)), value)
    assert ops.evaluate(tf.pad(tf.constant(["a"]), [[1, 0]])).tolist() == [b"", b"a"]


@pytest.mark.parametrize("mode", ["CONSTANT", "REFLECT", "SYMMETRIC"])
def test_a_scalar_padded_by_nothing(ops: Any, mode: str) -> None:
    paddings = np.zeros((0, 2), np.int32)
    ops.agree(lambda x, p: tf.pad(x, p, mode), 5.0, np.array(5.0), paddings)
    (grad,) = ops.gradients(lambda x, p: tf.pad(x, p, mode), np.array(5.0), paddings)
    assert grad == 1
