"""Arrays of strings, which the manifest keeps as JSON."""

from __future__ import annotations

import base64
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.checkpoint.manifest import TextEntry

if TYPE_CHECKING:
    from asyncmon.checkpoint.dtypes import Array

__all__ = ["decode_text", "encode_text"]


def encode_text(array: Array) -> TextEntry:
    """Return an array of ``str`` or ``bytes`` (dtype object, ``str_`` or ``bytes_``) as an entry.

    Raises:
        TypeError: an element of an object array is neither.
    """
    dtype = "object" if array.dtype.kind == "O" else array.dtype.newbyteorder("<").str
    return TextEntry(dtype, array.shape, tuple(_encode(value) for value in array.reshape(-1).tolist()))


def decode_text(entry: TextEntry) -> Array:
    """Return the array of an entry.

    Raises:
        ValueError: the entry is not one that :func:`encode_text` made.
    """
    if len(entry.values) != math.prod(entry.shape):
        raise ValueError(f"{len(entry.values)} strings do not fill the shape {list(entry.shape)}")
    dtype = np.dtype(entry.dtype)
    array = np.empty(len(entry.values), dtype)
    array[:] = [_decode(value) for value in entry.values]
    return array.reshape(entry.shape)


def _encode(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, str):
        return value
    raise TypeError(
        f"it has an element {value!r:.80} of type {type(value).__name__}, which is no string"
    )


def _decode(value: Any) -> str | bytes:
    if isinstance(value, str):
        return value
    return base64.b64decode(value["base64"], validate=True)
