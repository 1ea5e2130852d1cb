"""Sound as WAV files, sample for sample as TF1 writes them."""

from __future__ import annotations

import io
import wave

import numpy as np

from asyncmon.summary.media import encode_wav


def test_a_standard_reader_reads_the_samples() -> None:
    sound = np.array([[0.0, 1.0], [0.5, -0.5], [-1.0, 2.0]], np.float32)
    with wave.open(io.BytesIO(encode_wav(sound, 8000))) as file:
        assert file.getparams()[:4] == (2, 2, 8000, 3)
        samples = np.frombuffer(file.readframes(3), "<i2").tolist()
    assert samples == [0, 32767, 16384, -16384, -32768, 32767], "what is beyond is clipped"


def test_the_bytes_are_tf1s() -> None:
    """``tf.summary.audio`` of two silent frames of two channels, 8000 a second."""
    header = b"RIFF,\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0@\x1f\0\0\0}\0\0\x04\0\x10\0data\x08\0\0\0"
    assert encode_wav(np.zeros((2, 2), np.float32), 8000) == header + bytes(8)


def test_halves_are_rounded_away_from_zero_and_nan_is_silence() -> None:
    sound = np.array([[0.5], [-0.5], [1.5], [np.nan], [np.inf], [-np.inf]], np.float32) / (1 << 15)
    assert np.frombuffer(encode_wav(sound, 1)[44:], "<i2").tolist() == [1, -1, 2, 0, 32767, -32768]
