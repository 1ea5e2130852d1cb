"""Images as PNG files and sound as WAV files, with TF1's rules for scaling."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels: PNG's name for grey, RGB, RGBA
_BAD_PIXEL = (255, 0, 0, 255)
_DARK = 1e-6  # an image with nothing above this is black


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of uint8 pixels of shape ``[height, width, channels]``; 1, 3 or 4 channels."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each begins with its filter: none
    rows[:, 1:] = pixels.reshape(height, -1)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def to_pixels(image: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the pixels of an image of shape ``[height, width, channels]``.

    uint8 is taken as it is. Floats are scaled so that the greatest is 255; where some are below zero,
    zero is 128 and the one farthest from zero is at an end. A pixel with NaN or an infinity is red.
    """
    if image.dtype == np.uint8:
        return image
    values: NDArray[Any] = image.copy()
    good = np.isfinite(values).all(axis=-1)
    values[~good] = 0.0
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    largest, full, zero = (max(-low, high), 127.0, 128.0) if low < 0 else (high, 255.0, 0.0)
    # As in TF1, the scale is a float32 and the rest is done in the image's own precision.
    with np.errstate(over="ignore"):
        scale = 0.0 if largest < _DARK else np.float32(full) / np.float32(largest)
    values *= values.dtype.type(scale)
    values += values.dtype.type(zero)
    pixels: NDArray[np.uint8] = np.minimum(values, values.dtype.type(255)).astype(np.uint8)
    pixels[~good] = _BAD_PIXEL[: image.shape[-1]]
    return pixels


_FULL = 1 << 15  # a sample of 1.0, which is clipped to one less


def encode_wav(samples: NDArray[Any], sample_rate: int) -> bytes:
    """Return a WAV file, 16-bit PCM, of floats of shape ``[frames, channels]``, from -1.0 to 1.0.

    Samples beyond are clipped; NaN is silence.
    """
    import wave  # for this function only

    scaled = np.nan_to_num(samples.astype(np.float32) * np.float32(_FULL), posinf=_FULL, neginf=-_FULL)
    # away from zero, as C rounds
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(samples.shape[1])
        sound.setsampwidth(2)
        sound.setframerate(sample_rate)
        sound.writeframes(np.clip(rounded, -_FULL, _FULL - 1).astype("<i2").tobytes())
    return file.getvalue()
