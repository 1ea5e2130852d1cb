"""RMSProp, plain and centered, against its formula."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf


def _reference(steps: Any, centered: bool, sparse: bool) -> Any:
    rate, rho, factor, eps = map(steps.number, (0.1, 0.8, 0.5, 1e-2))

    def follow(w: Any, grads: Any) -> Iterator[Any]:
        w = w.copy()
        square, mean, momentum = np.ones_like(w), np.zeros_like(w), np.zeros_like(w)
        rows = np.unique(steps.at) if sparse else slice(None)
        for grad in grads:
            g = grad[rows]
            square[rows] = rho * square[rows] + (1 - rho) * g**2
            mean[rows] = rho * mean[rows] + (1 - rho) * g
            spread = square[rows] - mean[rows] ** 2 if centered else square[rows]
            momentum[rows] = factor * momentum[rows] + rate * g / np.sqrt(spread + eps)
            w[rows] -= momentum[rows]
            yield w.copy()

    return follow


@pytest.mark.parametrize("centered", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_rmsprop(steps: Any, centered: bool, sparse: bool) -> None:

    def make() -> Any:
        return tf.train.RMSPropOptimizer(0.1, 0.8, 0.5, 1e-2, centered=centered)

    steps.check(make, _reference(steps, centered, sparse), sparse)


def test_slots() -> None:
    for centered, names in ((False, ["momentum", "rms"]), (True, ["mg", "momentum", "rms"])):
        with tf.Graph().as_default():
            w = tf.Variable([1.0], name="w")
            optimizer = tf.train.RMSPropOptimizer(0.1, centered=centered)
            optimizer.minimize(tf.reduce_sum(w))
            assert optimizer.get_slot_names() == names
            rms = optimizer.get_slot(w, "rms")
            assert rms is not None
            assert rms.op.name == "w/RMSProp"
