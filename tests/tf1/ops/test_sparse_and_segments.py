"""Sparse tensors that are fed, fetched and looked up; segments and partitions that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.testing import check_gradients

pytestmark = pytest.mark.asyncio
VALUE = tf.SparseTensorValue([[0, 0], [0, 2], [2, 1]], [3, 1, 0], [4, 3])
TABLE = np.random.default_rng(32).normal(size=(4, 2))


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


@pytest.mark.parametrize("value", [VALUE, tuple(VALUE)])
async def test_a_sparse_placeholder_is_fed_and_fetched(value: Any) -> None:
    x = tf.sparse_placeholder(tf.int64, name="x")
    assert x.op.name == "x/values"
    assert x.get_shape().ndims is None
    found, dense = await run([x, tf.sparse.to_dense(x, -1)], {x: value})
    assert type(found) is tf.SparseTensorValue
    assert [part.tolist() for part in found] == list(VALUE)
    assert dense.tolist() == [[3, -1, 1], [-1, -1, -1], [-1, 0, -1], [-1, -1, -1]]
    known = tf.sparse_placeholder(tf.float32, [4, 3])
    assert tf.sparse_tensor_to_dense(known).shape == (4, 3)
    assert (await run(known, {known: VALUE})).values.dtype == np.float32
    with pytest.raises(ValueError, match="Could not flatten"):
        await run(x, {x: VALUE[:2]})


async def test_a_sparse_tensor_is_a_loop_variable() -> None:
    x = tf.SparseTensor(*VALUE)
    assert x.shape == (4, 3)
    assert x.dtype is tf.int32
    _, found = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, x: (i + 1, tf.SparseTensor(x.indices, x.values * 2, x.dense_shape)),
        (0, x),
    )
    assert (await run(found)).values.tolist() == [24, 8, 0]


async def test_sparse_tensors_of_other_shapes_are_refused() -> None:
    for parts in (([0], [1], [2]), ([[0]], [1, 2], [2]), ([[0, 1]], [1], [2])):
        with pytest.raises(ValueError, match=r"rank|compatible"):
            tf.SparseTensor(*parts)
    with pytest.raises(TypeError, match="Expected a SparseTensor"):
        tf.sparse_tensor_to_dense(tf.constant([1]))  # type: ignore[arg-type]  # refused
    with pytest.raises(ValueError, match="combiner must be one of"):
        tf.nn.embedding_lookup_sparse(TABLE, tf.SparseTensor(*VALUE), None, combiner="max")


async def test_a_lookup_changes_only_its_rows() -> None:
    table = tf.Variable(TABLE)
    (grad,) = tf.gradients(tf.nn.embedding_lookup_sparse(table, tf.SparseTensor(*VALUE), None), table)
    assert isinstance(grad, tf.IndexedSlices)
    assert sorted((await run(grad)).indices.tolist()) == [0, 1, 3]


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
async def test_a_lookup_has_gradients_by_table_and_weights(combiner: str) -> None:
    def look_up(table: Any, weights: Any) -> Any:
        parts = tf.SparseTensor(*VALUE), tf.SparseTensor(VALUE.indices, weights, VALUE.dense_shape)
        return tf.nn.embedding_lookup_sparse(table, *parts, combiner=combiner)

    await check_gradients(look_up, [TABLE, np.array([0.5, 2.0, 3.0])], order=2)


async def test_segments_and_partitions_out_of_order_are_refused() -> None:
    ids = tf.placeholder(tf.int32, [None])
    for wrong in ([1, 0], [-1, 0]):
        with pytest.raises(InvalidArgumentError, match="not a vector of increasing numbers"):
            await run(tf.segment_sum([1.0, 2.0], ids), {ids: wrong})
    with pytest.raises(InvalidArgumentError, match=r"partitions must be in \[0, 2\)"):
        await run(tf.dynamic_partition([1.0, 2.0], ids, 2), {ids: [0, 2]})
    with pytest.raises(ValueError, match="Give data for each"):
        tf.dynamic_stitch([[0]], [])
    assert (await run(tf.segment_max(tf.zeros([0, 2]), ids), {ids: []})).shape == (0, 2)
    assert (await run(tf.segment_max(tf.zeros([2, 0]), ids), {ids: [0, 3]})).shape == (4, 0)
    assert (await run(tf.dynamic_stitch([ids], [tf.zeros([0, 2])]), {ids: []})).shape == (0, 2)
