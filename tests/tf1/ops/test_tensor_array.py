"""``tf.TensorArray``: writes, reads, stacks, loops, branches, gradients, and what a run refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError
from asyncmon.testing import check_gradients

pytestmark = pytest.mark.asyncio
ROWS = np.random.default_rng(31).normal(size=(4, 3))


async def run(fetches: Any, feeds: Any = None) -> Any:
    async with tf.Session() as sess:
        return await sess.run(fetches, feeds)


async def test_a_write_returns_a_new_array() -> None:
    first = tf.TensorArray(tf.float32, 2).write(0, [1.0, 2.0])
    both, other = first.write(1, [3.0, 4.0]), first.write(1, [5.0, 6.0])
    assert both.element_shape == (2,)
    assert both.read(0).shape == (2,)
    found = await run([both.stack(), other.stack(), other.read(1), first.size()])
    assert found[0].tolist() == [[1, 2], [3, 4]]
    assert found[1].tolist() == [[1, 2], [5, 6]]
    assert found[2].tolist() == [5, 6]
    assert found[3] == 2


async def test_elements_are_strings_or_have_several_shapes() -> None:
    texts = tf.TensorArray(tf.string, 2).unstack(["a", "b"])
    mixed = tf.TensorArray(tf.int32, 0, dynamic_size=True, infer_shape=False).write(0, 1).write(1, [2])
    zeros = tf.TensorArray(tf.float32, 3, element_shape=[2]).write(1, [1.0, 2.0])
    empty = tf.TensorArray(tf.float32, 0, element_shape=[None, 2])
    found = await run([texts.stack(), texts.read(1), mixed.read(1), mixed.size(), zeros.stack()])
    assert found[0].tolist() == [b"a", b"b"]
    assert found[1] == b"b"
    assert found[2].tolist() == [2]
    assert found[3] == 2
    assert found[4].tolist() == [[0, 0], [1, 2], [0, 0]]
    assert (await run(empty.stack())).shape == (0, 0, 2)


async def test_a_loop_and_a_branch_return_arrays() -> None:
    count, negative = tf.placeholder(tf.int32, []), tf.placeholder(tf.bool, [])
    made = tf.TensorArray(tf.int32, 0, dynamic_size=True)
    _, made = tf.while_loop(
        lambda i, _: i < count,
        lambda i, made: (i + 1, made.write(i, [i, i * i])),
        [0, made],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape(None)],
    )
    assert isinstance(made, tf.TensorArray)
    assert made.stack().shape.as_list() == [None, 2]
    ended = tf.cond(negative, lambda: made.write(count, [-1, -1]), lambda: made.write(count, [9, 9]))
    async with tf.Session() as sess:
        for n in (3, 2):
            found = await sess.run(ended.stack(), {count: n, negative: n == 2})
            end = [-1, -1] if n == 2 else [9, 9]
            assert found.tolist() == [*([i, i * i] for i in range(n)), end]


def _nested(x: Any, w: Any) -> Any:
    given = tf.TensorArray(x.dtype, 4).unstack(x)

    def outer(i: Any, sums: Any, made: Any) -> Any:
        def inner(j: Any, h: Any, seen: Any) -> Any:
            h = tf.tanh(h * w + given.read(j))
            return j + 1, h, seen.write(j, h * given.read(i))

        start = tf.TensorArray(x.dtype, 4)
        _, h, seen = tf.while_loop(lambda j, *_: j < 4, inner, (0, sums, start))
        return i + 1, h, made.write(i, tf.reduce_sum(seen.stack(), 0))

    first = tf.TensorArray(x.dtype, 2)
    return tf.while_loop(lambda i, *_: i < 2, outer, (0, x[0], first))[2].stack()


def _branched(x: Any, w: Any) -> Any:
    given = tf.TensorArray(x.dtype, 5).unstack(x)
    more = tf.cond(tf.reduce_sum(w) < 1e3, lambda: given.write(4, x[1] * w), lambda: given.write(4, w))
    return more.gather([4, 0, 4])


@pytest.mark.parametrize("function", [_nested, _branched])
async def test_gradients_pass_through_loops_and_branches(function: Any) -> None:
    await check_gradients(function, [ROWS, ROWS[1]], order=2)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda a: a.write(2, 1.0), "Tried to write to index 2 .* size is: 2"),
        (lambda a: a.unstack([1.0, 2.0, 3.0]), "Tried to write to index 2"),
        (lambda a: a.write(-1, 1.0), "Tried to write to index -1"),
        (lambda a: a.write(0, 1.0).write(0, 1.0), "index 0 has already been written to"),
    ],
)
async def test_a_write_that_does_not_fit_is_refused(make: Any, match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        await run(make(tf.TensorArray(tf.float32, 2)).size())


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda a: a.read(1), "index 1: it was not written"),
        (lambda a: a.read(2), "index 2: the array size is 2"),
        (lambda a: a.write(1, [1.0, 2.0]).stack(), r"inconsistent shapes: \[\(\), \(2,\)\]"),
    ],
)
async def test_a_read_of_nothing_is_refused(make: Any, match: str) -> None:
    array = tf.TensorArray(tf.float32, 2, infer_shape=False).write(0, 1.0)
    with pytest.raises(InvalidArgumentError, match=match):
        await run(make(array))


async def test_arguments_that_do_not_fit_are_refused() -> None:
    array = tf.TensorArray(tf.float32, 2).write(0, [1.0])
    with pytest.raises(ValueError, match="Give size= or flow="):
        tf.TensorArray(tf.float32)
    with pytest.raises(ValueError, match="no handle"):
        tf.TensorArray(tf.float32, 2, handle=array.flow)
    with pytest.raises(TypeError, match="elements of float32"):
        array.write(1, tf.constant(1))
    with pytest.raises(ValueError, match=r"not compatible|incompatible"):
        array.write(1, [1.0, 2.0])
