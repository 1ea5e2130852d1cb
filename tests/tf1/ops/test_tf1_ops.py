"""The ops that ``asyncmon.tf1`` has beside those of the graph, held to numpy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncmon.tf1 as more
from asyncmon import errors
from asyncmon import graph as tf

X = np.random.default_rng(7).permutation(24).reshape(2, 3, 4) * 0.1 + 0.05
SQUARE = X[0, :, :3]
BAD = errors.InvalidArgumentError


CASES: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "diag": (more.diag, np.diag(X[0, 0]), X[0, 0]),
    "diag of a matrix": (more.diag, np.diag(X[0].ravel()).reshape(3, 4, 3, 4), X[0]),
    "norm": (more.norm, np.linalg.norm(X), X),
    "norm 1": (lambda x: more.norm(x, 1, -1), np.abs(X).sum(-1), X),
    "norm inf": (lambda x: more.norm(x, np.inf, 0), X.max(0), X),
    "norm 3": (lambda x: more.norm(x, 3, 1, True), (X**3).sum(1, keepdims=True) ** (1 / 3), X),
    "norm of matrices": (lambda x: more.norm(x, 1, [-2, -1]), X.sum(1).max(1), X),
    "reverse_sequence": (
        lambda x: more.reverse_sequence(x, [2, 3], 1),
        np.stack([X[0, [1, 0, 2]], X[1, ::-1]]),
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
}


@pytest.mark.parametrize("name", CASES)
def test_values(ops: Any, name: str) -> None:
    function, expected, x = CASES[name]
    if name == "meshgrid":
        ops.agree(function, expected, x.astype(np.float32), known=("all", "rank"))
    else:
        ops.agree(function, expected, x)


@pytest.mark.parametrize("name", [name for name in CASES if name != "meshgrid"])
def test_gradients(ops: Any, name: str) -> None:
    function, _, x = CASES[name]
    ops.differentiate(function, x, order=1, max_elements=3, known=name != "diag_part")


def test_diagonals_are_taken_out(ops: Any) -> None:
    square = X[0, :2, :2]
    ops.agree(more.diag_part, np.diag(SQUARE), SQUARE, known=("all", "rank"))
    ops.differentiate(more.diag_part, square, order=1, known=False)
    pairs = X.ravel()[:16].reshape(2, 2, 2, 2)
    ops.agree(more.diag_part, np.einsum("ijij->ij", pairs), pairs, known=("all", "rank"))
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


@given(st.lists(st.integers(0, 5), max_size=5), st.none() | st.integers(0, 7))
def test_masks_of_sequences(ops: Any, lengths: list[int], size: int | None) -> None:
    counts = np.array(lengths, np.int32)
    columns = max([0, *lengths]) if size is None else size
    expected = np.arange(columns) < counts[:, None]
    found = ops.compute(lambda x: more.sequence_mask(x, size), counts, known="rank")
    np.testing.assert_array_equal(found, expected)
    assert ops.evaluate(more.sequence_mask(counts, size, tf.float32)).dtype == np.float32


def test_places_in_what_is_sorted(ops: Any) -> None:
    rows = np.array([[1.0, 3.0, 5.0], [2.0, 4.0, 4.0]])
    at = np.array([[0.0, 3.0], [4.0, 9.0]])
    ops.agree(more.searchsorted, np.array([[0, 1], [1, 3]]), rows, at)
    ops.agree(lambda a, v: more.searchsorted(a, v, "right"), np.array([[0, 2], [3, 3]]), rows, at)
    with pytest.raises(ValueError, match="'right' or 'left', got 'middle'"):
        more.searchsorted(rows, at, "middle")


def test_sequences_refuse_what_does_not_fit(ops: Any) -> None:
    with pytest.raises(BAD, match=r"must be in \[0, 3\]"):
        ops.compute(lambda x, n: more.reverse_sequence(x, n, 1), X, np.array([2, 9]))
    with pytest.raises(ValueError, match="batch_dim == seq_dim"):
        more.reverse_sequence(X, [1, 1], 0, 0)
    with pytest.raises(ValueError, match="maxlen must be scalar"):
        more.sequence_mask([1], [2])
    with pytest.raises(ValueError, match="'xy' or 'ij'"):
        more.meshgrid([1], indexing="yx")


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
    ],
)
def test_scattering_into_variables(ops: Any, write: Any, expected: Any) -> None:
    assert ops.evaluate(write(tf.Variable([[1.0, 2.0], [3.0, 4.0]]))).tolist() == expected


def test_scattering_out_of_range_writes_nothing(ops: Any) -> None:
    v = tf.Variable([1.0, 2.0])
    with pytest.raises(BAD, match="does not index into shape"):
        ops.evaluate(more.scatter_nd_update(v, [[0], [5]], [7.0, 8.0]))
    with pytest.raises(ValueError, match="must be at least rank 2"):
        more.scatter_nd_add(v, [[0, 1]], [1.0])
    with pytest.raises(TypeError, match="type int32"):
        more.scatter_nd_add(v, [[0]], tf.constant([1]))


def test_clip_by_average_norm(ops: Any) -> None:
    average = np.linalg.norm(X) / X.size
    ops.agree(lambda x: more.clip_by_average_norm(x, 0.1), X * 0.1 / average, X)
    ops.agree(lambda x: more.clip_by_average_norm(x, 10.0), X, X)


def test_the_inverse_of_a_permutation(ops: Any) -> None:
    ops.agree(more.invert_permutation, np.array([2, 0, 3, 1]), np.array([1, 3, 0, 2]))
    with pytest.raises(BAD, match="Not a permutation of 0 to 2"):
        ops.compute(more.invert_permutation, np.array([1, 1, 0]))
    with pytest.raises(TypeError, match="DataType float32"):
        more.invert_permutation([0.0])


def test_shapes_of_a_list(ops: Any) -> None:
    ops.agree(lambda x: more.shape_n([x, x[0]]), [np.array([2, 3, 4]), np.array([3, 4])], X)


# --- what TF1's own tests of ops ask for ----------------------------------------------------------
NAN = float("nan")


@pytest.mark.parametrize(
    ("row", "greatest", "smallest"),
    [([NAN, 1, 2], 2, 1), ([1, NAN, 2], 2, 0), ([NAN, NAN], 0, 0), ([-np.inf, NAN, -5], 2, 0)],
)
@pytest.mark.usefixtures("graph")
def test_nan_is_neither_greatest_nor_smallest(
    row: list[float], greatest: int, smallest: int, evaluate: Callable[..., Any]
) -> None:
    for dtype in (np.float32, np.float64):
        x = tf.constant(np.array([row, row], dtype))
        found = evaluate([tf.argmax(x, 1), tf.argmin(x, 1)])
        assert [one.tolist() for one in found] == [[greatest] * 2, [smallest] * 2]


@pytest.mark.usefixtures("graph")
def test_constants_give_static_shapes() -> None:
    assert more.dynamic_stitch([[0, 4], [2]], [[1.0, 2.0], [3.0]]).shape.as_list() == [5]
    rows = more.dynamic_stitch([0, [2, 5]], [[1.0, 2.0], [[3.0, 4.0], [5.0, 6.0]]])
    assert rows.shape.as_list() == [6, 2]
    assert more.confusion_matrix([1, 2], [1, 2]).shape.as_list() == [3, 3]
    ids = tf.placeholder(tf.int32, [3])
    assert more.confusion_matrix(ids, ids).shape.as_list() == [None, None]


class Reflected:
    def __radd__(self, other: Any) -> str:
        return "radd"

    def __rmatmul__(self, other: Any) -> str:
        return "rmatmul"


@pytest.mark.usefixtures("graph")
def test_an_object_with_reflected_operators_gets_the_tensor() -> None:
    x, v = tf.constant([[1.0]]), tf.get_variable("v", [1])
    assert [x + Reflected(), v + Reflected(), x @ Reflected()] == ["radd", "radd", "rmatmul"]
    with pytest.raises(TypeError, match="Cannot convert"):
        x - Reflected()
    with pytest.raises(TypeError, match="Cannot convert"):
        x + object()
    with pytest.raises(TypeError):
        x + np.array(["a"])
