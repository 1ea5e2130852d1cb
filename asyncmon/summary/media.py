"""Encode images as PNG and sound as WAV, scaled as in TF1."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels to PNG's color type: grey, RGB, RGBA
_BAD_PIXEL = (255, 0, 0, 255)
_DARK = 1e-6  # an image without larger values is black


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return a PNG file of uint8 pixels of shape ``[height, width, channels]``; 1, 3 or 4 channels."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # the first byte is the filter: none
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

    uint8 is returned unchanged. Floats are scaled so that the largest one is 255. If some are negative,
    zero becomes 128, and the largest magnitude is mapped to 1 or 255. NaN and infinity become red.
    """
    if image.dtype == np.uint8:
        return image
    values: NDArray[Any] = image.copy()
    good = np.isfinite(values).all(axis=-1)
    values[~good] = 0.0
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    largest, full, zero = (max(-low, high), 127.0, 128.0) if low < 0 else (high, 255.0, 0.0)
    # As in TF1, the scale is a float32, and the image keeps its own precision.
    with np.errstate(over="ignore"):
        scale = 0.0 if largest < _DARK else np.float32(full) / np.float32(largest)
    values *= values.dtype.type(scale)
    values += values.dtype.type(zero)
    pixels: NDArray[np.uint8] = np.minimum(values, values.dtype.type(255)).astype(np.uint8)
    pixels[~good] = _BAD_PIXEL[: image.shape[-1]]
    return pixels


_FULL = 1 << 15  # the value of a sample of 1.0, before it is clipped to one less


def encode_wav(samples: NDArray[Any], sample_rate: int) -> bytes:
    """Return a WAV file, 16-bit PCM, of floats from -1.0 to 1.0 of shape ``[frames, channels]``.

    Larger samples are clipped. NaN becomes silence.
    """
    import wave  # not needed by most programs

    scaled = np.nan_to_num(samples.astype(np.float32) * np.float32(_FULL), posinf=_FULL, neginf=-_FULL)
    # round half away from zero, as C does
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(samples.shape[1])
        sound.setsampwidth(2)
        sound.setframerate(sample_rate)
        sound.writeframes(np.clip(rounded, -_FULL, _FULL - 1).astype("<i2").tobytes())
    return file.getvalue()
