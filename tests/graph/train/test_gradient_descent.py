"""Gradient descent and momentum against their formulas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

train = tf.train


@pytest.mark.parametrize("sparse", [False, True])
def test_gradient_descent(steps: Any, sparse: bool) -> None:
    rate = steps.number(0.1)

    def reference(w: Any, grads: Any) -> Iterator[Any]:
        for grad in grads:
            w = w - rate * grad
            yield w

    steps.check(lambda: train.GradientDescentOptimizer(0.1), reference, sparse)
    steps.check(
        lambda: train.GradientDescentOptimizer(tf.constant(rate, tf.float64)), reference, sparse
    )
    steps.check(lambda: train.GradientDescentOptimizer(lambda: 0.1), reference, sparse)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum(steps: Any, nesterov: bool) -> None:
    rate, decay = steps.number(0.1), steps.number(0.8)

    def reference(w: Any, grads: Any) -> Iterator[Any]:
        accum = np.zeros_like(w)
        for grad in grads:
            accum = decay * accum + grad
            w = w - rate * (grad + decay * accum if nesterov else accum)
            yield w

    steps.check(lambda: train.MomentumOptimizer(0.1, 0.8, use_nesterov=nesterov), reference)


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_moves_only_the_rows_of_a_sparse_gradient(steps: Any, nesterov: bool) -> None:
    rate, decay = steps.number(0.1), steps.number(0.8)

    def reference(w: Any, grads: Any) -> Iterator[Any]:
        accum = np.zeros_like(w)
        rows = np.unique(steps.at)
        w = w.copy()
        for grad in grads:
            accum[rows] = decay * accum[rows] + grad[rows]
            w[rows] -= rate * (grad[rows] + decay * accum[rows] if nesterov else accum[rows])
            yield w.copy()

    def make() -> Any:
        return train.MomentumOptimizer(0.1, 0.8, use_nesterov=nesterov)

    steps.check(make, reference, sparse=True)
