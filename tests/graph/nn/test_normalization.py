"""Moments, normalisation and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf

RNG = np.random.default_rng(12)
X = RNG.normal(size=(4, 3, 2))
nn = tf.nn


@pytest.mark.parametrize("axes", [[0], [0, 1], [-1], None])
@pytest.mark.parametrize("keepdims", [False, True])
def test_moments(ops: Any, axes: Any, keepdims: bool) -> None:
    axis = None if axes is None else tuple(axes)
    expected = [X.mean(axis, keepdims=keepdims), X.var(axis, keepdims=keepdims)]

    def run(x: Any) -> Any:
        return nn.moments(x, axes, keepdims=keepdims)

    ops.agree(run, expected, X)
    ops.differentiate(run, X, order=1, max_elements=4)


def test_moments_of_halves_are_computed_wide(ops: Any) -> None:
    mean, variance = ops.compute(lambda x: nn.moments(x, [0]), np.full((4000, 1), 30.0, np.float16))
    assert mean.dtype == np.float16
    assert mean.tolist() == [30]
    assert variance.tolist() == [0]


def test_batch_normalization(ops: Any) -> None:
    mean, variance, offset, scale = (np.abs(RNG.normal(size=2)) for _ in range(4))
    plain = (X - mean) / np.sqrt(variance + 0.1)

    def run(*a: Any) -> Any:
        return nn.batch_normalization(*a, 0.1)

    ops.agree(run, plain * scale + offset, X, mean, variance, offset, scale)
    ops.differentiate(run, X, mean, variance, offset, scale, order=1, max_elements=4)
    ops.agree(
        lambda x: nn.batch_normalization(x, mean, tf.constant(variance), None, None, 0.1), plain, X
    )


def test_l2_normalize(ops: Any) -> None:
    ops.agree(lambda x: nn.l2_normalize(x, 1), X / np.linalg.norm(X, axis=1, keepdims=True), X)
    ops.agree(nn.l2_normalize, X / np.linalg.norm(X), X)
    ops.differentiate(lambda x: nn.l2_normalize(x, [0]), X, order=1, max_elements=4)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dropout_keeps_the_sum_by_scaling_what_stays(ops: Any, dtype: Any) -> None:
    x = np.full((100, 100), 2.0, dtype)
    for arguments in ({"rate": 0.25}, {"keep_prob": 0.75}, {"rate": tf.constant(0.25, dtype)}):
        with tf.Graph().as_default():
            rate = {k: 0.25 if hasattr(v, "op") else v for k, v in arguments.items()}
            found = ops.compute(lambda a, r=rate: nn.dropout(a, seed=1, **r), x)
        assert found.dtype == dtype
        share = np.count_nonzero(found) / found.size
        assert 0.7 < share < 0.8
        np.testing.assert_allclose(found[found != 0], 2 / 0.75, rtol=1e-3)


def test_the_gradient_of_dropout_uses_the_same_choice(ops: Any) -> None:
    x = tf.constant(np.ones((50, 50)))
    y = nn.dropout(x, rate=0.5)
    value, grad = ops.evaluate([y, tf.gradients(y, x)[0]])
    np.testing.assert_array_equal(value, grad)


def test_whole_rows_can_be_dropped(ops: Any) -> None:
    x = np.ones((200, 3))
    for shape in ([200, 1], [None, 1], np.array([200, 1]), "tensor"):
        found = ops.compute(
            lambda a, s=shape: nn.dropout(
                a, rate=0.5, noise_shape=tf.constant([200, 1]) if isinstance(s, str) else s
            ),
            x,
        )
        assert (found == found[:, :1]).all()
        assert 0 < np.count_nonzero(found[:, 0]) < 200


def test_a_rate_may_be_a_tensor(ops: Any) -> None:
    found = ops.compute(lambda a, r: nn.dropout(a, rate=r), np.ones(1000, "f"), np.float32(0.5))
    assert 300 < np.count_nonzero(found) < 700
    found = ops.compute(lambda a, r: nn.dropout(a, rate=r), np.ones(10, "f"), np.float32(0))
    assert (found == 1).all()


def test_a_rate_of_zero_is_the_tensor_itself() -> None:
    x = tf.constant(1.0)
    assert nn.dropout(x, rate=0) is x


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "You must provide a rate"),
        ({"rate": 0.5, "keep_prob": 0.5}, "Cannot specify both"),
        ({"rate": 1.0}, r"in the range \[0, 1\), got 1.0"),
        ({"rate": -0.1}, r"in the range \[0, 1\)"),
    ],
)
def test_bad_rates(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        nn.dropout(tf.constant([1.0]), **arguments)


def test_integers_are_not_dropped() -> None:
    with pytest.raises(ValueError, match="floating point tensor"):
        nn.dropout(tf.constant([1]), rate=0.5)


def test_statistics_may_be_wider_than_what_is_normalized(ops: Any) -> None:
    x = np.array([[1.0, 2.0], [3.0, 5.0]], np.float16)
    mean, variance, offset, scale = (np.array(v, np.float32) for v in ([2, 3], [1, 4], [0, 1], [1, 2]))

    def normalized(*inputs: Any) -> Any:
        return tf.nn.batch_normalization(*inputs, 0.0)

    found = ops.compute(normalized, x, mean, variance, offset, scale)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance) * scale + offset, rtol=1e-3)
