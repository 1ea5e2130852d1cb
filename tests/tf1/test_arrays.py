"""Gathering, and old names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf

pytestmark = pytest.mark.asyncio

A = np.random.default_rng(0).normal(size=(3, 4))


async def value(fetches: Any) -> Any:
    async with tf.Session() as sess:
        return await sess.run(fetches)


async def test_batch_gather() -> None:
    positions = np.array([[0, 1], [3, 2], [1, 1]])
    wanted = np.take_along_axis(A, positions, 1)
    np.testing.assert_array_equal(await value(tf.batch_gather(A, positions)), wanted)
    with pytest.raises(ValueError, match="indices of known rank"):
        tf.batch_gather(A, tf.placeholder(tf.int32))


async def test_other_names_before_1_0() -> None:
    found = await value(
        [
            tf.select([True, False], [1, 2], [3, 4]), tf.inv(tf.constant([2.0, 4.0])),
            tf.concat_v2([[1], [2]], 0),
        ]
    )  # fmt: skip
    assert [one.tolist() for one in found] == [[1, 4], [0.5, 0.25], [1, 2]]
    assert tf.listdiff is tf.setdiff1d
    assert tf.tensor_scatter_nd_update is tf.tensor_scatter_update
