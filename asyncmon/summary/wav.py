"""Sound of numbers as WAV files: 16-bit PCM, as TF1 writes it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["encode_wav"]

_FULL = 1 << 15  # a sample of 1.0, which is clipped to one less
_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")


def encode_wav(samples: NDArray[Any], sample_rate: int) -> bytes:
    """Return a WAV file of floats of shape ``[frames, channels]``, from -1.0 to 1.0.

    What is beyond is clipped; NaN is silence.
    """
    channels = samples.shape[1]
    scaled = np.nan_to_num(samples.astype(np.float32) * np.float32(_FULL), posinf=_FULL, neginf=-_FULL)
    # away from zero, as C rounds
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    data: bytes = np.clip(rounded, -_FULL, _FULL - 1).astype("<i2").tobytes()
    frame = 2 * channels
    # 16 bytes of format: PCM is 1, and 16 bits a sample
    format_ = (b"fmt ", 16, 1, channels, sample_rate, sample_rate * frame, frame, 16)
    header = _HEADER.pack(b"RIFF", _HEADER.size - 8 + len(data), b"WAVE", *format_, b"data", len(data))
    return b"".join((header, data))
