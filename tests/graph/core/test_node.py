"""Tensors: operators, indexing, static shapes."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon import graph as tf

X = np.arange(24, dtype=np.int64).reshape(2, 3, 4)


async def value(tensor: Any, **feeds: Any) -> Any:
    async with tf.Session(graph=tensor.graph) as sess:
        return await sess.run(tensor, {f"{name}:0": x for name, x in feeds.items()})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "apply",
    [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow,
     operator.truediv, operator.lt, operator.le, operator.gt, operator.ge],
)  # fmt: skip
async def test_arithmetic_operators(apply: Any) -> None:
    a = np.array([1.0, 2.0, 3.0], np.float32)
    expected = apply(a, np.float32(2))
    assert np.array_equal(await value(apply(tf.constant(a), 2)), expected)
    assert np.array_equal(await value(apply(2, tf.constant(a))), apply(np.float32(2), a))
    assert np.array_equal(await value(apply(a, tf.constant(a))), apply(a, a))


@pytest.mark.asyncio
async def test_other_operators() -> None:
    a, t = np.array([[1.0, -2.0]], np.float32), np.array([True, False])
    assert np.array_equal(await value(-tf.constant(a)), -a)
    assert np.array_equal(await value(abs(tf.constant(a))), abs(a))
    assert np.array_equal(await value(~tf.constant(t)), ~t)
    assert np.array_equal(await value(tf.constant(t) & True), t)
    assert np.array_equal(await value(True | tf.constant(t)), t | True)
    assert np.array_equal(await value(tf.constant(t) ^ t), t ^ t)
    assert np.array_equal(await value(tf.constant(a) @ a.T), a @ a.T)
    assert np.array_equal(await value(a.T @ tf.constant(a)), a.T @ a)


def test_operator_ops_have_the_original_names() -> None:
    c = tf.constant(1.0)
    assert [(c + c).op.name, (c * c).op.name, (c[None]).op.name] == ["add", "mul", "strided_slice"]


def test_a_tensor_is_not_a_bool_nor_iterable_nor_sized() -> None:
    c = tf.constant([1])
    with pytest.raises(TypeError, match="as a Python bool is not allowed"):
        bool(c)
    with pytest.raises(TypeError, match="not iterable"):
        iter(c)
    with pytest.raises(TypeError, match="len is not well defined"):
        len(c)


def test_equality_is_identity() -> None:
    a, b = tf.constant(1), tf.constant(1)
    assert a == a  # the comparison under test
    assert a != b
    assert len({a, b, a}) == 2


def test_a_python_number_takes_the_other_dtype() -> None:
    assert (tf.constant(1.0, tf.float64) + 1).dtype is tf.float64
    with pytest.raises(TypeError, match=r"Expected int32, got 1\.5"):
        tf.constant(1) + 1.5
    with pytest.raises((TypeError, ValueError), match="float"):
        tf.constant(1.0) + tf.constant(1)


INDICES = [0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(0, 1), None, ...]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "index", [0, (0, 1), (slice(None), 1), (..., 2), (None, 1), (0, slice(1, 3), 2), (-1, ..., None)]
)
async def test_indexing_is_that_of_numpy(index: Any) -> None:
    result = tf.constant(X)[index]
    assert np.array_equal(await value(result), X[index])
    assert result.shape == X[index].shape


@given(st.lists(st.sampled_from(INDICES), min_size=1, max_size=5))
def test_the_static_shape_of_an_index_is_that_of_numpy(index: list[Any]) -> None:
    if sum(entry is Ellipsis for entry in index) > 1:
        return
    if sum(entry is not None and entry is not Ellipsis for entry in index) > 3:
        return
    with tf.Graph().as_default():
        assert tf.placeholder(tf.int64, X.shape)[tuple(index)].shape == X[tuple(index)].shape


@pytest.mark.asyncio
async def test_indexing_by_tensors() -> None:
    i = tf.placeholder(tf.int32, [], "i")
    x = tf.constant(X)
    assert np.array_equal(await value(x[0, i], i=2), X[0, 2])
    assert np.array_equal(await value(x[:, i:], i=1), X[:, 1:])
    assert x[:, i:].shape == (2, None, 4)


def test_the_shape_of_a_slice_between_constants_is_known() -> None:
    one, two = tf.constant(1), tf.constant(2)
    assert tf.constant(X)[:, one:two, ::two].shape == (2, 1, 2)
    assert tf.zeros(tf.shape(tf.constant(X))[one:]).shape == (3, 4)
    assert tf.zeros([tf.shape(tf.constant(X))[one]]).shape == (3,)


def test_wrong_indices() -> None:
    x = tf.constant(X)
    for wrong, error in (
        (1.5, TypeError),
        ("a", TypeError),
        (tf.constant([1]), TypeError),
    ):
        with pytest.raises(error):
            x[wrong]
    with pytest.raises(ValueError, match="out of bounds"):
        x[2]
    for out in (lambda i: x[i], lambda i: x[0, i], lambda i: x[..., i], lambda i: x[:, 1:i, i]):
        with pytest.raises(ValueError, match="out of bounds"):
            out(tf.constant(9))
    with pytest.raises(ValueError, match="step cannot be zero"):
        x[:: tf.constant(0)]
    with pytest.raises(ValueError, match="one ellipsis"):
        x[..., ...]
    with pytest.raises(ValueError, match="takes 4 dimensions"):
        x[0, 0, 0, 0]


@pytest.mark.asyncio
async def test_the_gradient_of_an_index() -> None:
    x = tf.constant(X.astype(np.float64))
    (grad,) = tf.gradients(x[0, 1:, ::2] * 3.0, [x])
    expected = np.zeros(X.shape)
    expected[0, 1:, ::2] = 3
    assert np.array_equal(await value(grad), expected)
    (again,) = tf.gradients(tf.gradients(tf.square(x[0]), [x])[0], [x])
    assert np.array_equal((await value(again))[0], np.full((3, 4), 2.0))


def test_a_packed_shape_keeps_what_is_known() -> None:
    x = tf.placeholder(tf.float32, [None, 28, 28])
    assert tf.reshape(x, [tf.shape(x)[0], 784]).shape == (None, 784)


def test_set_shape() -> None:
    p = tf.placeholder(tf.float32)
    p.set_shape([None, 3])
    p.set_shape([2, None])
    assert p.shape == (2, 3)
    assert p.get_shape().as_list() == [2, 3]
    with pytest.raises(ValueError, match="cannot be set"):
        p.set_shape([5, 3])


def test_operations() -> None:
    c = tf.constant(1, name="c")
    assert (c.op.type, c.op.inputs, c.op.values()) == ("Const", (), (c,))
    assert c.op.op is c.op
    assert c.op.get_attr("dtype") is tf.int32
    assert tf.identity(c).op.get_attr("T") is tf.int32
    with pytest.raises(ValueError, match="has no attr named 'nonsense'"):
        c.op.get_attr("nonsense")


def test_a_tensor_lists_its_consumers() -> None:
    x = tf.placeholder(tf.float32, [2])
    y, z = x + 1.0, x * x
    assert x.consumers() == [y.op, z.op]
    assert z.consumers() == []


def test_a_mask_picks_what_is_true(ops: Any) -> None:
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    known = ("all", "rank")
    ops.agree(lambda x: x[x > 1.5], x[x > 1.5], x, known=known)
    ops.agree(lambda x, m: x[m], x[[False, True]], x, np.array([False, True]), known=known)
    ops.agree(lambda x: x[np.array([True, False])], x[:1], x)
    with pytest.raises(ValueError, match="mask"):
        tf.constant([1, 2])[True]


def test_a_tensor_is_no_array() -> None:
    for value in (tf.constant([1.0]), tf.Variable(1.0)):
        with pytest.raises(TypeError, match="to a numpy array"):
            np.array(value)
