"""TF1: ``tf.compat``: text to bytes and back."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from asyncmon.graph import Dimension, TensorShape

__all__ = [
    "as_bytes", "as_str", "as_str_any", "as_text", "bytes_or_text_types", "complex_types",
    "dimension_at_index", "dimension_value", "integral_types", "real_types",
]  # fmt: skip

bytes_or_text_types = (bytes, str)
integral_types = (numbers.Integral, np.integer)
real_types = (numbers.Real, np.integer, np.floating)
complex_types = (numbers.Complex, np.number)


def as_bytes(bytes_or_text: Any, encoding: str = "utf-8") -> bytes:
    """Return bytes; text is encoded. TypeError for other types."""
    if isinstance(bytes_or_text, bytes | bytearray):
        return bytes(bytes_or_text)
    return _checked(bytes_or_text).encode(encoding)


def as_text(bytes_or_text: Any, encoding: str = "utf-8") -> str:
    """Return text; bytes are decoded. TypeError for other types."""
    if isinstance(bytes_or_text, bytes):
        return bytes_or_text.decode(encoding)
    return _checked(bytes_or_text)


as_str = as_text


def as_str_any(value: Any, encoding: str = "utf-8") -> str:
    """Return text; bytes are decoded, other types converted by ``str``."""
    return value.decode(encoding) if isinstance(value, bytes) else str(value)


def dimension_value(dimension: Any) -> int | None:
    """Return a dimension of a shape as a plain int, or None. TF1: ``tf.dimension_value``."""
    dimension = getattr(dimension, "value", dimension)
    return None if dimension is None else int(dimension)


def dimension_at_index(shape: Any, index: int) -> Dimension:
    """Return a dimension of a shape, unknown if the rank is unknown. TF1: same name."""
    return TensorShape(shape)[index]


def _checked(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"Expected binary or unicode string, got {value!r}")
    return value
