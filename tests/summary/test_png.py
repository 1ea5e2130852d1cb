"""PNG files that others read, with TF1's pixels."""

from __future__ import annotations

import io
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asyncmon.summary.media import encode_png, to_pixels


def decoded(png: bytes) -> Any:
    pixels = matplotlib.image.imread(io.BytesIO(png), format="png")
    return np.round(pixels * 255).astype(np.uint8)


@given(
    st.sampled_from([1, 3, 4]).flatmap(
        lambda channels: hnp.arrays(
            np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(channels))
        )
    )
)
def test_the_file_holds_the_pixels(pixels: Any) -> None:
    found = decoded(encode_png(pixels))
    assert (found.reshape(pixels.shape) == pixels).all()


nan = float("nan")


@pytest.mark.parametrize(
    ("image", "pixels"),
    [
        ([[0.0, 0.5], [1.0, 3.0]], [[0, 42], [85, 255]]),
        ([[-1.0, 0.5], [0.0, 0.25]], [[1, 191], [128, 159]]),
        ([[nan, 0.5], [2.0, 0.25]], [[255, 63], [255, 31]]),
        ([[0.0, 0.0]], [[0, 0]]),
        ([[nan, nan]], [[255, 255]]),
        ([[-5e-7, 0.0]], [[128, 128]]),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_floats_are_scaled_as_in_tf1_su_6(image: Any, pixels: Any, dtype: Any) -> None:
    """SU-6: recorded from TensorFlow 2.21, tf.compat.v1.summary.image."""
    found = to_pixels(np.array(image, dtype)[..., np.newaxis])
    assert found[..., 0].tolist() == pixels


def test_a_bad_pixel_is_red() -> None:
    image = np.zeros((1, 2, 4), np.float32)
    image[0, 0, 1] = np.inf
    assert to_pixels(image).tolist() == [[[255, 0, 0, 255], [0, 0, 0, 0]]]


def test_bytes_are_taken_as_they_are_su_6() -> None:
    """SU-6."""
    image = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)
    assert to_pixels(image) is image


def test_numbers_beyond_a_float32_do_no_harm() -> None:
    assert to_pixels(np.array([[[1e300], [1.0]]])).tolist() == [[[0], [0]]]


def test_an_image_of_no_pixels_has_none() -> None:
    assert to_pixels(np.zeros((0, 3, 1), np.float32)).shape == (0, 3, 1)
