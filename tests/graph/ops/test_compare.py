"""Comparison, logic and choice."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
Y = np.array([2.0, 2.0, 2.0])


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (tf.less, np.less),
        (tf.less_equal, np.less_equal),
        (tf.greater, np.greater),
        (tf.greater_equal, np.greater_equal),
        (tf.equal, np.equal),
        (tf.not_equal, np.not_equal),
    ],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64])
def test_comparisons_broadcast_and_give_bool(
    ops: Any, function: Any, reference: Any, dtype: Any
) -> None:
    ops.agree(function, reference(X, Y), X.astype(dtype), Y.astype(dtype))


def test_strings_and_bools_are_compared(ops: Any) -> None:
    words = tf.constant(["a", "b"])
    assert ops.evaluate(tf.equal(words, "a")).tolist() == [True, False]
    assert ops.evaluate(tf.not_equal(words, words)).dtype == bool
    assert ops.evaluate(tf.equal(tf.constant([True, False]), True)).tolist() == [True, False]


def test_comparing_different_dtypes_is_refused() -> None:
    with pytest.raises(TypeError, match="Input 'y' of 'Less' Op has type int32"):
        tf.less(tf.constant(1.0), tf.constant(1))


@pytest.mark.parametrize(
    ("function", "reference"),
    [
        (tf.logical_and, np.logical_and),
        (tf.logical_or, np.logical_or),
        (tf.logical_xor, np.logical_xor),
    ],
)
def test_logic_broadcasts(ops: Any, function: Any, reference: Any) -> None:
    x, y = np.array([[True], [False]]), np.array([True, False])
    ops.agree(function, reference(x, y), x, y)
    with pytest.raises(TypeError, match="not in list of allowed values: bool"):
        function(tf.constant([1.0]), tf.constant([1.0]))


def test_not(ops: Any) -> None:
    ops.agree(tf.logical_not, np.array([False, True]), np.array([True, False]))


@pytest.mark.parametrize(
    ("function", "reference"),
    [(tf.is_nan, np.isnan), (tf.is_inf, np.isinf), (tf.is_finite, np.isfinite)],
)
def test_kinds_of_numbers(ops: Any, function: Any, reference: Any) -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
    ops.agree(function, reference(x), x)


def test_where_chooses(ops: Any) -> None:
    condition = np.array([[True, False, True], [False, False, True]])
    ops.agree(tf.where, np.where(condition, X, -X), condition, X, -X)
    ops.differentiate(tf.where, condition, X, X * 2)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 3, 2), (2, 2), (2, 0)])
def test_a_vector_chooses_rows_and_a_scalar_everything(ops: Any, shape: tuple[int, ...]) -> None:
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    for test in (True, False):
        ops.agree(tf.where, x if test else -x, np.array(test), x, -x)
    if shape:
        rows = np.array([True, False])
        ops.agree(tf.where, np.stack([x[0], -x[1]]), rows, x, -x)
        ops.differentiate(tf.where, rows, x, -x)
        for known in ("all", "rank", "nothing"):
            by_x, by_y = ops.gradients(tf.where, rows, x, -x, known=known)
            np.testing.assert_array_equal(by_x, np.stack([np.ones(shape[1:]), np.zeros(shape[1:])]))
            np.testing.assert_array_equal(by_y, np.stack([np.zeros(shape[1:]), np.ones(shape[1:])]))


@pytest.mark.parametrize(
    ("condition", "x", "y"),
    [
        ((2, 3), (2, 3), (1, 3)),
        ((2, 3), (2, 3), ()),
        ((2, 3), (1, 3), (2, 3)),
        ((2, 1), (2, 3), (2, 3)),
        ((3,), (2, 3), (2, 3)),
        ((1,), (2, 3), (2, 3)),
        ((2, 3), (2,), (2,)),
        ((1,), (3,), (3,)),
        ((1,), (), ()),
        ((), (2, 3), (3,)),
        ((), (), (1,)),
        ((3,), (3,), (1,)),
    ],
)
def test_where_broadcasts_nothing_else(ops: Any, condition: Any, x: Any, y: Any) -> None:
    arrays = np.ones(condition, bool), np.ones(x), np.ones(y)
    with pytest.raises(ValueError, match=r"must be equal, but are|must be equal rank"):
        ops.compute(tf.where, *arrays)
    with pytest.raises(errors.InvalidArgumentError, match=r"must be equal, but are|must be equal rank"):
        ops.compute(tf.where, *arrays, known="nothing")


@pytest.mark.parametrize("test", [(), (2,), (2, 3)])
def test_a_gradient_of_another_shape_than_what_was_chosen_is_refused(ops: Any, test: Any) -> None:
    def run(c: Any, x: Any, grad: Any) -> Any:
        return tf.gradients(tf.where(c, x, x * x), x, grad_ys=[grad])[0]

    for shape in ((), (3,), (1, 3), (2, 1)):
        with pytest.raises(errors.InvalidArgumentError, match="must be equal"):
            ops.compute(run, np.ones(test, bool), np.ones((2, 3)), np.ones(shape), known="nothing")


@pytest.mark.parametrize(
    ("condition", "x", "y", "expected"),
    [
        ([2, 0], None, [2, 0], [2, 0]),
        ([2, 0], [2, 0], None, [2, 0]),
        ([2, 3], None, None, None),
        (None, [None, 3], [2, None], [2, 3]),
        ([2, None], [None, 3], [None, None], [2, 3]),
        ([2], None, [2, 3], [2, 3]),
        ([5], [None, None], None, [5, None]),
        ([], [None, 3], None, [None, 3]),
    ],
)
def test_what_is_known_of_a_choice(condition: Any, x: Any, y: Any, expected: Any) -> None:
    values = [tf.placeholder(tf.float32, shape) for shape in (x, y)]
    shape = tf.where(tf.placeholder(tf.bool, condition), *values).shape
    assert (None if shape.ndims is None else shape.as_list()) == expected


def test_where_alone_gives_positions(ops: Any) -> None:
    condition = np.array([[True, False], [True, True]])
    found = ops.compute(tf.where, condition)
    np.testing.assert_array_equal(found, [[0, 0], [1, 0], [1, 1]])
    assert tf.where(tf.constant(condition)).shape.as_list() == [None, 2]


def test_where_checks_its_arguments() -> None:
    condition = tf.constant([True])
    with pytest.raises(ValueError, match="x and y must both be non-None or both be None"):
        tf.where(condition, x=tf.constant([1.0]))
    with pytest.raises(TypeError, match="'e' of 'Select' Op has type int32"):
        tf.where(condition, tf.constant([1.0]), tf.constant([1]))
    with pytest.raises(TypeError, match="'condition'"):
        tf.where(tf.constant([1.0]), tf.constant([1.0]), tf.constant([1.0]))


def test_the_part_that_was_not_chosen_gets_no_gradient_even_if_it_is_not_a_number(ops: Any) -> None:
    x = np.array([-1.0, 4.0])
    (grad,) = ops.gradients(lambda a: tf.where(a > 0, a, tf.zeros_like(a)), x)
    np.testing.assert_array_equal(grad, [0, 1])


def test_shapes_that_turn_out_not_to_fit_fail_in_the_run(ops: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        ops.compute(tf.less, np.ones(2), np.ones(3), known="rank")
