"""Single numbers are computed by operators; the results are those of the ufuncs."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph import Graph, Session, Variable, assign_add, constant, placeholder

pytestmark = pytest.mark.asyncio

FUNCTIONS = (operator.add, tf.subtract, tf.multiply, tf.greater)
DTYPES = ["float16", "float32", "float64", "int8", "int32", "int64", "uint8"]


def extremes(dtype: str) -> list[Any]:
    if dtype.startswith("float"):
        top = np.finfo(dtype).max
        return [0.0, -0.0, 1.5, -3.25, 1e-7, top, -top, np.inf, -np.inf, np.nan]
    info = np.iinfo(dtype)
    return [0, 1, 3, info.max, info.min, info.max - 1]


@pytest.mark.parametrize("dtype", DTYPES)
async def test_single_numbers_come_out_as_those_in_arrays_do(dtype: str) -> None:
    values = extremes(dtype)
    with Graph().as_default():
        x, y = placeholder(dtype, []), placeholder(dtype, [])
        v, w = placeholder(dtype, [None]), placeholder(dtype, [None])
        fetched = [fn(x, y) for fn in FUNCTIONS] + [tf.negative(x)]
        expected = [fn(v, w) for fn in FUNCTIONS] + [tf.negative(v)]
        async with Session() as sess:
            for one in values:
                for other in values:
                    got = await sess.run(fetched, {x: one, y: other})
                    wanted = await sess.run(expected, {v: [one], w: [other]})
                    for mine, theirs in zip(got, wanted, strict=True):
                        assert mine.dtype == theirs.dtype
                        assert np.asarray(mine).tobytes() == theirs.tobytes(), (one, other)
                        assert isinstance(mine, np.generic)


async def test_a_counter_wraps_without_a_warning() -> None:
    with Graph().as_default():
        counter = Variable(np.int32(2**31 - 1))
        async with Session() as sess:
            await sess.run(counter.initializer)
            assert await sess.run(assign_add(counter, 1)) == -(2**31)


async def test_numbers_of_unknown_shape_are_computed_as_arrays() -> None:
    with Graph().as_default():
        x = placeholder("float32")
        double = x * constant(2.0)
        async with Session() as sess:
            assert await sess.run(double, {x: 3.0}) == 6.0
            assert (await sess.run(double, {x: [3.0, 4.0]})).tolist() == [6.0, 8.0]
