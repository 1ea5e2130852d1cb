"""Adadelta against its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from tests.graph.train.conftest import steps as steps

train = tf.train


@pytest.mark.parametrize("sparse", [False, True])
def test_steps(steps: Any, sparse: bool) -> None:
    def reference(var: Any, grads: Any) -> Iterator[Any]:
        accum, moved = np.zeros_like(var), np.zeros_like(var)
        rate, rho, epsilon = steps.number(0.5), steps.number(0.9), steps.number(1e-3)
        for grad in grads:
            touched = (grad != 0) if sparse else np.ones_like(var, bool)
            accum = np.where(touched, rho * accum + (1 - rho) * grad**2, accum)
            step = np.sqrt(moved + epsilon) / np.sqrt(accum + epsilon) * grad
            moved = np.where(touched, rho * moved + (1 - rho) * step**2, moved)
            var = var - rate * step
            yield var

    steps.check(lambda: train.AdadeltaOptimizer(0.5, 0.9, 1e-3), reference, sparse)


def test_slots_have_the_names_of_tf1() -> None:
    v = tf.Variable([1.0], name="v")
    optimizer = train.AdadeltaOptimizer()
    optimizer.minimize(tf.reduce_sum(v))
    assert optimizer.get_slot_names() == ["accum", "accum_update"]
    assert [s.name for s in optimizer.variables()] == ["v/Adadelta:0", "v/Adadelta_1:0"]
    accum = optimizer.get_slot(v, "accum")
    assert accum is not None
    assert accum.name == "v/Adadelta:0"
