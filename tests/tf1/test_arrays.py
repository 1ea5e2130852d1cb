"""Sorting, gathering, blocks of pixels, and what is in ``tf.math`` only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import asyncmon.tf1 as tf
from asyncmon.testing.gradients import check_gradients

pytestmark = pytest.mark.asyncio

A = np.random.default_rng(0).normal(size=(3, 4))


async def value(fetches: Any) -> Any:
    async with tf.Session() as sess:
        return await sess.run(fetches)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1"])
@pytest.mark.parametrize("axis", [-1, 0, 1])
async def test_sort_and_argsort(dtype: str, axis: int) -> None:
    array = np.random.default_rng(1).integers(0, 9, (4, 5)).astype(dtype)
    tf.reset_default_graph()
    up, down = tf.sort(array, axis), tf.sort(array, axis, "DESCENDING")
    first, last = tf.argsort(array, axis), tf.argsort(array, axis, "DESCENDING")
    up, down, first, last = await value([up, down, first, last])
    np.testing.assert_array_equal(up, np.sort(array, axis))
    np.testing.assert_array_equal(down, np.flip(np.sort(array, axis), axis))
    np.testing.assert_array_equal(first, np.argsort(array, axis, kind="stable"))
    np.testing.assert_array_equal(np.take_along_axis(array, last, axis), down)
    assert (up.dtype, first.dtype) == (array.dtype, np.int32)


async def test_the_least_integer_is_sorted_too() -> None:
    array = np.array([5, -(2**31), 2**31 - 1, 0], "i4")
    assert (await value(tf.sort(array))).tolist() == sorted(array.tolist())


async def test_sort_passes_gradients_back_to_where_elements_were() -> None:
    await check_gradients(lambda x: tf.sort(x, 0) * np.arange(12.0).reshape(3, 4), [A])
    await check_gradients(lambda x: tf.sort(x, direction="DESCENDING") * np.arange(4.0), [A])


async def test_wrong_arguments_of_sort_are_refused() -> None:
    with pytest.raises(ValueError, match="direction must be 'ASCENDING' or 'DESCENDING', got 'UP'"):
        tf.sort([1.0], direction="UP")
    with pytest.raises(ValueError, match="axis=0 needs a tensor of known rank"):
        tf.argsort(tf.placeholder(tf.float32), 0)


async def test_batch_gather() -> None:
    positions = np.array([[0, 1], [3, 2], [1, 1]])
    wanted = np.take_along_axis(A, positions, 1)
    np.testing.assert_array_equal(await value(tf.batch_gather(A, positions)), wanted)
    with pytest.raises(ValueError, match="indices of known rank"):
        tf.batch_gather(A, tf.placeholder(tf.int32))


@given(arrays(np.float32, st.tuples(*[st.integers(1, 3)] * 4)), st.integers(2, 3))
async def test_blocks_of_pixels_become_channels_and_back(blocks: Any, size: int) -> None:
    n, h, w, c = blocks.shape
    images = np.resize(blocks, (n, h * size, w * size, c))
    tf.reset_default_graph()
    deep = tf.space_to_depth(images, size)
    assert deep.shape == [n, h, w, c * size * size]
    found, back = await value([deep, tf.depth_to_space(deep, size)])
    np.testing.assert_array_equal(back, images)
    for i in range(h):
        for j in range(w):
            part = images[:, i * size : (i + 1) * size, j * size : (j + 1) * size]
            np.testing.assert_array_equal(found[:, i, j], part.reshape(n, -1))


async def test_blocks_of_images_of_unknown_size() -> None:
    images = tf.placeholder(tf.float32, [None, None, 4, 1])
    deep = tf.space_to_depth(images, 2)
    assert deep.shape.as_list() == [None, None, 2, 4]
    fed = np.arange(32.0).reshape(2, 4, 4, 1)
    async with tf.Session() as sess:
        found = await sess.run(tf.depth_to_space(deep, 2), {images: fed})
    np.testing.assert_array_equal(found, fed)
    with pytest.raises(ValueError, match="block_size must be 2 or more, got 1"):
        tf.space_to_depth(images, 1)
    with pytest.raises(ValueError, match="data_format must be 'NHWC', got 'NCHW'"):
        tf.depth_to_space(images, 2, data_format="NCHW")
    with pytest.raises(ValueError, match=r"\[batch, height, width, channels\]"):
        tf.space_to_depth(tf.zeros([2, 2]), 2)


async def test_other_names_before_1_0() -> None:
    m = np.arange(8.0).reshape(2, 2, 2)
    found = await value(
        [
            tf.batch_matmul(m, m, adj_y=True), tf.select([True, False], [1, 2], [3, 4]),
            tf.inv(tf.constant([2.0, 4.0])), tf.parallel_stack([tf.constant(1), tf.constant(2)]),
            tf.concat_v2([[1], [2]], 0),
        ]
    )  # fmt: skip
    np.testing.assert_array_equal(found[0], m @ m.swapaxes(1, 2))
    assert [one.tolist() for one in found[1:]] == [[1, 4], [0.5, 0.25], [1, 2], [1, 2]]
    assert tf.listdiff is tf.setdiff1d
    assert tf.tensor_scatter_nd_update is tf.tensor_scatter_update


async def test_static_values() -> None:
    assert tf.get_static_value(tf.constant([1, 2])).tolist() == [1, 2]
    assert tf.get_static_value(tf.placeholder(tf.float32)) is None
    assert tf.get_static_value(5) == 5
    assert tf.no_regularizer(None) is None


async def test_what_is_in_tf_math_only() -> None:
    tf.reset_default_graph()
    found = await value(
        [
            tf.math.reduce_euclidean_norm(A, 1),
            tf.math.multiply_no_nan([np.nan, np.inf, 2.0], [0.0, 0.0, 3.0]),
            tf.math.reciprocal_no_nan([0.0, 2.0]),
            tf.math.polyval([2.0, 1.0, 5.0], tf.constant([2.0, 3.0])),
            tf.linalg.matvec(A, np.ones(4)),
            tf.linalg.matvec(A, np.ones(3), transpose_a=True),
            tf.linalg.adjoint(A + 1j),
        ]
    )
    wanted = [
        np.linalg.norm(A, axis=1), [0, 0, 6], [0, 0.5], [15, 26], A.sum(1), A.sum(0), (A + 1j).conj().T
    ]  # fmt: skip
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    with pytest.raises(ValueError, match="coeffs must be list type"):
        tf.math.polyval(2.0, 1.0)  # type: ignore[arg-type]


async def test_categorical_is_multinomial() -> None:
    logits = np.log([[1e-9, 1.0, 1e-9], [1.0, 1e-9, 1e-9]])
    found = await value(tf.random.categorical(logits, 4, tf.int32, seed=1))
    assert found.tolist() == [[1] * 4, [0] * 4]
    assert found.dtype == np.int32
