"""Image ops of input pipelines: values against numpy, shapes, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncmon.tf1 as tf
from asyncmon.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio

rng = np.random.default_rng(0)
ONE = rng.integers(0, 256, (5, 7, 3)).astype(np.uint8)
BATCH = rng.integers(0, 256, (4, 5, 7, 3)).astype(np.uint8)
REALS = rng.random((2, 6, 4, 3)).astype(np.float32)


async def run(fetches: Any) -> Any:
    async with tf.Session() as sess:
        return await sess.run(fetches)


@pytest.mark.parametrize("method", range(4))
@pytest.mark.parametrize("size", [[3, 9], [12, 2], [1, 1]])
@pytest.mark.parametrize("align", [False, True])
async def test_the_gradient_of_a_resize_is_its_transpose(method: int, size: Any, align: bool) -> None:
    images = tf.constant(REALS)
    new = tf.image.resize_images(images, size, method, align)
    weights = tf.constant(rng.normal(size=(2, *size, 3)).astype(np.float32))
    (back,) = tf.gradients(new, images, weights)
    (again,) = tf.gradients(back, weights, images)
    sums = [tf.reduce_sum(x) for x in (new * weights, back * images, again * weights)]
    forward, backward, twice = await run(sums)
    assert back.shape == images.shape
    np.testing.assert_allclose([backward, twice], forward, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("x", [ONE, BATCH])
async def test_flips(x: Any) -> None:
    assert (await run(tf.image.flip_left_right(x)) == x[..., ::-1, :]).all()
    assert (await run(tf.image.flip_up_down(x)) == x[..., ::-1, :, :]).all()


async def test_random_flips_flip_half_of_the_images_each_by_itself() -> None:
    batch = np.repeat(ONE[None], 200, 0)
    for flip, mirrored in [
        (tf.image.random_flip_left_right, ONE[:, ::-1]),
        (tf.image.random_flip_up_down, ONE[::-1]),
    ]:
        found = await run(flip(batch, seed=1))
        flipped = [(one == mirrored).all() for one in found]
        assert all(f or (one == ONE).all() for f, one in zip(flipped, found, strict=True))
        assert 60 < sum(flipped) < 140
        single = flip(ONE, seed=2)
        async with tf.Session() as sess:
            several = [await sess.run(single) for _ in range(30)]
        assert 0 < sum((one == mirrored).all() for one in several) < 30


async def test_brightness_and_contrast() -> None:
    found = await run(tf.image.adjust_brightness(REALS, 0.25))
    np.testing.assert_allclose(found, REALS + np.float32(0.25), rtol=1e-6)
    found = await run(tf.image.adjust_brightness(ONE, 0.1))
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, np.minimum(ONE + 25.5, 255), atol=1)
    means = REALS.mean((1, 2), keepdims=True)
    found = await run(tf.image.adjust_contrast(REALS, 2.0))
    np.testing.assert_allclose(found, (REALS - means) * 2 + means, atol=1e-5)
    bright = tf.image.random_brightness(REALS, 0.5, seed=1) - REALS
    contrast = tf.image.random_contrast(REALS, 0.5, 1.5, seed=1)
    async with tf.Session() as sess:
        deltas = np.array([await sess.run(bright) for _ in range(20)])
        factors = np.array([await sess.run(contrast) for _ in range(20)])
    assert np.ptp(deltas, axis=(1, 2, 3, 4)).max() < 1e-5
    assert -0.5 <= deltas.min() < 0 < deltas.max() < 0.5
    spread = (factors - means).std((2, 3)) / (REALS - means).std((1, 2))
    assert 0.5 <= spread.min() < 1 < spread.max() <= 1.5


async def test_standardization() -> None:
    found = await run(tf.image.per_image_standardization(BATCH))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.mean((1, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(found.std((1, 2, 3)), 1, atol=1e-5)
    flat = np.full((2, 2, 1), 7, np.uint8)
    assert (await run(tf.image.per_image_standardization(flat)) == 0).all()


@pytest.mark.parametrize(
    ("values", "given", "wanted", "saturate", "expected"),
    [
        ([0, 128, 255], np.uint8, "float32", False, [0, 128 / 255, 1]),
        ([0.0, 0.5, 1.0], np.float32, "uint8", False, [0, 127, 255]),
        ([-1.0, 0.5, 2.0], np.float32, "uint8", True, [0, 127, 255]),
        ([0.0, 1.0, 3.0], np.float32, "int32", True, [0, 2**31 - 128, 2**31 - 128]),
        ([0, 255], np.uint8, "int16", False, [0, 255 * 128]),
        ([0, 300, 32767], np.int16, "uint8", False, [0, 2, 255]),
        ([-5, 300], np.int16, "uint8", True, [0, 2]),
        ([0.25], np.float32, "float64", False, [0.25]),
    ],
)
async def test_dtypes_are_scaled(
    values: Any, given: Any, wanted: str, saturate: bool, expected: Any
) -> None:
    found = await run(tf.image.convert_image_dtype(np.array(values, given), wanted, saturate))
    assert found.dtype == wanted
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("x", [ONE, BATCH])
async def test_crops_and_pads(x: Any) -> None:
    found = await run(tf.image.resize_image_with_crop_or_pad(x, 3, 11))
    assert (found[..., 2:9, :] == x[..., 1:4, :, :]).all()
    assert found.sum() == x[..., 1:4, :, :].sum()


async def test_sizes_that_are_known_in_the_run_only() -> None:
    x = tf.placeholder(tf.uint8, [None, None, 3])
    results = [
        tf.image.resize_image_with_crop_or_pad(x, 3, 11),
        tf.image.resize_images(x, [4, 5]),
        tf.random_crop(x, [5, 7, 3]),
        tf.image.per_image_standardization(tf.image.random_flip_left_right(x)),
    ]
    assert [one.shape.as_list() for one in results] == [
        [3, 11, 3], [4, 5, 3], [5, 7, 3], [None, None, 3]
    ]  # fmt: skip
    async with tf.Session() as sess:
        found = await sess.run(results, {x: ONE})
        assert (found[0][:, 2:9] == ONE[1:4]).all()
        assert (found[2] == ONE).all()
        with pytest.raises(InvalidArgumentError, match=r"Need value\.shape >="):
            await sess.run(results[2], {x: np.zeros((2, 2, 3), np.uint8)})
        sizes = tf.placeholder(tf.int32, [2])
        fitted = tf.image.resize_image_with_crop_or_pad(x, sizes[0], sizes[1])
        assert (await sess.run(fitted, {x: ONE, sizes: [3, 11]}) == found[0]).all()


async def test_random_crops_are_parts_of_the_image() -> None:
    crop = tf.random_crop(ONE, [3, 4, 3], seed=1)
    parts = {ONE[i : i + 3, j : j + 4].tobytes() for i in range(3) for j in range(4)}
    async with tf.Session() as sess:
        found = {(await sess.run(crop)).tobytes() for _ in range(60)}
    assert found <= parts
    assert len(found) > 8


async def test_resizing() -> None:
    row = np.array([0, 10, 20, 30], np.float32).reshape(1, 1, 4, 1)
    for options, expected in [
        ({}, [0, 5, 10, 15, 20, 25, 30, 30]),
        ({"align_corners": True}, [30 * i / 7 for i in range(8)]),
        ({"method": tf.image.ResizeMethod.NEAREST_NEIGHBOR}, [0, 0, 10, 10, 20, 20, 30, 30]),
    ]:
        found = await run(tf.image.resize_images(row, [1, 8], **options))
        np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)
    small = tf.image.resize_images(ONE, [3, 3], tf.image.ResizeMethod.NEAREST_NEIGHBOR)
    assert small.dtype is tf.uint8
    assert (await run(small) == ONE[[0, 1, 3]][:, [0, 2, 4]]).all()
    assert tf.image.resize_images(ONE, [5, 7]).dtype is tf.uint8
    assert tf.image.resize_images(ONE, [10, 10]).dtype is tf.float32
    assert (await run(tf.image.resize_nearest_neighbor(ONE, [3, 3])) == await run(small)).all()
    for name in ("area", "bicubic", "bilinear"):
        resize = getattr(tf.image, f"resize_{name}")
        method = getattr(tf.image.ResizeMethod, name.upper())
        both = resize(ONE, [4, 9], True), tf.image.resize_images(ONE, [4, 9], method, True)
        np.testing.assert_array_equal(*await run(both))
        assert resize(ONE, [5, 7]).dtype is tf.float32


async def test_files_of_images() -> None:
    pytest.importorskip("PIL")
    png = tf.image.encode_png(ONE)
    found, grey = await run([tf.image.decode_png(png), tf.image.decode_jpeg(png, channels=1)])
    again, floats = await run([tf.image.decode_image(png), tf.io.decode_image(png, 3, tf.float32)])
    np.testing.assert_array_equal(again, found)
    np.testing.assert_allclose(floats, found[..., :3] / 255, rtol=1e-6)
    assert (found == ONE).all()
    assert grey.shape == (5, 7, 1)
    smooth = np.tile(np.arange(0, 128, 2, np.uint8)[:, None, None], (1, 64, 3))
    found, small = await run(
        [
            tf.image.decode_jpeg(tf.image.encode_jpeg(smooth, quality=100), channels=3),
            tf.image.decode_jpeg(tf.image.encode_jpeg(smooth), ratio=2),
        ]
    )
    assert np.abs(found.astype(int) - smooth).max() <= 3
    assert small.shape == (32, 32, 3)
    with pytest.raises(InvalidArgumentError, match="The 3 bytes are no image"):
        await run(tf.image.decode_png(b"abc"))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: tf.image.flip_left_right(np.zeros((3, 3))), "An image has 3 dimensions"),
        (lambda: tf.image.flip_up_down(np.zeros((1,) * 5)), "a batch of them 4"),
        (lambda: tf.image.flip_up_down(np.zeros((0, 3, 3))), "inner 3 dims"),
        (lambda: tf.image.random_brightness(ONE, -1), "must be non-negative"),
        (lambda: tf.image.random_contrast(ONE, 2, 1), "upper must be > lower"),
        (lambda: tf.image.random_contrast(ONE, -2, 1), "lower must be non-negative"),
        (lambda: tf.image.resize_image_with_crop_or_pad(ONE, 0, 3), "target_height must be > 0"),
        (lambda: tf.image.resize_images(ONE, [2]), "1-D Tensor of 2 elements"),
        (lambda: tf.image.resize_images(ONE, [2, 2], 4), "not implemented: 4"),
        (lambda: tf.image.decode_jpeg(b"", channels=2), "channels must be one of"),
        (lambda: tf.image.crop_to_bounding_box(ONE, 0, 4, 2, 50), "from 4 to 54 is not inside of"),
        (lambda: tf.image.central_crop(ONE, 0.0), r"within \(0, 1\], got 0.0"),
        (lambda: tf.image.decode_png(b"", dtype=tf.uint16), "gives uint8"),
        (lambda: tf.image.encode_png(REALS[0]), "uint8"),
        (lambda: tf.image.encode_jpeg(ONE, "cmyk"), "Unknown format"),
    ],
)
async def test_what_is_no_image_or_does_not_fit_is_refused(make: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


async def test_the_rest_of_tf_image_is_out_with_a_hint() -> None:
    for name in ("adjust_hue", "psnr"):
        with pytest.raises(AttributeError, match=f"{name}.*(use|slice|transform) "):
            getattr(tf.image, name)
