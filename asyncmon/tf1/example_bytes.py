"""Find features in the bytes of serialized examples, without the messages around them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncmon.graph.core.dtypes import as_objects
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

_LAYOUTS = 64  # of one parser


class Layouts:
    """Where examples have their values: those of equal length mostly have them in the same places.

    All bytes between the values are compared, so that equal ones mean an equal layout.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[tuple[int, int, bytes]], dict[bytes, Any]]] = {}

    def find(self, data: bytes) -> dict[bytes, tuple[int, int, int]] | None:
        """Return the kind and the place of each feature's only value, or packed list; None: unknown."""
        known = self._known.get(len(data))
        if known is None:
            if len(self._known) < _LAYOUTS and (found := _places(data)) is not None:
                spans = sorted([place[1:] for place in found.values()])
                edges = [0, *[i for span in spans for i in span], len(data)]
                gaps = zip(edges[::2], edges[1::2], strict=True)
                self._known[len(data)] = [(a, b, data[a:b]) for a, b in gaps if a < b], found
                return found
            return None
        for start, end, between in known[0]:
            if data[start:end] != between:
                return None
        return known[1]


def _places(data: bytes) -> dict[bytes, tuple[int, int, int]] | None:
    """Return what :meth:`Layouts.find` does; None where a feature has several values, or none."""
    found = {}
    for key, span in features_of(data).items():
        kinds = _parts(*span)
        if len(kinds) != 1:
            return None
        kind, start, end = kinds[0]
        parts = _parts(data, start, end)
        if kind not in _NAMES or len(parts) != 1 or parts[0][0] != 0x0A or parts[0][2] != end:
            return None
        found[key] = (kind, *parts[0][1:])
    return found


def scalar_of(data: bytes, kind: int, start: int, end: int) -> Any:
    """Return the only value of a feature; None where there are several."""
    if kind == STRINGS:
        return as_objects(data[start:end])
    if kind == FLOATS:
        return np.frombuffer(data, "<f4", 1, start)[0] if end - start == 4 else None
    if start == end:
        return None
    number, stop = read_varint(data, start)
    return np.int64(signed(number)) if stop == end else None


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
    packed = _packed(data[start:end], kind)
    return packed_of(packed, kind, 0, len(packed))


def packed_of(data: bytes, kind: int, start: int, end: int) -> Any:
    """Return the vector of a packed list of numbers."""
    if kind == INTS:
        return _ints(data[start:end])
    if (end - start) % 4:
        raise WireError(f"A list of floats has {end - start} bytes.")
    return np.frombuffer(data, "<f4", (end - start) // 4, start).astype(np.float32)


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
