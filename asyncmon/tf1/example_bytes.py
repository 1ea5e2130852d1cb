"""Find features in the bytes of serialized examples, without the messages around them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncmon.protobuf import (
    DELIMITED,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    fields,
    read_varint,
    signed,
    varint,
)

STRINGS: Final = 0x0A
FLOATS: Final = 0x12
INTS: Final = 0x1A
"""The first bytes of the three kinds of lists in a serialized feature."""

_NAMES = {STRINGS: "string", FLOATS: "float32", INTS: "int64"}

Span = tuple[bytes, int, int]
"""Bytes, and from where to where."""


def features_of(
    data: bytes, start: int = 0, end: int | None = None, tag: int = 0x0A
) -> dict[bytes, Any]:
    """Return the serialized features of an ``Example``, by name, as spans of its bytes.

    With tag 0x12 they are the lists of a ``SequenceExample``. The last one of a name counts.

    Raises:
        WireError: it is no such message.
    """
    found: dict[bytes, Any] = {}
    for outer, first, last in _parts(data, start, len(data) if end is None else end):
        if outer != tag:
            continue
        for inner, left, right in _parts(data, first, last):
            if inner != 0x0A:
                continue
            key, value = b"", (data, right, right)
            for part, begin, stop in _parts(data, left, right):
                if part == 0x0A:
                    key = data[begin:stop]
                elif part == 0x12:
                    value = (data, begin, stop)
            found[key] = value
    return found


def lists_of(data: bytes) -> dict[bytes, list[Span]]:
    """Return the features of each list of a ``SequenceExample``, by name."""
    return {
        key: [(data, first, last) for tag, first, last in _parts(*span) if tag == 0x0A]
        for key, span in features_of(data, tag=0x12).items()
    }


def feature_of(span: Span, kind: int) -> Any:
    """Return the values of a feature, None where it has no kind, or the name of another kind.

    They are a vector: of int64, float32, or bytes.
    """
    parts = _parts(*span)
    if not parts:
        return None
    tag, start, end = parts[-1]
    if len(parts) > 1:  # parts of one list, joined
        start, end = 0, 0
        data = b"".join([span[0][a:b] for t, a, b in parts if t == tag])
        end = len(data)
    else:
        data = span[0]
    if tag != kind:
        return _NAMES.get(tag)
    if kind == STRINGS:
        return _strings(data, start, end)
    if start == end:
        return np.empty(0, np.int64 if kind == INTS else np.float32)
    size = data[start + 1] if end - start > 1 else 0
    if data[start] == 0x0A and size < 128 and start + 2 + size == end:  # one packed list
        packed = data[start + 2 : end]
    else:
        packed = _packed(data[start:end], kind)
    if kind == FLOATS:
        if len(packed) % 4:
            raise WireError(f"A list of floats has {len(packed)} bytes.")
        return np.frombuffer(packed, "<f4").astype(np.float32)
    return _ints(packed)


def _strings(data: bytes, start: int, end: int) -> Any:
    parts = _parts(data, start, end)
    values = np.empty(len(parts), object)
    for i, (_tag, first, last) in enumerate(parts):
        values[i] = data[first:last]
    return values


def _packed(data: bytes, kind: int) -> bytes:
    """Return the values of a list that may be packed, or not, or in several parts."""
    out = []
    for number, wire_type, raw in fields(data):
        if number == 1 and wire_type == DELIMITED:
            out.append(bytes(raw))
        elif number == 1 and isinstance(raw, int) and kind == INTS:
            out.append(varint(raw))
        elif number == 1 and not isinstance(raw, int) and kind == FLOATS:
            out.append(bytes(raw))
    return b"".join(out)


def _ints(packed: bytes) -> Any:
    raw = np.frombuffer(packed, np.uint8)
    if not (raw & 128).any():
        return raw.astype(np.int64)
    values, position = [], 0
    while position < len(packed):
        number, position = read_varint(packed, position)
        values.append(signed(number))
    return np.array(values, np.int64)


def _parts(data: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return the first byte and the span of each field of bytes in a message; others are left out."""
    found = []
    try:
        while start < end:
            tag = data[start]
            if tag & 0x87 != DELIMITED:
                start = _after_other(data, start)
                continue
            size = data[start + 1]
            start += 2
            if size > 127:
                size, start = read_varint(data, start - 1)
            found.append((tag, start, start + size))
            start += size
    except IndexError:
        raise WireError(f"The bytes end within a field, at byte {start}.") from None
    if start > end:
        raise WireError(f"A field needs {start - end} more bytes than the {end} that there are.")
    return found


def _after_other(data: bytes, start: int) -> int:
    """Return where a field ends that is not one of bytes with a number below 16."""
    key, start = read_varint(data, start)
    if key & 7 == VARINT:
        return read_varint(data, start)[1]
    if key & 7 == DELIMITED:
        size, start = read_varint(data, start)
        return start + size
    if key & 7 not in (FIXED64, FIXED32):
        raise WireError(f"A field at byte {start} has the unknown wire type {key & 7}.")
    return start + (8 if key & 7 == FIXED64 else 4)
