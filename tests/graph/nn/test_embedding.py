"""Rows of tables by id."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

TABLE = np.arange(10.0).reshape(5, 2) + 1
IDS = np.array([[0, 4], [3, 3]])
nn = tf.nn


def test_one_table(ops: Any) -> None:
    ops.agree(nn.embedding_lookup, TABLE[IDS], TABLE, IDS)
    ops.differentiate(nn.embedding_lookup, TABLE, IDS, order=1)
    with pytest.raises(errors.InvalidArgumentError, match=r"= 5 is not in \[0, 5\)"):
        ops.compute(nn.embedding_lookup, TABLE, IDS + 1)


def test_the_gradient_of_a_table_is_sparse() -> None:
    table = tf.Variable(TABLE, name="table")
    (grad,) = tf.gradients(nn.embedding_lookup(table, IDS), table)
    assert isinstance(grad, tf.IndexedSlices)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 2, 1), (5,), (2, 2, 2)])
@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_several_tables_share_the_rows(ops: Any, sizes: Any, strategy: str) -> None:
    whole = np.arange(2.0 * sum(sizes)).reshape(-1, 2)
    count = len(sizes)
    if strategy == "mod":
        parts = [whole[i::count] for i in range(count)]
    else:
        parts = np.split(whole, np.cumsum(sizes)[:-1])
    ids = np.arange(len(whole))[::-1]

    def run(*t: Any) -> Any:
        return nn.embedding_lookup(list(t), ids, partition_strategy=strategy)

    ops.agree(run, whole[ids], *parts)
    ops.differentiate(run, *parts, order=2 if count > 1 else 1)


P, Q = np.array([[1.0, 2], [3, 4], [8, 9]]), np.array([[5.0, 6], [7, 8]])


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("ids", [2, [], [[0, 4], [3, 1], [2, 2]]], ids=str)
def test_ids_of_several_tables_have_any_shape(ops: Any, strategy: str, ids: Any) -> None:
    at = np.array(ids, np.int64)
    whole = np.concatenate([P, Q])[[0, 3, 1, 4, 2] if strategy == "mod" else slice(None)]

    def run(*inputs: Any) -> Any:
        *tables, where = inputs
        return nn.embedding_lookup(tables, where, strategy)

    ops.agree(run, whole[at], P, Q, at)


@pytest.mark.parametrize(
    ("strategy", "rows"), [("mod", ([1, 0, 0], [0, 1])), ("div", ([2, 0, 0, 1], [0]))]
)
def test_the_gradient_of_each_of_several_tables_has_the_rows_that_were_looked_up(
    ops: Any, strategy: str, rows: Any
) -> None:
    tables = [tf.Variable(P, name="p"), tf.Variable(Q, name="q")]
    ids = tf.placeholder(tf.int32, [None])
    found = nn.embedding_lookup(tables, ids, strategy)
    grads = tf.gradients(found * tf.constant([[1.0], [2], [3], [4], [5]], tf.float64), tables)
    assert all(isinstance(grad, tf.IndexedSlices) for grad in grads)
    weights = {"mod": ([1, 3, 4], [2, 5]), "div": ([1, 3, 4, 5], [2])}[strategy]
    at = [2, 1, 0, 0, 3] if strategy == "mod" else [2, 3, 0, 0, 1]
    for value, kept, weight, table in zip(
        ops.evaluate(grads, {ids: at}), rows, weights, (P, Q), strict=True
    ):
        assert value.indices.tolist() == kept
        np.testing.assert_array_equal(value.values, np.repeat(weight, 2).reshape(-1, 2))
        assert value.dense_shape.tolist() == list(table.shape)


def test_a_clipped_step_counts_a_row_that_was_looked_up_twice_twice(ops: Any) -> None:
    tables = [tf.Variable(P, name="p"), tf.Variable(Q, name="q")]
    found = nn.embedding_lookup(tables, [0, 0, 1])
    _, norm = tf.clip_by_global_norm(tf.gradients(found, tables), 1.0)
    assert ops.evaluate(norm) == pytest.approx(np.sqrt(6))  # of slices: not of the sum of equal rows


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("wrong", [-1, 6])
def test_an_id_that_no_table_has_fails_in_the_run(ops: Any, strategy: str, wrong: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"is not in \[0, "):
        ops.compute(lambda *t: nn.embedding_lookup(list(t), [0, wrong], strategy), P, Q)


def test_tables_of_no_columns(ops: Any) -> None:
    tables = np.zeros((2, 0)), np.zeros((3, 0))
    for run in (
        lambda p, q: nn.embedding_lookup([p, q], [2, 0]),
        lambda p, q: nn.embedding_lookup(q, [2, 0]),
    ):
        ops.agree(run, np.zeros((2, 0)), *tables)
        for grad, table in zip(ops.gradients(run, *tables), tables, strict=True):
            assert grad.shape == table.shape


def test_long_rows_are_scaled_down(ops: Any) -> None:
    rows = TABLE[IDS]
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)

    def run(t: Any) -> Any:
        return nn.embedding_lookup(t, IDS, max_norm=3.0)

    ops.agree(run, rows * 3 / np.maximum(norms, 3), TABLE, known=("all", "rank"))
    ops.differentiate(run, TABLE, order=1, known=False)


def test_rows_of_ids_of_an_unknown_rank_are_scaled_down() -> None:
    ids = tf.placeholder(tf.int32)
    rows = nn.embedding_lookup(tf.constant([[3.0, 4.0], [0.3, 0.4]]), ids, max_norm=1.0)

    async def run() -> Any:
        async with tf.Session() as sess:
            return await sess.run(rows, {ids: [[1, 0]]})

    np.testing.assert_allclose(asyncio.run(run()), [[[0.3, 0.4], [0.6, 0.8]]], rtol=1e-6)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="`params` is required"):
        nn.embedding_lookup([], [0])
    with pytest.raises(ValueError, match="Unsupported partition strategy: 'hash'"):
        nn.embedding_lookup(TABLE, [0], partition_strategy="hash")
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        nn.embedding_lookup([np.zeros((1, 2)), np.zeros((1, 3))], [0])
