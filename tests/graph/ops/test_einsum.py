"""tensordot and einsum against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

RNG = np.random.default_rng(11)


def _array(*shape: int) -> Any:
    return RNG.normal(size=shape)


@pytest.mark.parametrize(
    ("shape_a", "shape_b", "axes"),
    [
        ((2, 3), (3, 4), 1),
        ((2, 3), (2, 3), 2),
        ((2,), (3,), 0),
        ((2, 3, 4), (4, 3, 2), [[1, 2], [1, 0]]),
        ((2, 3, 4), (3, 5), [[1], [0]]),
        ((2, 3, 4), (3, 5), [1, 0]),
        ((2, 3, 4), (5, 3), [[-2], [-1]]),
    ],
)
def test_tensordot(ops: Any, shape_a: Any, shape_b: Any, axes: Any) -> None:
    a, b = _array(*shape_a), _array(*shape_b)

    def run(x: Any, y: Any) -> Any:
        return tf.tensordot(x, y, axes)

    ops.agree(run, np.tensordot(a, b, axes), a, b)
    ops.differentiate(run, a, b, max_elements=4, known=False)


def test_tensordot_takes_constant_axes_and_refuses_bad_ones() -> None:
    a, b = tf.ones([2, 3]), tf.ones([3, 4])
    assert tf.tensordot(a, b, tf.constant([[1], [0]])).shape == (2, 4)
    for axes, text in (
        (5, "`axes` must be from 0 to 2"),
        ([[1]], "have length 2"),
        ([[0, 1], [0]], "Different number of contraction axes"),
        ([[5], [0]], "Invalid axes 5"),
        ([[0], [0]], "must be equal, but are 2 and 3"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.tensordot(a, b, axes)
    with pytest.raises(ValueError, match="must be known when the graph is built"):
        tf.tensordot(a, b, tf.placeholder(tf.int32))


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ba", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii->", (3, 3)),
    ("iij,jk->ik", (2, 2, 3), (3, 4)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 4)),
    ("bij,bjk->kb", (2, 2, 3), (2, 3, 4)),
    ("ij,kl->ijkl", (2, 3), (2, 2)),
    ("ij,jk->k", (2, 3), (3, 4)),
    ("ij,ij->", (2, 3), (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    ("a,b,c->abc", (2,), (3,), (2,)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
    ("...ij,jk->...ik", (2, 2, 3), (3, 4)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (5, 3, 2)),
    ("...,...", (2, 3), (1, 3)),
    ("i...->...", (2, 3, 2)),
]


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(ops: Any, case: Any) -> None:
    equation, *shapes = case
    arrays = [_array(*shape) for shape in shapes]

    def run(*x: Any) -> Any:
        return tf.einsum(equation, *x)

    known = ("all", "rank") if "..." in equation else ("all", "rank", "nothing")
    ops.agree(run, np.einsum(equation, *arrays), *arrays, known=known)
    ops.differentiate(run, *arrays, order=2, max_elements=3, known=False)


def test_gradients_of_dimensions_that_may_broadcast(ops: Any) -> None:
    a, b = _array(2, 1, 2, 3), _array(5, 3, 2)

    def run(x: Any, y: Any) -> Any:
        return tf.einsum("...ij,...jk->...ik", x, y)

    exact = ops.gradients(run, a, b)
    for got, want in zip(ops.gradients(run, a, b, known="rank"), exact, strict=True):
        np.testing.assert_allclose(got, want)


@pytest.mark.parametrize(
    ("equation", "text"),
    [
        ("ij,jk->ik", "Got 1 inputs for equation 'ij,jk->ik', expecting 2"),
        ("ij->iz", "must name labels of the inputs"),
        ("ij->ii", "each once"),
        ("ijk->i", "Expected input of rank 3 for 'ijk'"),
        ("i1->i", "Indices have incorrect format"),
        ("ijk...->i", "Expected input of rank 3 or more"),
    ],
)
def test_equations_that_do_not_fit(equation: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tf.einsum(equation, tf.ones([2, 3]))


def test_ellipsis_needs_a_known_rank() -> None:
    with pytest.raises(ValueError, match=r"The rank of an input must be known to use '\.\.\.'"):
        tf.einsum("...i->...", tf.placeholder(tf.float32))


def test_sizes_and_dtypes_must_fit(ops: Any) -> None:
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 3 and 2"):
        tf.einsum("ij,jk->ik", tf.ones([2, 3]), tf.ones([2, 3]))
    with pytest.raises(TypeError, match="of 'Einsum' Op has type int32"):
        tf.einsum("i,i->", tf.ones([2]), tf.ones([2], tf.int32))
    with pytest.raises(errors.InvalidArgumentError, match="must be equal, but are 3 and 1"):
        ops.compute(
            lambda a, b: tf.einsum("ij,jk->ik", a, b), np.ones((2, 3)), np.ones((1, 2)), known="rank"
        )


@pytest.mark.parametrize(
    ("shape", "axes"), [((3, 4), 1), ((3, 4), [[1], [0]]), ((2, 3, 4), [[-1, 0], [1, 0]])], ids=str
)
def test_tensordot_of_tensors_of_unknown_rank(ops: Any, shape: Any, axes: Any) -> None:
    a = np.arange(np.prod(shape), dtype=float).reshape(shape) / 9 - 1
    b = np.arange(16.0).reshape((4, 4) if len(shape) == 2 else (2, 4, 2)) / 7 - 1

    def run(x: Any, y: Any) -> Any:
        hidden = tf.placeholder_with_default(x, None)
        return tf.tensordot(hidden, y, axes)

    ops.agree(run, np.tensordot(a, b, axes), a, b)
    ops.differentiate(run, a, b, max_elements=4)


def test_tensordot_of_unknown_rank_refuses_what_does_not_fit(ops: Any) -> None:
    x, y = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    feeds = {x: np.ones((2, 3)), y: np.ones((2, 3))}
    for axes in (1, 3, [[5], [0]]):
        with pytest.raises(errors.InvalidArgumentError):
            ops.evaluate(tf.tensordot(x, y, axes), feeds)
    with pytest.raises(ValueError, match="Different number of contraction axes"):
        tf.tensordot(x, y, [[0, 1], [0]])
    with pytest.raises(TypeError, match="Input 'b' of 'Tensordot' Op has type float64"):
        tf.tensordot(x, tf.placeholder(tf.float64), 1)
