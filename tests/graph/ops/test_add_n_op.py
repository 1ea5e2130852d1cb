"""The sum of tensors of one shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf


@pytest.mark.parametrize("count", [1, 2, 5])
def test_add_n(ops: Any, count: int) -> None:
    arrays = [np.arange(4.0) + i for i in range(count)]
    ops.agree(lambda *x: tf.add_n(list(x)), sum(arrays), *arrays)
    ops.differentiate(lambda *x: tf.add_n(list(x)), *arrays)


def test_add_n_needs_one_shape_and_one_dtype() -> None:
    a = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match="at least one Tensor"):
        tf.add_n([])
    with pytest.raises(TypeError, match="'inputs' has DataType string"):
        tf.add_n([tf.constant("a")])
    with pytest.raises(TypeError, match="don't all match"):
        tf.add_n([a, tf.constant([1, 2])])
    with pytest.raises(ValueError, match="must be equal"):
        tf.add_n([a, tf.constant([1.0])])


@pytest.mark.parametrize("shapes", [((2, 3), (1, 3)), ((1, 3), (2, 3)), ((2, 3), (3,)), ((), (1,))])
@pytest.mark.parametrize("known", ["rank", "nothing"])
def test_add_n_broadcasts_nothing(ops: Any, shapes: Any, known: str) -> None:
    x, y = map(np.ones, shapes)
    for arrays in ((x, y), (x, x, y), (y, x, x)):
        if known == "nothing" or x.ndim == y.ndim:
            with pytest.raises(errors.InvalidArgumentError, match="must have the same size and shape"):
                ops.compute(lambda *values: tf.add_n(list(values)), *arrays, known=known)
