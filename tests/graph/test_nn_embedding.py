"""Rows of tables by id."""

from __future__ import annotations

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

    ops.agree(run, whole[ids], *parts, known=("all",))
    ops.differentiate(run, *parts, order=1, known=False)


def test_long_rows_are_scaled_down(ops: Any) -> None:
    rows = TABLE[IDS]
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)

    def run(t: Any) -> Any:
        return nn.embedding_lookup(t, IDS, max_norm=3.0)

    ops.agree(run, rows * 3 / np.maximum(norms, 3), TABLE, known=("all", "rank"))
    ops.differentiate(run, TABLE, order=1, known=False)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="`params` is required"):
        nn.embedding_lookup([], [0])
    with pytest.raises(ValueError, match="Unsupported partition strategy: 'hash'"):
        nn.embedding_lookup(TABLE, [0], partition_strategy="hash")
    with pytest.raises(ValueError, match="numbers of rows of partitioned tables must be known"):
        nn.embedding_lookup([tf.placeholder(tf.float32, [None, 2])] * 2, [0])
