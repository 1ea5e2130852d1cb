"""Adagrad against its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf


@pytest.mark.parametrize("sparse", [False, True])
def test_adagrad(steps: Any, sparse: bool) -> None:
    rate = steps.number(0.1)

    def reference(w: Any, grads: Any) -> Iterator[Any]:
        accum = np.full_like(w, 0.5)
        for grad in grads:
            accum = accum + grad**2
            w = w - rate * grad / np.sqrt(accum)
            yield w

    def make() -> Any:
        return tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.5)

    steps.check(make, reference, sparse)


def test_the_slot_and_its_first_value(ops: Any) -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    optimizer = tf.train.AdagradOptimizer(0.1)
    optimizer.minimize(tf.reduce_sum(w))
    slot = optimizer.get_slot(w, "accumulator")
    assert slot is not None
    assert slot.op.name == "w/Adagrad"
    np.testing.assert_allclose(ops.evaluate(slot), [0.1, 0.1])


def test_the_first_value_must_be_positive() -> None:
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive: 0"):
        tf.train.AdagradOptimizer(0.1, 0.0)
