"""Initial values: their values, their spread, their refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.graph.variables import initializers as init


def test_zeros_and_ones(ops: Any) -> None:
    assert ops.evaluate(tf.zeros_initializer()([2, 1])).tolist() == [[0], [0]]
    assert ops.evaluate(tf.ones_initializer()([2], dtype=tf.int32)).tolist() == [1, 1]
    assert tf.zeros_initializer(tf.float64)([1]).dtype is tf.float64


def test_constants_fill_the_shape(ops: Any) -> None:
    assert ops.evaluate(tf.constant_initializer(3)([2, 2])).tolist() == [[3, 3], [3, 3]]
    assert ops.evaluate(tf.constant_initializer([1, 2])([2, 2])).tolist() == [[1, 2], [2, 2]]
    assert tf.constant_initializer(3, dtype=tf.int32)([1]).dtype is tf.int32
    exact = tf.constant_initializer([1, 2], verify_shape=True)
    assert exact([2]).shape == (2,)
    with pytest.raises(TypeError, match=r"Expected Tensor's shape: \(2, 2\), got \(2,\)"):
        exact([2, 2])
    with pytest.raises(ValueError, match="Needed at most 2, got 3"):
        tf.constant_initializer([1, 2, 3])([2])
    with pytest.raises(TypeError, match="Invalid type for initial value"):
        tf.constant_initializer(object())


SPREADS: list[tuple[Any, float, float | None]] = [
    (tf.random_normal_initializer(0.0, 0.3), 0.3, None),
    (tf.random_uniform_initializer(-0.6, 0.6), 0.6 / np.sqrt(3), 0.6),
    (tf.truncated_normal_initializer(0.0, 0.3), 0.3 * 0.8796, 0.6),
    (tf.glorot_uniform_initializer(), np.sqrt(2 / 500), np.sqrt(6 / 500)),
    (tf.glorot_normal_initializer(), np.sqrt(2 / 500), None),
    (init.he_normal(), np.sqrt(2 / 200), None),
    (init.he_uniform(), np.sqrt(2 / 200), np.sqrt(6 / 200)),
    (init.lecun_normal(), np.sqrt(1 / 200), None),
    (init.lecun_uniform(), np.sqrt(1 / 200), np.sqrt(3 / 200)),
    (tf.variance_scaling_initializer(3.0, "fan_out"), np.sqrt(3 / 300), None),
    (tf.variance_scaling_initializer(1.0, "fan_avg", "untruncated_normal"), np.sqrt(1 / 250), None),
    (tf.variance_scaling_initializer(distribution="Normal"), np.sqrt(1 / 200), None),
]


@pytest.mark.parametrize(("make", "deviation", "limit"), SPREADS)
def test_spreads(ops: Any, make: Any, deviation: float, limit: float | None) -> None:
    values = ops.evaluate(make([200, 300], dtype=tf.float64))
    assert abs(values.mean()) < 0.05 * deviation + 1e-3
    assert abs(values.std() / deviation - 1) < 0.03
    if limit is not None:
        assert np.abs(values).max() <= limit


def test_a_kernels_receptive_field_counts(ops: Any) -> None:
    values = ops.evaluate(init.he_uniform()([3, 3, 20, 40]))
    assert np.abs(values).max() <= np.sqrt(6 / 180)
    for shape in ([], [5]):
        assert ops.evaluate(init.he_normal()(shape)).shape == tuple(shape)


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (2, 3, 5)])
def test_orthogonal(ops: Any, shape: Any) -> None:
    values = ops.evaluate(init.orthogonal_initializer(2.0)(shape, dtype=tf.float64)).reshape(
        -1, shape[-1]
    )
    product = values.T @ values if len(values) >= shape[-1] else values @ values.T
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-12)


def test_identity(ops: Any) -> None:
    assert ops.evaluate(init.identity_initializer()([2, 2])).tolist() == [[1, 0], [0, 1]]
    assert ops.evaluate(init.identity_initializer(3.0)([1, 2])).tolist() == [[3, 0]]


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: tf.variance_scaling_initializer(scale=0.0), "`scale` must be a positive float"),
        (lambda: tf.variance_scaling_initializer(mode="fan"), "`mode` should be one of"),
        (lambda: tf.variance_scaling_initializer(distribution="x"), "`distribution` should be one of"),
        (lambda: tf.random_normal_initializer(dtype=tf.int32), "expected to be a floating type"),
        (lambda: init.orthogonal_initializer()([3]), "at least two-dimensional"),
        (lambda: init.identity_initializer()([3]), "must be two-dimensional"),
        (lambda: init.he_normal()([None, 3]), "needs a fully known shape"),
    ],
)
def test_bad_arguments(build: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        build()


def test_seeds_make_variables_repeat(ops: Any) -> None:
    a = tf.get_variable("a", [4], initializer=tf.random_normal_initializer(seed=1))
    b = tf.get_variable("b", [4], initializer=tf.random_normal_initializer(seed=1))
    first, second = ops.evaluate([a, b])
    np.testing.assert_array_equal(first, second)


def test_initializers_go_by_their_short_names_too() -> None:
    assert tf.initializers.zeros is tf.zeros_initializer
    assert tf.initializers.glorot_uniform is tf.glorot_uniform_initializer
    assert tf.initializers.constant is tf.constant_initializer


def test_a_constant_for_a_shape_of_no_elements(ops: Any) -> None:
    for value in (2.0, [2.0, 3.0], []):
        for shape in ([0], [0, 3], [2, 0]):
            assert ops.evaluate(tf.constant_initializer(value)(shape)).shape == tuple(shape)
    assert ops.evaluate(tf.constant_initializer(2.0, verify_shape=True)([0])).shape == (0,)
    assert ops.evaluate(tf.constant_initializer([])([2])).tolist() == [0, 0]
    variable = tf.get_variable("v", [0, 3], initializer=tf.constant_initializer(2.0))
    assert ops.evaluate(variable).shape == (0, 3)
