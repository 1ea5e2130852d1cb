"""Keeping values and gradients within bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

X = np.array([[-1.5, 0.2, 0.9], [1.7, -0.4, 3.0]])


def test_clip_by_value(ops: Any) -> None:

    def run(x: Any) -> Any:
        return tf.clip_by_value(x, -0.5, 1.0)

    ops.agree(run, np.clip(X, -0.5, 1.0), X)
    ops.differentiate(run, X)
    low = np.array([-1.0, 0.5, 1.0])
    ops.agree(lambda x, a: tf.clip_by_value(x, a, 2.0), np.clip(X, low, 2.0), X, low)
    ops.differentiate(lambda x, a, b: tf.clip_by_value(x, a, b), X, low, np.array(1.1))
    assert tf.clip_by_value(tf.constant([1, 9]), 2, 5).dtype is tf.int32


def test_bounds_must_fit_the_tensor() -> None:
    with pytest.raises(ValueError, match="must be equal"):
        tf.clip_by_value(tf.constant([1.0]), [[1.0, 2.0]], [[1.0, 2.0]])
    with pytest.raises(TypeError, match="Input 'clip_value_min' of 'ClipByValue'"):
        tf.clip_by_value(tf.constant([1.0]), tf.constant(1), tf.constant(2))


def test_clip_by_norm(ops: Any) -> None:
    norm = np.linalg.norm(X)
    ops.agree(lambda x: tf.clip_by_norm(x, 1.0), X / norm, X)
    ops.agree(lambda x: tf.clip_by_norm(x, 100.0), X, X)
    rows = np.linalg.norm(X, axis=1, keepdims=True)
    ops.agree(lambda x: tf.clip_by_norm(x, 2.0, axes=[1]), X * 2 / np.maximum(rows, 2), X)
    ops.differentiate(lambda x: tf.clip_by_norm(x, 1.0), X)
    ops.differentiate(lambda x: tf.clip_by_norm(x, 2.0, axes=[1]), X, order=1)
    assert tf.clip_by_norm(tf.constant(X), 1.0, name="c").name == "c:0"


def test_zeros_have_a_finite_clipped_gradient(ops: Any) -> None:
    (grad,) = ops.gradients(lambda x: tf.clip_by_norm(x, 1.0), np.zeros(3))
    assert np.isfinite(grad).all()


def test_global_norm(ops: Any) -> None:
    y = np.array([2.0])
    norm = np.sqrt((X**2).sum() + 4)
    ops.agree(lambda a, b: tf.global_norm([a, None, b]), norm, X, y)
    assert ops.evaluate(tf.global_norm([None])) == 0
    wrong: Any = tf.constant(1.0)
    with pytest.raises(TypeError, match="t_list should be a sequence"):
        tf.global_norm(wrong)


def test_clip_by_global_norm(ops: Any) -> None:
    y = np.array([2.0])
    norm = np.sqrt((X**2).sum() + 4)

    def run(a: Any, b: Any) -> Any:
        return tf.clip_by_global_norm([a, b], 0.5)[0]

    ops.agree(run, [X * 0.5 / norm, y * 0.5 / norm], X, y)
    ops.agree(lambda a, b: tf.clip_by_global_norm([a, b], 50.0)[0], [X, y], X, y)
    ops.differentiate(run, X, y, order=1)
    clipped, found = tf.clip_by_global_norm([tf.constant(X), None], 1.0, use_norm=2.0)
    assert clipped[1] is None
    assert ops.evaluate(found) == 2
    np.testing.assert_allclose(ops.evaluate(clipped[0]), X / 2)


def test_a_norm_that_is_not_finite_makes_everything_nan(ops: Any) -> None:
    bad = np.array([1.0, np.inf])
    assert np.isnan(ops.compute(lambda a: tf.clip_by_global_norm([a], 1.0)[0][0], bad)).all()


def test_of_no_tensors(ops: Any) -> None:
    clipped, norm = tf.clip_by_global_norm([None], 1.0)
    assert clipped == [None]
    assert ops.evaluate(norm) == 0


def test_sparse_gradients_stay_sparse(ops: Any) -> None:
    slices = tf.IndexedSlices(tf.constant([[3.0, 4.0]]), tf.constant([1]), tf.constant([3, 2]))
    for clipped in (
        tf.clip_by_norm(slices, 1.0),
        tf.clip_by_global_norm([slices], 1.0)[0][0],
    ):
        assert isinstance(clipped, tf.IndexedSlices)
        np.testing.assert_allclose(ops.evaluate(clipped.values), [[0.6, 0.8]], rtol=1e-6)
    assert ops.evaluate(tf.clip_by_value(slices, 0.0, 3.5).values).tolist() == [[3.0, 3.5]]
