"""Picking by index, and what flows back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(24.0).reshape(2, 3, 4)
INDICES = [np.array(1), np.array([1, 0, 1]), np.array([[0, 1], [1, 1]])]


@pytest.mark.parametrize("indices", INDICES, ids=lambda i: str(i.shape))
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_gather(ops: Any, indices: Any, axis: int) -> None:

    def run(x: Any, i: Any) -> Any:
        return tf.gather(x, i, axis=axis)

    ops.agree(run, np.take(X, indices, axis), X, indices)
    ops.differentiate(run, X, indices, max_elements=4)


@pytest.mark.parametrize("axis", [1, 2])
def test_gather_in_batches(ops: Any, axis: int) -> None:
    indices = np.array([[0, 1, 1], [2, 0, 2]])
    expected = np.stack([np.take(x, i, axis - 1) for x, i in zip(X, indices, strict=True)])

    def run(x: Any, i: Any) -> Any:
        return tf.gather(x, i, axis=axis, batch_dims=1)

    ops.agree(run, expected, X, indices)
    ops.differentiate(run, X, indices, max_elements=4)
    ops.agree(
        lambda x, i: tf.gather(x, i, batch_dims=1),
        np.stack([X[0, [0, 1]], X[1, [2, 0]]]),
        X,
        indices[:, :2],
    )


def test_a_gather_of_rows_has_a_sparse_gradient(ops: Any) -> None:
    x = tf.constant(X)
    (grad,) = tf.gradients(tf.gather(x, [1, 1]), x)
    assert isinstance(grad, tf.IndexedSlices)
    np.testing.assert_array_equal(ops.evaluate(tf.convert_to_tensor(grad))[:, 0, 0], [0, 2])


def test_gather_checks_its_indices(ops: Any) -> None:
    for bad in ([5], [-1]):
        with pytest.raises(
            errors.InvalidArgumentError, match=rf"indices\[0\] = {bad[0]} is not in \[0, 2\)"
        ):
            ops.compute(lambda x, b=bad: tf.gather(x, b), X)
    x = tf.constant(X)
    with pytest.raises(TypeError, match="'indices'"):
        tf.gather(x, [0.5])
    with pytest.raises(ValueError, match="Invalid axis 3"):
        tf.gather(x, [0], axis=3)
    with pytest.raises(ValueError, match=r"batch_dims \(1\) must be less than or equal to axis \(0\)"):
        tf.gather(x, [[0]], axis=0, batch_dims=1)


def test_dimensions_survive_being_picked() -> None:
    x = tf.placeholder(tf.float32, [None, 3, 4])
    assert tf.zeros(tf.gather(tf.shape(x), [2, 0])).shape.as_list() == [4, None]
    assert tf.zeros(tf.boolean_mask(tf.shape(x), [True, False, True])).shape.as_list() == [None, 4]
    assert tf.gather(tf.shape(x), [[0, 1]]).spec.known_dims() is None  # a matrix is no shape
    assert tf.shape(x)[:, None].spec.known_dims() is None
    assert tf.gather(tf.shape(x), [3]).spec.known_dims() is None  # fails in the run


@pytest.mark.parametrize(
    "indices", [[[0, 1, 2], [1, 2, 3]], [[0, 1]], [[1], [0], [1]], [[[0, 0]], [[1, 1]]]]
)
def test_gather_nd(ops: Any, indices: Any) -> None:
    at = np.array(indices)

    def run(x: Any, i: Any) -> Any:
        return tf.gather_nd(x, i)

    ops.agree(run, X[tuple(np.moveaxis(at, -1, 0))], X, at)
    ops.differentiate(run, X, at, max_elements=4)


def test_gather_nd_in_batches_and_of_nothing(ops: Any) -> None:
    at = np.array([[[2, 1]], [[0, 3]]])

    def run(x: Any, i: Any) -> Any:
        return tf.gather_nd(x, i, batch_dims=1)

    ops.agree(run, np.array([[X[0, 2, 1]], [X[1, 0, 3]]]), X, at)
    ops.differentiate(run, X, at, max_elements=4)
    nothing = np.zeros((3, 0), np.int64)
    ops.agree(tf.gather_nd, np.broadcast_to(X, (3, *X.shape)), X, nothing)
    ops.differentiate(tf.gather_nd, X, nothing, max_elements=2)


def test_gather_nd_checks_its_indices(ops: Any) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match=r"indices\[1\] = \[2, 0\] does not index into shape"
    ):
        ops.compute(lambda x: tf.gather_nd(x, [[0, 0], [2, 0]]), X)
    with pytest.raises(ValueError, match=r"indices.shape\[-1\] must be <= params.rank"):
        tf.gather_nd(tf.constant(X), [[0, 0, 0, 0]])


def test_scatter_nd(ops: Any) -> None:
    at, updates = np.array([[0], [2], [0]]), np.array([[1.0, 2], [3, 4], [5, 6]])

    def run(i: Any, u: Any) -> Any:
        return tf.scatter_nd(i, u, [4, 2])

    ops.agree(run, np.array([[6.0, 8], [0, 0], [3, 4], [0, 0]]), at, updates)
    ops.differentiate(run, at, updates)


@pytest.mark.asyncio
async def test_all_of_a_variable_gathered_is_the_callers_own() -> None:
    variable = tf.Variable(np.zeros((50, 50), np.float32))
    every = tf.gather_nd(variable, np.zeros(0, np.int32))
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        fetched = await sess.run(every)
        await sess.run(tf.assign_add(variable, tf.ones([50, 50])))
        np.testing.assert_array_equal(fetched, np.zeros((50, 50)))


@pytest.mark.parametrize(
    ("shape", "at"), [((3, 0), [0, 2, 0]), ((3, 0, 2), [[1]]), ((0, 2), []), ((2, 2), [])]
)
def test_gathers_of_nothing(ops: Any, shape: Any, at: Any) -> None:
    x, ids = np.ones(shape), np.array(at, np.int32)
    ops.agree(tf.gather, x[ids], x, ids)
    for known in ("all", "nothing"):
        (grad,) = ops.gradients(tf.gather, x, ids, known=known)
        np.testing.assert_array_equal(grad, np.zeros(shape))
    table = tf.placeholder(tf.float64, shape)
    (slices,) = tf.gradients(tf.gather(table, ids), table)
    assert ops.evaluate(slices, {table: x}).values.shape == (ids.size, *shape[1:])


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "text"),
    [
        ((2, 3), (1,), 1, "must be equal"),
        ((2, 3), (1, 3), 1, "must be equal"),
        ((2, 3), (0, 3), 1, "must be equal"),
        ((2, 3), (), 1, "Invalid batch_dims 1"),
        ((2, 3), (2,), 0, r"batch_dims \(1\) must be less than or equal to axis \(0\)"),
    ],
)
def test_batches_that_are_not_shared_fail_in_the_run(
    ops: Any, shape: Any, indices: Any, axis: int, text: str
) -> None:
    def run(x: Any, at: Any) -> Any:
        return tf.gather(x, at, axis=axis, batch_dims=1)

    with pytest.raises(errors.InvalidArgumentError, match=text):
        ops.compute(run, np.ones(shape), np.zeros(indices, np.int32), known="nothing")


def test_what_is_scattered_must_fit_when_it_is_known() -> None:
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 1 and 2"):
        tf.scatter_nd([[0]], [1.0, 2.0], [4])
    with pytest.raises(ValueError, match=r"must be <= params\.rank"):
        tf.scatter_nd([[0, 1]], [1.0], [4])
    with pytest.raises(TypeError, match="DataType float32"):
        tf.nn.top_k([1.0, 2.0], 1.0)


@pytest.mark.parametrize(
    ("batch_dims", "axis", "same", "at"),
    [(-1, 1, 1, 1), (-1, -1, 1, 2), (-1, None, 1, 2), (-2, 1, 0, 1), (-2, None, 0, 1)],
)
def test_batch_dims_count_from_the_rank_of_the_indices(
    ops: Any, batch_dims: int, axis: int | None, same: int, at: int
) -> None:
    x, indices = np.arange(12.0).reshape(2, 2, 3), np.array([[0, 1], [1, 0]])
    expected = ops.compute(lambda v, i: tf.gather(v, i, axis=at, batch_dims=same), x, indices)
    ops.agree(lambda v, i: tf.gather(v, i, axis=axis, batch_dims=batch_dims), expected, x, indices)


def test_strings_are_scattered(ops: Any) -> None:
    found = ops.evaluate(tf.scatter_nd([[0], [2], [0]], ["a", "b", "c"], [3]))
    assert found.tolist() == [b"ac", b"", b"b"]
