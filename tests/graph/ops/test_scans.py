"""Running sums and products, and the places of extremes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.random.default_rng(2).uniform(0.5, 2.0, (2, 3, 2))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(ops: Any, axis: int, exclusive: bool, reverse: bool) -> None:
    for function, reference, neutral in ((tf.cumsum, np.cumsum, 0), (tf.cumprod, np.cumprod, 1)):
        x = np.flip(X, axis) if reverse else X
        expected = reference(x, axis)
        if exclusive:
            expected = np.roll(expected, 1, axis)
            np.moveaxis(expected, axis, 0)[0] = neutral
        expected = np.flip(expected, axis) if reverse else expected

        def run(a: Any, f: Any = function) -> Any:
            return f(a, axis, exclusive, reverse)

        ops.agree(run, expected, X)
        ops.differentiate(run, X, order=2 if function is tf.cumsum else 1)


def test_of_nothing(ops: Any) -> None:
    assert ops.compute(lambda x: tf.cumsum(x, exclusive=True), np.zeros((0, 2))).shape == (0, 2)


def test_integers_keep_their_dtype(ops: Any) -> None:
    assert ops.compute(tf.cumsum, np.array([1, 2], np.int32)).dtype == np.int32


def test_an_axis_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Invalid axis 2: expected a value in \[-1, 1\)"):
        tf.cumsum(tf.constant([1.0]), 2)


@pytest.mark.parametrize(("function", "reference"), [(tf.argmax, np.argmax), (tf.argmin, np.argmin)])
@pytest.mark.parametrize("axis", [0, 2, -2])
def test_places_of_extremes(ops: Any, function: Any, reference: Any, axis: int) -> None:
    ops.agree(lambda x: function(x, axis), reference(X, axis), X)
    found = ops.compute(lambda x: function(x, axis, output_type=tf.int32), X)
    assert found.dtype == np.int32


def test_of_equal_elements_the_first_is_meant(ops: Any) -> None:
    assert ops.compute(tf.argmax, np.array([1, 3, 3])) == 1


def test_the_axis_is_0_by_default_and_has_an_old_name(ops: Any) -> None:
    ops.agree(tf.argmax, np.argmax(X, 0), X)
    ops.agree(lambda x: tf.argmax(x, dimension=1), np.argmax(X, 1), X)


def test_bad_arguments_of_argmax() -> None:
    x = tf.constant([1.0, 2.0])
    with pytest.raises(ValueError, match=r"Dimension \(1\) must be in the range \[-1, 1\)"):
        tf.argmax(x, 1)
    with pytest.raises(TypeError, match="'output_type'"):
        tf.argmax(x, output_type=tf.float32)
    assert tf.gradients(tf.argmax(x), x) == [None]


@pytest.mark.parametrize("function", [tf.argmax, tf.argmin])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_number_has_no_greatest_element(ops: Any, function: Any, axis: int) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=r"in the range \[0, 0\), but got"):
        ops.compute(lambda x: function(x, axis), np.array(1.0), known="nothing")
