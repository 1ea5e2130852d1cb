"""Joining and splitting: concat, stack, unstack, split."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

X = np.arange(12.0).reshape(2, 6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_concat(ops: Any, axis: int, count: int) -> None:
    parts = [np.delete(X, range(i), axis) for i in range(min(count, 2))] + [X] * (count - 2)

    def run(*v: Any) -> Any:
        return tf.concat(list(v), axis)

    ops.agree(run, np.concatenate(parts, axis), *parts)
    ops.differentiate(run, *parts, max_elements=3)


def test_concat_takes_arrays_and_single_tensors(ops: Any) -> None:
    x = tf.constant(X, tf.float32)
    assert tf.concat([x, np.ones((1, 6))], 0).dtype is tf.float32
    np.testing.assert_array_equal(ops.evaluate(tf.concat(x, 0)), X)
    assert tf.concat([tf.placeholder(tf.float32, [None, 6]), x], 0).shape.as_list() == [None, 6]
    assert tf.concat([tf.placeholder(tf.float32), x], 0).shape.as_list() == [None, 6]
    assert tf.concat([tf.placeholder(tf.float32)], 0).shape.ndims is None


def test_concat_refuses_what_does_not_fit() -> None:
    x = tf.constant(X)
    with pytest.raises(ValueError, match="Dimensions must be equal, but are 6 and 5"):
        tf.concat([x, x[:, 1:]], 0)
    with pytest.raises(ValueError, match="Shapes must be equal rank, but are 2 and 1"):
        tf.concat([x, x[0]], 0)
    with pytest.raises(ValueError, match="Shapes must be equal rank, but are 2 and 1"):
        tf.concat([x, x[0]], 1)
    with pytest.raises(TypeError, match="don't all match"):
        tf.concat([x, tf.constant([[1]])], 0)
    with pytest.raises(ValueError, match="rank 1 or higher"):
        tf.concat([x[0, 0], x[0, 0]], 0)
    with pytest.raises(ValueError, match="at least one tensor"):
        tf.concat([], 0)
    with pytest.raises(ValueError, match="Invalid axis 2"):
        tf.concat([x, x], 2)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stack_and_unstack(ops: Any, axis: int) -> None:
    parts = [X, X + 1, X * 2]
    stacked = np.stack(parts, axis)
    ops.agree(lambda *v: tf.stack(list(v), axis), stacked, *parts)
    ops.differentiate(lambda *v: tf.stack(list(v), axis), *parts, max_elements=2)
    ops.agree(lambda v: tf.unstack(v, 3, axis), parts, stacked)
    ops.differentiate(lambda v: tf.unstack(v, 3, axis)[1:], stacked, max_elements=3)


def test_stacked_scalars(ops: Any) -> None:
    ops.agree(
        lambda a, b: tf.stack([a, b, 3.0]), np.array([1.0, 2.0, 3.0]), np.array(1.0), np.array(2.0)
    )


def test_stacked_numbers_have_a_dtype_that_holds_them_all(ops: Any) -> None:
    for values, dtype in (
        ([1, 2.5], tf.float32),
        ([[1, 2], [3.5, 4]], tf.float32),
        ([1, 2**40], tf.int64),
        ([np.float32(1), 2], tf.float32),
        ([1, 2], tf.int32),
        ([b"a", b"b"], tf.string),
    ):
        stacked = tf.stack(values)
        assert stacked.dtype is dtype
        assert ops.evaluate(stacked).tolist() == values
    with pytest.raises(TypeError, match="don't all match"):
        tf.stack([np.ones(3), np.ones(3, np.int32)])
    with pytest.raises(ValueError, match="must be equal, but are 2 and 1"):
        tf.stack([[1, 2], [3]])


def test_stacked_strings(ops: Any) -> None:
    a, b = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [])
    found = ops.evaluate(tf.stack([a, b]), {a: "a", b: "b"}).tolist()
    assert found == [b"a", b"b"]
    assert all(isinstance(value, bytes) for value in found)  # and no arrays of one string


def test_stack_and_unstack_refuse_what_does_not_fit(ops: Any) -> None:
    x = tf.constant(X)
    with pytest.raises(ValueError, match="must be equal"):
        tf.stack([x, x[:1]])
    with pytest.raises(ValueError, match=r"stack\(\) needs a list of at least one tensor"):
        tf.stack([], axis=1)
    with pytest.raises(ValueError, match=r"concat\(\) needs a list of at least one tensor"):
        tf.concat([], 0)
    with pytest.raises(ValueError, match=r"einsum\(\) needs a list of at least one tensor"):
        tf.einsum("ij->ji")
    with pytest.raises(TypeError, match="don't all match"):
        tf.stack([x, tf.constant([[1]])])
    with pytest.raises(ValueError, match=r"Cannot infer argument `num` from shape \(\?, 6\)"):
        tf.unstack(tf.placeholder(tf.float32, [None, 6]))
    with pytest.raises(ValueError, match="must be equal, but are 2 and 3"):
        tf.unstack(x, num=3)
    with pytest.raises(errors.InvalidArgumentError, match="must be equal, but are 2 and 3"):
        ops.compute(lambda a: tf.unstack(a, num=3), X, known="rank")


@pytest.mark.parametrize("how", [1, 3, [2, 4], [1, -1, 2], [6]])
def test_split(ops: Any, how: Any) -> None:
    if isinstance(how, int):
        expected = np.split(X, how, 1)
    else:
        sizes = [6 - sum(how) - 1 if s == -1 else s for s in how]
        expected = np.split(X, np.cumsum(sizes)[:-1], 1)
    ops.agree(lambda v: tf.split(v, how, axis=1), expected, X)
    ops.differentiate(lambda v: tf.split(v, how, axis=-1)[-1], X, max_elements=3, known=False)


def test_split_by_sizes_known_only_in_the_run(ops: Any) -> None:
    sizes = np.array([2, 4], np.int32)
    ops.agree(lambda v, s: tf.split(v, s, 1, num=2), np.split(X, [2], 1), X, sizes)
    ops.agree(lambda v, s: tf.split(v, [s[0], 4], 1), np.split(X, [2], 1), X, sizes)
    with pytest.raises(errors.InvalidArgumentError, match="must add up to the size 6"):
        ops.compute(lambda v, s: tf.split(v, s, 1, num=2), X, sizes + 1)
    with pytest.raises(errors.InvalidArgumentError, match="evenly divisible by 4"):
        ops.compute(lambda v: tf.split(v, 4, 1), X, known="rank")


def test_split_refuses_what_does_not_fit() -> None:
    x = tf.constant(X)
    for how, text in (
        (4, "evenly divisible by 4 but is 6"),
        ([2, 2], "must add up to the size 6"),
        ([7, -1], "must add up to the size 6"),
        (0, "must be positive"),
    ):
        with pytest.raises(ValueError, match=text):
            tf.split(x, how, 1)
    with pytest.raises(ValueError, match="Cannot infer argument `num`"):
        tf.split(x, tf.placeholder(tf.int32, [None]), 1)
    assert len(tf.split(x, tf.constant(2), 1)) == 2


def test_one_size_of_a_split_may_be_left_out() -> None:
    with pytest.raises(ValueError, match="can only have one -1"):
        tf.split(tf.zeros([6]), [-1, -1])


@pytest.mark.parametrize("axis", [1, -2])
def test_numbers_are_stacked_along_one_axis_only(ops: Any, axis: int) -> None:
    with pytest.raises(
        errors.InvalidArgumentError, match=rf"Invalid axis {axis}: expected a value in \[-1, 1\)"
    ):
        ops.compute(lambda x: tf.stack([x, x], axis), np.array(1.0), known="nothing")


def test_a_single_value_is_its_own_concatenation(ops: Any) -> None:
    assert ops.evaluate([tf.concat([3.0], 0), tf.concat(5, 0), tf.stack(5)]) == [3, 5, 5]
    assert ops.evaluate(tf.stack([])).shape == (0,)


def test_split_sizes_may_be_a_list_of_tensors(ops: Any) -> None:
    def cut(x: Any, n: Any) -> Any:
        return tf.split(x, [n, 6 - n])

    ops.agree(cut, [np.arange(2.0), np.arange(2.0, 6.0)], np.arange(6.0), np.int32(2))
