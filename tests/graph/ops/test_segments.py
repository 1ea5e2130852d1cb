"""Sums of the rows of each segment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.ops.gather import add_rows, sum_rows

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
AT = np.array([1, 0, 1])


def test_segment_sums(ops: Any) -> None:

    def run(x: Any, i: Any) -> Any:
        return tf.unsorted_segment_sum(x, i, 4)

    ops.agree(run, np.array([[3.0, 4], [6, 8], [0, 0], [0, 0]]), ROWS, AT)
    ops.differentiate(run, ROWS, AT)
    dropped = np.array([1, -1, 1])
    ops.agree(run, np.array([[0.0, 0], [6, 8], [0, 0], [0, 0]]), ROWS, dropped)
    ops.differentiate(run, ROWS, dropped)
    two = np.array([[0, 1], [1, 3], [0, 0]])
    expected = np.zeros(4)
    np.add.at(expected, two, ROWS)
    ops.agree(run, expected, ROWS, two)
    ops.differentiate(run, ROWS, two)


def test_second_derivatives_of_segment_sums(ops: Any) -> None:
    ops.differentiate(lambda x: tf.square(tf.unsorted_segment_sum(x, [1, -1, 1], 3)), ROWS)


def test_segments_must_fit(ops: Any) -> None:
    with pytest.raises(ValueError, match="must be equal, but are 3 and 2"):
        tf.unsorted_segment_sum(ROWS, [0, 1], 2)


@given(
    st.lists(st.integers(0, 4), max_size=12),
    st.sampled_from([(), (2,), (2, 3)]),
    st.sampled_from([np.float32, np.float64, np.int32]),
)
def test_add_rows_is_that_of_numpy(indices: list[int], tail: Any, dtype: Any) -> None:
    at = np.array(indices, np.int64)
    rows = np.arange(at.size * int(np.prod(tail)) + 1)[1:].reshape(-1, *tail).astype(dtype)
    found, expected = np.ones((5, *tail), dtype), np.ones((5, *tail), dtype)
    add_rows(found, at, rows)
    np.add.at(expected, at, rows)
    np.testing.assert_allclose(found, expected)
    assert found.dtype == dtype


def test_nothing_to_sum() -> None:
    assert sum_rows(np.zeros((0, 2)), np.zeros(0, np.int64), 3).tolist() == [[0, 0]] * 3


def test_segments_of_nothing(ops: Any) -> None:
    for shape, at, count in (
        ((2, 0), [0, 1], 3),
        ((2, 3), [-1, -1], 0),
        ((0, 3), [], 2),
        ((0, 3), [], 0),
    ):
        x, ids = np.ones(shape), np.array(at, np.int32)

        def run(a: Any, i: Any, n: int = count) -> Any:
            return tf.unsorted_segment_sum(a, i, n)

        ops.agree(run, np.zeros((count, *shape[1:])), x, ids)
        (grad,) = ops.gradients(run, x, ids)
        np.testing.assert_array_equal(grad, np.zeros(shape))


@pytest.mark.parametrize(("data", "ids"), [((2, 3), (1,)), ((2, 3), (3, 2)), ((), (1,)), ((2,), (3,))])
def test_segments_of_another_shape_than_the_data_fail_in_the_run(ops: Any, data: Any, ids: Any) -> None:
    def run(values: Any, at: Any) -> Any:
        return tf.unsorted_segment_sum(values, at, 3)

    with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
        ops.compute(run, np.ones(data), np.zeros(ids, np.int32), known="nothing")
