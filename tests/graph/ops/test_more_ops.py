"""The ops that ``asyncmon.tf1`` has beside those of the graph, held to numpy."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf
from asyncmon.graph.ops import more_functions
from asyncmon.tf1 import more_ops as more

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.random.default_rng(7).permutation(24).reshape(2, 3, 4) * 0.1 + 0.05
SQUARE = X[0, :, :3]
IDS = np.array([0, 0, 2])
BAD = errors.InvalidArgumentError


def _segments(function: Callable[..., Any], empty: float) -> Any:
    rows = X[0]
    return np.stack([function(rows[:2], 0), np.full(4, empty), function(rows[2:], 0)])


CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "diag": (more.diag, np.diag(X[0, 0]), X[0, 0]),
    "diag of a matrix": (more.diag, np.diag(X[0].ravel()).reshape(3, 4, 3, 4), X[0]),
    "matrix_diag": (more.matrix_diag, X[0][:, None] * np.eye(4), X[0]),
    "matrix_diag_part": (more.matrix_diag_part, X[:, range(3), range(3)], X),
    "trace": (more.trace, np.trace(X, axis1=1, axis2=2), X),
    "band": (lambda x: more.matrix_band_part(x, 1, 0), np.tril(X) - np.tril(X, -2), X),
    "lower": (lambda x: more.matrix_band_part(x, -1, 0), np.tril(X), X),
    "norm": (more.norm, np.linalg.norm(X), X),
    "norm 1": (lambda x: more.norm(x, 1, -1), np.abs(X).sum(-1), X),
    "norm inf": (lambda x: more.norm(x, np.inf, 0), X.max(0), X),
    "norm 3": (lambda x: more.norm(x, 3, 1, True), (X**3).sum(1, keepdims=True) ** (1 / 3), X),
    "norm of matrices": (lambda x: more.norm(x, 1, [-2, -1]), X.sum(1).max(1), X),
    "cross": (lambda x: more.cross(x, x[::-1]), np.cross(SQUARE, SQUARE[::-1]), SQUARE),
    "segment_sum": (lambda x: more.segment_sum(x, IDS), _segments(np.sum, 0), X[0]),
    "segment_mean": (lambda x: more.segment_mean(x, IDS), _segments(np.mean, 0), X[0]),
    "segment_max": (lambda x: more.segment_max(x, IDS), _segments(np.max, 0), X[0]),
    "segment_min": (lambda x: more.segment_min(x, IDS), _segments(np.min, 0), X[0]),
    "segment_prod": (lambda x: more.segment_prod(x, IDS), _segments(np.prod, 1), X[0]),
    "mean": (
        lambda x: more.unsorted_segment_mean(x, [1, -1, 1], 2),
        np.stack([np.zeros(4), X[0, [0, 2]].mean(0)]),
        X[0],
    ),
    "sqrt_n": (
        lambda x: more.unsorted_segment_sqrt_n(x, [1, 0, 1], 2),
        np.stack([X[0, 1], X[0, [0, 2]].sum(0) / math.sqrt(2)]),
        X[0],
    ),
    "max": (
        lambda x: more.unsorted_segment_max(x, [1, 0, 1], 2),
        np.stack([X[0, 1], X[0, [0, 2]].max(0)]),
        X[0],
    ),
    "reverse_sequence": (
        lambda x: more.reverse_sequence(x, [2, 3], 1),
        np.stack([X[0, [1, 0, 2]], X[1, ::-1]]),
        X,
    ),
    "roll": (lambda x: more.roll(x, [1, -1], [0, 2]), np.roll(X, (1, -1), (0, 2)), X),
    "repeat": (lambda x: more.repeat(x, [2, 0, 1], 1), np.repeat(X, [2, 0, 1], 1), X),
    "partition": (lambda x: more.dynamic_partition(x, [1, 0], 2), [X[1:], X[:1]], X),
    "tensor_scatter": (
        lambda x: more.tensor_scatter_update(x, [[1]], x[:1] * 2),
        np.stack([X[0], X[0] * 2]),
        X,
    ),
    "tensor_scatter_add": (
        lambda x: more.tensor_scatter_add(x, [[1]], x[:1] * 2),
        np.stack([X[0], X[1] + X[0] * 2]),
        X,
    ),
    "tensor_scatter_sub": (
        lambda x: more.tensor_scatter_sub(x, [[1]], x[:1] * 2),
        np.stack([X[0], X[1] - X[0] * 2]),
        X,
    ),
    "sparse_to_dense": (
        lambda x: more.sparse_to_dense([[0, 1], [2, 0]], [3, 2], x, x[0]),
        np.array([[0.5, 0.5], [0.5, 0.5], [0.7, 0.5]]),
        np.array([0.5, 0.7]),
    ),
    "meshgrid": (
        lambda x: more.meshgrid(x, [1.0, 2.0, 3.0] * tf.cast(1, x.dtype)),
        np.meshgrid(X[0, 0], [1.0, 2.0, 3.0]),
        X[0, 0],
    ),
    "lgamma": (more.lgamma, np.vectorize(math.lgamma)(X), X),
    "reduce_variance": (lambda x: more_functions.reduce_variance(x, 1), X.var(1), X),
    "reduce_std": (more_functions.reduce_std, X.std(), X),
}


@pytest.mark.parametrize("name", CASES)
def test_values(ops: Any, name: str) -> None:
    function, expected, x = CASES[name]
    if name == "meshgrid":
        ops.agree(function, expected, x.astype(np.float32), known=("all", "rank"))
    else:
        ops.agree(function, expected, x)


NO_GRADIENT = ("meshgrid", "lgamma")


@pytest.mark.parametrize("name", [name for name in CASES if name not in NO_GRADIENT])
def test_gradients(ops: Any, name: str) -> None:
    function, _, x = CASES[name]
    ops.differentiate(function, x, order=1, max_elements=3, known=name != "diag_part")


def test_the_gradient_of_lgamma(ops: Any) -> None:
    x = tf.constant(X)
    np.testing.assert_allclose(
        ops.evaluate(tf.gradients(more.lgamma(x), x)[0]), ops.evaluate(more.digamma(x))
    )


def test_the_second_diagonals(ops: Any) -> None:
    square = X[0, :2, :2]
    ops.agree(more.diag_part, np.diag(SQUARE), SQUARE, known=("all", "rank"))
    ops.differentiate(more.diag_part, square, order=1, known=False)
    ops.agree(
        more.matrix_set_diag, np.array([[7, X[0, 0, 1]], [X[0, 1, 0], 8]]), square, np.array([7.0, 8])
    )
    ops.differentiate(more.matrix_set_diag, square, np.array([7.0, 8.0]), order=1)
    with pytest.raises(ValueError, match="needs a known even rank"):
        more.diag_part([1.0, 2.0])
    with pytest.raises(ValueError, match="at least rank 1"):
        more.diag(1.0)


def test_norms_that_are_not_defined() -> None:
    for arguments, text in (
        (("fro",), "vector norm, got 'fro'"),
        ((-1,), "vector norm, got -1"),
        ((2, [0, 1]), "matrix norm, got 2"),
        ((1, [0, 0]), "two distinct integers"),
    ):
        with pytest.raises(ValueError, match=text):
            more.norm(X, *arguments)


def test_segments_must_be_in_order_and_in_range(ops: Any) -> None:
    with pytest.raises(BAD, match="in order"):
        ops.compute(more.segment_sum, X[0], np.array([1, 0, 2]))
    with pytest.raises(BAD, match=r"segment_ids\[1\] = 5 is out of range \[0, 3\)"):
        ops.compute(lambda x, ids: more.unsorted_segment_max(x, ids, 3), X[0], np.array([0, 5, 1]))
    with pytest.raises(ValueError, match="must be non-negative but is -1"):
        more.unsorted_segment_min(X[0], [0, 1, 2], -1)
    zeros = np.array([2.0, 0.0, 0.0, 3.0])
    ops.differentiate(lambda x: more.unsorted_segment_prod(x, [0, 0, 1, 1], 2), zeros, order=1)


@given(st.lists(st.integers(0, 5), max_size=5), st.none() | st.integers(0, 7))
def test_masks_of_sequences(ops: Any, lengths: list[int], size: int | None) -> None:
    counts = np.array(lengths, np.int32)
    columns = max([0, *lengths]) if size is None else size
    expected = np.arange(columns) < counts[:, None]
    found = ops.compute(lambda x: more.sequence_mask(x, size), counts, known="rank")
    np.testing.assert_array_equal(found, expected)
    assert ops.evaluate(more.sequence_mask(counts, size, tf.float32)).dtype == np.float32


@given(st.lists(st.integers(-2, 3), max_size=8), st.lists(st.integers(-2, 3), max_size=3))
def test_distinct_values(ops: Any, numbers: list[int], others: list[int]) -> None:
    values = np.array(numbers, np.int32)
    y, idx, count = ops.compute(lambda x: list(more.unique_with_counts(x)), values, known="rank")
    assert y.tolist() == list(dict.fromkeys(numbers))
    assert [y[i] for i in idx] == numbers
    assert count.tolist() == [numbers.count(n) for n in y]
    pair = more.setdiff1d(values, np.array(others, np.int32))
    out, at = ops.evaluate(list(pair))
    assert out.tolist() == [n for n in numbers if n not in others]
    assert [numbers[i] for i in at] == out.tolist()


def test_counts(ops: Any) -> None:
    x = np.array([1, 1, 2, 4])
    ops.agree(more.bincount, np.bincount(x), x)
    ops.agree(lambda v: more.bincount(v, [1.0, 2.0, 3.0, 4.0], 7), np.array([0, 3, 3, 0, 4, 0, 0]), x)
    ops.agree(lambda v: more.bincount(v, maxlength=3, dtype=tf.float32), np.array([0, 2, 1]), x)
    with pytest.raises(BAD, match="non-negative"):
        ops.compute(more.bincount, np.array([-1]))
    values = np.array([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0])
    ops.agree(lambda v: more.histogram_fixed_width(v, [0.0, 5.0], 5), np.array([2, 1, 1, 0, 2]), values)
    rows = np.array([[1.0, 3.0, 5.0], [2.0, 4.0, 4.0]])
    at = np.array([[0.0, 3.0], [4.0, 9.0]])
    ops.agree(more.searchsorted, np.array([[0, 1], [1, 3]]), rows, at)
    ops.agree(lambda a, v: more.searchsorted(a, v, "right"), np.array([[0, 2], [3, 3]]), rows, at)
    with pytest.raises(ValueError, match="'right' or 'left', got 'middle'"):
        more.searchsorted(rows, at, "middle")
    ops.agree(lambda i: more.unravel_index(i, [2, 3]), np.array([[0, 1], [2, 2]]), np.array([2, 5]))


def test_sequences_and_parts_refuse_what_does_not_fit(ops: Any) -> None:
    with pytest.raises(BAD, match=r"must be in \[0, 3\]"):
        ops.compute(lambda x, n: more.reverse_sequence(x, n, 1), X, np.array([2, 9]))
    with pytest.raises(ValueError, match="batch_dim == seq_dim"):
        more.reverse_sequence(X, [1, 1], 0, 0)
    with pytest.raises(BAD, match=r"partitions must be in \[0, 2\)"):
        ops.compute(lambda x, p: more.dynamic_partition(x, p, 2), X, np.array([0, 2], np.int32))
    with pytest.raises(BAD, match="repeats must hold 3 numbers"):
        ops.compute(lambda x, n: more.repeat(x, n, 1), X, np.array([1, 2]))
    with pytest.raises(ValueError, match="maxlen must be scalar"):
        more.sequence_mask([1], [2])
    with pytest.raises(ValueError, match="'xy' or 'ij'"):
        more.meshgrid([1], indexing="yx")


def test_stitching(ops: Any) -> None:
    def stitched(x: Any, y: Any) -> Any:
        return more.dynamic_stitch([[0, 2], [[1, 2]]], [x, y])

    x, y = X[0, :2], X[:1, :2]
    expected = np.stack([x[0], y[0, 0], y[0, 1]])
    ops.agree(stitched, expected, x, y)
    assert stitched(tf.constant(x), tf.constant(y)).shape == (3, 4)
    with pytest.raises(ValueError, match="need one length"):
        more.dynamic_stitch([[0]], [])


def test_sparse_indices_are_checked(ops: Any) -> None:
    def dense(indices: Any, values: Any) -> Any:
        return more.sparse_to_dense(indices, [4], values, -1.0)

    ops.agree(dense, np.array([-1, 5, -1, 6]), np.array([[1], [3]]), np.array([5.0, 6.0]))
    ops.agree(dense, np.array([-1, 5, -1, 5]), np.array([1, 3]), np.array(5.0))
    for indices, text in (
        ([[3], [1]], "out of order"),
        ([[1], [1]], "repeated"),
        ([[1], [4]], "shape"),
    ):
        with pytest.raises(BAD, match=text):
            ops.compute(dense, np.array(indices), np.array([5.0, 6.0]))


def test_complex_numbers(ops: Any) -> None:
    z = np.array([1 + 2j, 3 - 1j])
    ops.agree(more.real, z.real, z)
    ops.agree(more.imag, z.imag, z)
    ops.agree(more.angle, np.angle(z), z)
    ops.agree(tf.abs, np.abs(z), z)
    ops.agree(more.complex, z, z.real, z.imag)
    x = tf.constant(1.0)
    for part in (more.real, more.imag, more.angle, tf.abs):
        with pytest.raises(LookupError):
            tf.gradients(part(more.complex(x, x)), x)
    assert ops.evaluate([more.imag(2.0), more.angle(-1.0)]) == [0, np.float32(np.pi)]


def test_functions_of_two(ops: Any) -> None:
    x, y = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    ops.agree(more.truncatediv, np.array([3, -3, -3, 3]), x, y)
    ops.agree(more.truncatemod, np.fmod(x, y), x, y)
    a, b = np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 3.0])
    ops.agree(more_functions.xlogy, np.array([0, math.log(2), 2 * math.log(3)]), a, b)
    ops.agree(more_functions.xdivy, np.array([0, 0.5, 2 / 3]), a, b)
    for function in (more_functions.xlogy, more_functions.xdivy):
        ops.differentiate(function, a[1:], b[1:], order=1)
    gamma = 0.5772156649015329
    found = ops.compute(more.digamma, np.array([1.0, 2.0, 0.5, -0.5]))
    expected = [-gamma, 1 - gamma, -gamma - 2 * math.log(2), 2 - gamma - 2 * math.log(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_bits(ops: Any) -> None:
    x = np.array([1.0, 2.0], np.float32)
    ops.agree(lambda v: more.bitcast(v, tf.int32), x.view(np.int32), x)
    ops.agree(lambda v: more.bitcast(v, tf.uint8), x.view(np.uint8).reshape(2, 4), x)
    ops.agree(lambda v: more.bitcast(v, tf.float64), x.view(np.float64)[0], x)
    ops.agree(lambda v: more.bitcast(v, tf.int32), x[0].view(np.int32), x[0])


# --- variables ------------------------------------------------------------------------------------
def test_counting_up_ends(ops: Any) -> None:
    counter = tf.Variable(0)
    step = more.count_up_to(counter, 2)

    async def run() -> list[Any]:
        async with tf.Session() as sess:
            await sess.run(counter.initializer)
            found = [await sess.run(step), await sess.run(step)]
            with pytest.raises(errors.OutOfRangeError, match="Reached limit of 2"):
                await sess.run(step)
            return [*found, await sess.run(counter)]

    assert asyncio.run(run()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda v: more.scatter_nd_add(v, [[0, 1], [0, 1]], [10.0, 20.0]), [[1, 32], [3, 4]]),
        (lambda v: more.scatter_nd_sub(v, [[1]], [[1.0, 2.0]]), [[1, 2], [2, 2]]),
        (lambda v: more.scatter_nd_update(v, [[1, 0]], [9.0]), [[1, 2], [9, 4]]),
        (lambda v: tf.scatter_mul(v, [0, 0], [[2.0, 2.0], [3.0, 3.0]]), [[6, 12], [3, 4]]),
        (lambda v: tf.scatter_div(v, 1, [3.0, 2.0]), [[1, 2], [1, 2]]),
        (lambda v: tf.scatter_min(v, [0, 1], 2.5), [[1, 2], [2.5, 2.5]]),
        (lambda v: tf.scatter_max(v, [0, 1], 2.5), [[2.5, 2.5], [3, 4]]),
    ],
)
def test_scattering_into_variables(ops: Any, write: Any, expected: Any) -> None:
    assert ops.evaluate(write(tf.Variable([[1.0, 2.0], [3.0, 4.0]]))).tolist() == expected


def test_scattering_out_of_range_writes_nothing(ops: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    with pytest.raises(BAD, match="does not index into shape"):
        ops.evaluate(more.scatter_nd_update(v, [[0], [5]], [7.0, 8.0]))
    with pytest.raises(ValueError, match="must be <= the rank"):
        more.scatter_nd_add(v, [[0, 1]], [1.0])
    with pytest.raises(TypeError, match="type int32"):
        more.scatter_nd_add(v, [[0]], tf.constant([1]))


# --- gradients of the caller's own ----------------------------------------------------------------
def test_a_function_with_a_gradient_of_its_own(ops: Any) -> None:
    @more.custom_gradient
    def both(x: Any, y: Any) -> Any:
        return (x * y, x + y), lambda product, total: (product * 10, total * 100)

    x, y = tf.constant(2.0), tf.constant(3.0)
    product, total = both(x, y)
    assert ops.evaluate([product, total]) == [6, 5]
    assert ops.evaluate(tf.gradients(product + 2 * total, [x, y])) == [10, 200]
    assert ops.evaluate(tf.gradients(product, [x, y])) == [10, 0]


def test_a_gradient_function_returns_one_for_each_argument(ops: Any) -> None:
    once = more.custom_gradient(lambda x: (x * 2.0, lambda dy: dy * 5.0))
    x = tf.constant(2.0)
    assert ops.evaluate(tf.gradients(once(x), x)) == [5]
    twice = more.custom_gradient(lambda x: (x * 2.0, lambda dy: [dy, dy]))
    with pytest.raises(ValueError, match="must return 1 gradients"):
        tf.gradients(twice(x), x)
