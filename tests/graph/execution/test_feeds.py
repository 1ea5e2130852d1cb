"""SE-2: accepted feeds, and the messages about others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncmon import graph as tf
from asyncmon.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio


async def feed(tensor: tf.Tensor, value: Any) -> Any:
    async with tf.Session(graph=tensor.graph) as sess:
        return await sess.run(
            tf.identity(tensor) if not tensor.graph.finalized else tensor, {tensor: value}
        )


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", 1), ("float32", 1.5), ("float32", np.float64(2)), ("float32", True), ("int32", 3),
     ("int32", np.int64(3)), ("uint8", 255), ("bool", True), ("complex64", 1.5),
     ("int64", np.uint8(3)), ("int32", 2.0), ("int32", np.zeros((), np.float32)), ("bool", 1),
     ("bool", 0.0), ("uint8", 255.0), ("float16", 2**12)],
)  # fmt: skip
async def test_values_of_a_fitting_kind_are_cast(dtype: str, value: Any) -> None:
    got = await feed(tf.placeholder(dtype, []), value)
    assert got == value
    assert got.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    ("dtype", "value", "found"),
    [("int32", 1.5, "dtype float64 and values that int32 cannot hold"), ("bool", 2, "cannot hold"),
     ("int32", np.float32(np.nan), "dtype float32"), ("int64", 2.0**63, "cannot hold"),
     ("float32", "a", "dtype <U1"), ("float32", 1j, "dtype complex128"), ("int32", 1j, "complex128"),
     ("uint8", 256, "cannot hold"), ("int32", 2**40, "cannot hold"), ("uint8", -1, "cannot hold"),
     ("int64", np.uint64(2**63), "cannot hold"), ("uint64", -1, "cannot hold"),
     ("string", 3, "not all str or bytes"), ("float32", object(), "dtype object")],
)  # fmt: skip
async def test_a_wrong_dtype_names_tensor_found_and_expected_se_2(
    dtype: str, value: Any, found: str
) -> None:
    """SE-2."""
    p = tf.placeholder(dtype, [], "p")
    with pytest.raises(TypeError, match=rf"{found}.*for Tensor p:0, which has dtype {dtype}"):
        await feed(p, value)


async def test_a_wrong_shape_has_the_original_text_se_2() -> None:
    """SE-2."""
    p = tf.placeholder(tf.float32, [], "P")
    with pytest.raises(
        ValueError, match=r"^Cannot feed value of shape \(2,\) for Tensor P:0, which has shape \(\)$"
    ):
        await feed(p, [1, 2])
    q = tf.placeholder(tf.float32, [None, 3], "Q")
    assert (await feed(q, np.zeros((4, 3)))).shape == (4, 3)
    with pytest.raises(ValueError, match=r"shape \(4, 2\) for Tensor Q:0, which has shape \(\?, 3\)"):
        await feed(q, np.zeros((4, 2)))
    assert (await feed(tf.placeholder(tf.float32), np.zeros((4, 2)))).shape == (4, 2)


async def test_ragged_values_are_refused() -> None:
    with pytest.raises(ValueError, match="Cannot feed"):
        await feed(tf.placeholder(tf.float32, name="p"), [[1], [1, 2]])


async def test_a_placeholder_that_is_not_fed_is_named_se_2() -> None:
    """SE-2."""
    p = tf.placeholder(tf.float32, [None, 2], "P")
    n = tf.Variable(0)
    step = n.assign_add(1)
    async with tf.Session() as sess:
        await sess.run(n.initializer)
        with pytest.raises(
            InvalidArgumentError,
            match="You must feed a value for placeholder tensor 'P' with dtype float32 and shape",
        ):
            await sess.run([step, tf.identity(p)])
        assert await sess.run(n) == 0


@pytest.mark.parametrize("key", ["nothing:0", "p", 3, None])
async def test_an_unknown_key_is_refused_se_2(key: Any) -> None:
    """SE-2."""
    p = tf.placeholder(tf.float32, [], "p")
    async with tf.Session() as sess:
        with pytest.raises(TypeError, match=r"^Cannot interpret feed_dict key as Tensor: "):
            await sess.run(p, {key: 1})


async def test_a_key_of_another_graph_is_refused() -> None:
    with tf.Graph().as_default():
        foreign = tf.placeholder(tf.float32, [])
    async with tf.Session() as sess:
        with pytest.raises(TypeError, match="not an element of this graph"):
            await sess.run(tf.constant(1), {foreign: 1})


async def test_a_tensor_cannot_be_a_value() -> None:
    p = tf.placeholder(tf.float32, [])
    with pytest.raises(TypeError, match="The value of a feed cannot be a tensor"):
        await feed(p, tf.constant(1.0))


async def test_keys_may_be_names_and_a_tensor_fed_twice_is_refused() -> None:
    p = tf.placeholder(tf.float32, [], "p")
    async with tf.Session() as sess:
        assert await sess.run(p * 2, {"p:0": 3}) == 6
        with pytest.raises(InvalidArgumentError, match="fed twice"):
            await sess.run(p, {p: 1, "p:0": 2})


async def test_any_tensor_can_be_fed() -> None:
    c = tf.constant(1.0)
    d = c * 2
    v = tf.Variable(1.0)
    async with tf.Session() as sess:
        assert await sess.run(d + 1, {d: 10}) == 11
        assert await sess.run([c, d], {c: 5}) == [5, 10]
        assert await sess.run(v + 1, {v: 3}) == 4  # and need not be initialised


async def test_keys_may_be_tuples() -> None:
    x, y, z = (tf.placeholder(tf.float32, name=name) for name in "xyz")
    async with tf.Session() as sess:
        for _ in range(2):
            values = await sess.run([x, y, z], {(x, ("y:0", z)): (1, (2, 3))})
            assert values == [1, 2, 3]
        assert (await sess.peek(x + y, {(x,): ([1, 2],), y: 3})).tolist() == [4, 5]
        with pytest.raises(ValueError, match="Key had 2 elements"):
            await sess.run(x, {(x, y): (1, 2, 3)})
        with pytest.raises(ValueError, match="Could not flatten"):
            await sess.run(x, {(x, y): 1})
        with pytest.raises(InvalidArgumentError, match="fed twice"):
            await sess.run(x, {(x, y): (1, 2), x: 3})
        with pytest.raises(TypeError, match="feed_dict must map tensors to values"):
            await sess.run(x, [x])


async def test_strings() -> None:
    p = tf.placeholder(tf.string, [None])
    assert (await feed(p, ["a", b"b"])).tolist() == [b"a", b"b"]
    assert await feed(tf.placeholder(tf.string, []), "word\u00e9") == "word\u00e9".encode()


async def test_placeholder_with_default() -> None:
    p = tf.placeholder_with_default(3.0, [], "p")
    async with tf.Session() as sess:
        assert await sess.run(p + 1) == 4
        assert await sess.run(p + 1, {p: 1}) == 2
    with pytest.raises(ValueError, match="does not fit"):
        tf.placeholder_with_default([1.0, 2.0], [3])


async def test_constants_and_variables_of_branches_and_loops_can_be_fed() -> None:
    p, n, f, v = tf.placeholder(tf.bool, []), tf.constant(5), tf.constant(2.0), tf.Variable(3.0)

    def body(i: Any, a: Any) -> Any:
        return i + 1, tf.cond(p, lambda: a * f + tf.cast(n, tf.float32) + v, lambda: a)

    _, y = tf.while_loop(lambda i, a: i < n, body, [0, 1.0])
    fetches = [y, *tf.gradients(y, [f, v])]
    async with tf.Session() as sess:
        assert await sess.run(fetches, {p: True, v: 1}) == [218, 374, 31]  # need not be initialised
        await sess.run(v.initializer)
        assert await sess.run(fetches, {p: True}) == [280, 472, 31]
        assert await sess.run(fetches, {p: True, n: 2}) == [19, 9, 3]
        assert await sess.run(fetches, {p: True, f: 1}) == [41, 85, 5]
        assert await sess.run(fetches, {p: True, v: 1, f: 3, n: 1}) == [5, 1, 1]


async def test_a_fed_variable_is_still_written_in_a_branch() -> None:
    p, v = tf.placeholder(tf.bool, []), tf.Variable(5.0)
    y = tf.cond(p, lambda: v.assign_add(v), lambda: v)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert await sess.run(y, {p: True, v: 1}) == 6
        assert await sess.run(v) == 6


async def test_what_is_known_of_a_fed_tensor_is_not_relied_upon() -> None:
    p, zeros = tf.placeholder(tf.bool, []), tf.zeros([4, 5])
    shape, size = tf.shape(zeros), tf.size(zeros)
    y = [shape[1:] + 0, shape[0], tf.concat([shape, [1]], 0), tf.cond(p, lambda: shape[1], lambda: 0)]
    async with tf.Session() as sess:
        got = await sess.run(y, {shape: [7, 9], p: True})
        assert [np.array(x).tolist() for x in got] == [[9], 7, [7, 9, 1], 9]
        ones = tf.ones([size])
        grown = tf.create_op("Shape", (tf.exp(ones) * 2.0,))
        got = await sess.run([tf.range(size), grown], {size: 3})
        assert [x.tolist() for x in got] == [[0, 1, 2], [3]]
        end = tf.constant(3.0)
        count = tf.create_op("Size", (tf.range(0.0, end, 1.0),))  # tf.size() is a constant, as in TF1
        assert await sess.run(count + 0, {end: 5}) == 5


async def test_a_fed_constant_may_change_the_sizes_of_what_lies_in_the_arena() -> None:
    x, dims = tf.placeholder(tf.float32, [None]), tf.constant([200, 300])
    v = tf.Variable(tf.zeros([200]), validate_shape=False)
    y = tf.tanh(tf.reshape(x, dims)) * 2.0 + 1.0
    total = tf.reduce_sum(tf.exp(y) * y, 1)
    write = v.assign_add(tf.reduce_sum(y * y, 0), read_value=False)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        assert (await sess.run(total, {x: np.ones(60000)})).shape == (200,)
        got, _ = await sess.run([total, write], {x: np.ones(60000), dims: [300, 200]})
        assert got.shape == (300,)
        assert np.allclose(await sess.run(v), 300 * (2 * np.tanh(1) + 1) ** 2)
