"""Steps of an optimizer on a fixed sequence of gradients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(21)
START = RNG.normal(size=(4, 3))
GRADS = [RNG.normal(size=(4, 3)) for _ in range(4)]
AT = np.array([2, 0, 2])  # a row twice
ROWS = [RNG.normal(size=(3, 3)) for _ in range(4)]


class Steps:
    """Runs an optimizer on given gradients."""

    start, grads, rows, at = START, GRADS, ROWS, AT

    @staticmethod
    def number(value: float) -> float:
        """Return a hyperparameter as the optimizers keep it, in float32."""
        return float(np.float32(value))

    def dense_rows(self, step: int) -> Any:
        """The dense gradient that the rows of a step stand for."""
        dense = np.zeros_like(START)
        np.add.at(dense, AT, ROWS[step])
        return dense

    def run(self, make: Callable[[], Any], dtype: Any = np.float64, sparse: bool = False) -> list[Any]:
        """Return the variable after each step; fresh graph and session."""

        async def steps() -> list[Any]:
            with tf.Graph().as_default():
                var = tf.Variable(START.astype(dtype), name="w")
                fed = tf.placeholder(dtype, (ROWS if sparse else GRADS)[0].shape)
                grad: Any = fed
                if sparse:
                    grad = tf.IndexedSlices(fed, tf.constant(AT), tf.constant([4, 3]))
                train_op = make().apply_gradients([(grad, var)])
                async with tf.Session() as sess:
                    await sess.run(tf.global_variables_initializer())
                    values = []
                    for value in ROWS if sparse else GRADS:
                        await sess.run(train_op, {fed: value.astype(dtype)})
                        values.append(np.array(await sess.run(var)))
                    return values

        return asyncio.run(steps())

    def check(
        self,
        make: Callable[[], Any],
        reference: Callable[[Any, Any], Iterable[Any]],
        sparse: bool = False,
    ) -> None:
        """The variable follows ``reference(start, gradients)`` in each precision."""
        grads = [self.dense_rows(i) for i in range(len(ROWS))] if sparse else GRADS
        expected = list(reference(START.copy(), grads))
        assert len(expected) == len(grads)
        for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 2e-5), (np.float16, 3e-2)):
            for found, value in zip(self.run(make, dtype, sparse), expected, strict=True):
                assert found.dtype == dtype
                np.testing.assert_allclose(found, value, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="session")
def steps() -> Steps:
    return Steps()
