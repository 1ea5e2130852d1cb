"""Axes, permutations, paddings and indices that are tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon import errors
from asyncmon import graph as tf

X = np.random.default_rng(3).permutation(24).reshape(2, 3, 4) * 0.1 + 0.05
ALONG: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "reduce_sum": (tf.reduce_sum, np.sum),
    "reduce_mean": (tf.reduce_mean, np.mean),
    "reduce_max": (tf.reduce_max, np.max),
    "reduce_prod": (tf.reduce_prod, np.prod),
    "reduce_logsumexp": (tf.reduce_logsumexp, lambda x, a: np.log(np.exp(x).sum(a))),
    "kept": (lambda x, a: tf.reduce_sum(x, a, True), lambda x, a: x.sum(a, keepdims=True)),
    "expand_dims": (tf.expand_dims, np.expand_dims),
    "concat": (lambda x, a: tf.concat([x, x * x], a), lambda x, a: np.concatenate([x, x * x], a)),
    "gather": (lambda x, a: tf.gather(x, [[1, 0, 1]], axis=a), lambda x, a: np.take(x, [[1, 0, 1]], a)),
    "cumsum": (tf.cumsum, np.cumsum),
    "cumprod": (tf.cumprod, np.cumprod),
    "reverse": (lambda x, a: tf.reverse(x, [a]), np.flip),
    "split": (
        lambda x, a: tf.split(x, [1, -1], a),
        lambda x, a: np.split(x, [1], a),
    ),
    "softmax": (tf.nn.softmax, lambda x, a: np.exp(x) / np.exp(x).sum(a, keepdims=True)),
    "l2_normalize": (tf.nn.l2_normalize, lambda x, a: x / np.sqrt((x * x).sum(a, keepdims=True))),
    "moments": (tf.nn.moments, lambda x, a: [x.mean(a), x.var(a)]),
}


@pytest.mark.parametrize("name", ALONG)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_axis_known_in_the_run(ops: Any, name: str, axis: int) -> None:
    function, reference = ALONG[name]
    ops.agree(function, reference(X, axis), X, np.int32(axis), known=("all", "nothing"))
    ops.compute(function, X, np.int64(axis))


@pytest.mark.parametrize("name", ALONG)
def test_its_gradients(ops: Any, name: str) -> None:
    ops.differentiate(ALONG[name][0], X, np.int32(1), order=1, max_elements=3)


def test_positions_along_an_axis(ops: Any) -> None:
    for function, reference in ((tf.argmax, np.argmax), (tf.argmin, np.argmin)):
        ops.agree(function, reference(X, 1), X, np.int32(1))


@given(st.sets(st.integers(0, 2)), st.booleans(), st.booleans())
def test_several_axes(ops: Any, axes: set[int], kept: bool, negative: bool) -> None:
    given_axes = [a - 3 if negative else a for a in axes]

    def reduced(x: Any, a: Any) -> Any:
        return tf.reduce_sum(x, a, kept)

    expected = X.sum(tuple(axes), keepdims=kept)
    found = ops.compute(reduced, X, np.array(given_axes, np.int32), known="rank")
    np.testing.assert_allclose(found, expected)


def test_axes_that_are_known_are_no_inputs() -> None:
    x = tf.placeholder(tf.float32, [2, None, 4])
    assert tf.reduce_sum(x, tf.range(1, tf.rank(x))).op.inputs == (x,)
    assert tf.reduce_sum(x, tf.rank(x) - 1).shape == (2, None)
    assert tf.transpose(x, tf.concat([[1, 0], tf.range(2, tf.rank(x))], 0)).shape == (None, 2, 4)


@pytest.mark.parametrize("axis", [3, -4])
@pytest.mark.parametrize("name", [name for name in ALONG if name != "expand_dims"])
def test_an_axis_that_is_none_fails_in_the_run(ops: Any, name: str, axis: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=rf"{axis}"):
        ops.compute(ALONG[name][0], X, np.int32(axis))


def test_axes_given_twice_are_refused(ops: Any) -> None:
    with pytest.raises(ValueError, match="Axes contains duplicate dimension: 0"):
        tf.reduce_sum(X, [0, -3])
    with pytest.raises(errors.InvalidArgumentError, match="duplicate dimension: 1"):
        ops.compute(tf.reduce_sum, X, np.array([1, -2]))


def test_axes_must_be_integers() -> None:
    x = tf.constant(X)
    with pytest.raises(TypeError, match="DataType float32 not in list of allowed values: int32, int64"):
        tf.reduce_sum(x, tf.constant(1.0))
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        tf.argmax(x, tf.placeholder(tf.int32, [1]))
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        tf.argmax(x, [0, 1])
    with pytest.raises(ValueError, match="with batch_dims=1 needs an axis that is no tensor"):
        tf.gather(x, [[0], [0]], axis=tf.placeholder(tf.int32, []), batch_dims=1)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, -1, 0)])
def test_a_permutation_known_in_the_run(ops: Any, order: Any) -> None:
    ops.agree(tf.transpose, np.transpose(X, order), X, np.array(order, np.int32))
    if min(order) >= 0:
        ops.differentiate(tf.transpose, X, np.array(order), max_elements=3)


def test_what_is_no_permutation_fails_in_the_run(ops: Any) -> None:
    for order in ([0, 0, 1], [0, 1, 3]):
        with pytest.raises(errors.InvalidArgumentError):
            ops.compute(tf.transpose, X, np.array(order))


def test_paddings_may_be_numbers_and_tensors(ops: Any) -> None:
    n = tf.placeholder(tf.int32, [])
    padded = tf.pad(tf.constant(X), [[0, 5 - n], [1, 0], [0, 0]])
    assert padded.shape == (None, 4, 4)
    found = ops.evaluate(padded, {n: 2})
    np.testing.assert_allclose(found, np.pad(X, [(0, 3), (1, 0), (0, 0)]))


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (lambda x, i, j: x[i], X[1]),
        (lambda x, i, j: x[j:i, ..., i:], X[0:1, ..., 1:]),
        (lambda x, i, j: x[tf.Variable(1)], X[1]),
        (lambda x, i, j: x[[i, j]], X[1, 0]),
        (lambda x, i, j: x[i, tf.newaxis, :, :: j - 1], X[1, None, :, ::-1]),
    ],
)
def test_tensors_in_an_index(ops: Any, index: Any, expected: Any) -> None:
    ops.agree(index, expected, X, np.int32(1), np.int32(0))


def test_sizes_are_computed_when_the_graph_is_built() -> None:
    x = tf.placeholder(tf.float32, [None, 3])
    n = tf.shape(x)
    assert tf.zeros([n[1] * 2 + 1, n[0] - 1]).shape == (7, None)
    assert tf.zeros(n // [1, 2]).shape == (None, 1)
    assert x[:, : n[1] - 1].shape == (None, 2)
