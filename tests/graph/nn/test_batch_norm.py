"""Batch normalisation as one op, against the ops it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.nn.normalization import normalized_batch

RNG = np.random.default_rng(14)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_values_and_gradients(ops: Any, axis: int) -> None:
    x = RNG.normal(size=(3, 4, 2))
    size = x.shape[axis]
    scale, offset = RNG.normal(size=size), RNG.normal(size=size)
    others = tuple(i for i in range(3) if i != axis)
    shape = [size if i == axis else 1 for i in range(3)]
    mean, variance = x.mean(others), x.var(others)
    plain = (x - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + 0.1)
    expected = [plain * scale.reshape(shape) + offset.reshape(shape), mean, variance]
    ops.agree(
        lambda *a: normalized_batch(*a, axis, 0.1), expected, x, scale, offset, known=("all", "rank")
    )
    ops.differentiate(
        lambda *a: tf.square(normalized_batch(*a, axis, 0.1)[0]),
        x,
        scale,
        offset,
        order=2,
        max_elements=6,
        known=False,
    )


def test_the_moments_have_gradients_too(ops: Any) -> None:
    x = np.random.default_rng(3).normal(size=(4, 2))
    one, zero = np.ones(2), np.zeros(2)
    ops.differentiate(
        lambda *a: normalized_batch(*a, 1, 0.1)[:3], x, one, zero, order=2, max_elements=4, known=False
    )


def test_vectors_must_have_the_size_of_the_axis() -> None:
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        normalized_batch(tf.ones([3, 2]), tf.ones([3]), tf.zeros([2]), 1, 0.1)
