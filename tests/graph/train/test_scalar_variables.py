"""A variable without dimensions is trained like any other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.graph import train

OPTIMIZERS = {
    "descent": lambda: train.GradientDescentOptimizer(0.1),
    "momentum": lambda: train.MomentumOptimizer(0.1, 0.9),
    "nesterov": lambda: train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: train.AdagradOptimizer(0.1),
    "rmsprop": lambda: train.RMSPropOptimizer(0.1, momentum=0.5),
    "centered rmsprop": lambda: train.RMSPropOptimizer(0.1, centered=True),
    "adam": lambda: train.AdamOptimizer(0.1),
    "adamw": lambda: train.AdamWOptimizer(0.01, learning_rate=0.1),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("read", ["after the run", "within the run"])
async def test_a_scalar_moves_as_a_vector_of_one(name: str, read: str) -> None:
    async def trained(shape: tuple[int, ...]) -> Any:
        with g.Graph().as_default():
            weight = g.Variable(np.full(shape, 2.0, np.float32))
            step = OPTIMIZERS[name]().minimize(g.reduce_sum(g.square(weight - 5.0)))
            if read == "within the run":
                with g.control_dependencies([step]):
                    step = weight.read_value()
            async with g.Session() as session:
                await session.run(g.global_variables_initializer())
                for _ in range(3):
                    await session.run(step)
                return await session.run(weight)

    scalar, vector = await trained(()), await trained((1,))
    assert np.shape(scalar) == ()
    np.testing.assert_array_equal(scalar, vector[0])
    assert scalar > 2
