"""Find features in the bytes of serialized examples, without the messages around them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncmon.graph.core.dtypes import as_objects
from asyncmon.protobuf import DELIMITED, FIXED32, FIXED64, VARINT, WireError, read_varint, signed
from asyncmon.tf1.example import Feature

STRINGS: Final = 0x0A
FLOATS: Final = 0x12
INTS: Final = 0x1A
"""The first bytes of the three kinds of lists in a serialized feature."""

_KINDS = {
    "bytes_list": (STRINGS, "string"),
    "float_list": (FLOATS, "float32"),
    "int64_list": (INTS, "int64"),
}

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
        lists = _parts(*span)
        place = _only(data, *lists[0][1:]) if len(lists) == 1 else None
        if place is None or lists[0][0] not in (STRINGS, FLOATS, INTS):
            return None
        found[key] = (lists[0][0], *place)
    return found


def _only(data: bytes, start: int, end: int) -> tuple[int, int] | None:
    """Return the place of a list's only value, or of its only packed part; None where it has others."""
    values = _parts(data, start, end)
    if len(values) == 1 and data[start] == 0x0A and values[0][2] == end:
        return values[0][1:]
    return None


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


def features_of(data: bytes) -> dict[bytes, Span]:
    """Return the serialized features of an ``Example``, by name. The last one of a name counts.

    Raises:
        WireError: it is no such message.
    """
    found: dict[bytes, Span] = {}
    for outer, first, last in _parts(data, 0, len(data)):
        if outer != 0x0A:
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


def feature_of(span: Span, kind: int) -> Any:
    """Return the values of a feature, None where it has no kind, or the name of another kind.

    They are a vector: of int64, float32, or bytes.
    """
    data, start, end = span
    parts = _parts(*span)
    if len(parts) == 1 and parts[0][0] == kind:
        if kind == STRINGS:
            return _strings([data[a:b] for _tag, a, b in _parts(data, *parts[0][1:])])
        if (place := _only(data, *parts[0][1:])) is not None:
            return packed_of(data, kind, *place)
    feature = Feature.FromString(data[start:end])  # parts of one list, or values that are not packed
    found = feature.WhichOneof("kind")
    if found is None or _KINDS[found][0] != kind:
        return found and _KINDS[found][1]
    values = getattr(feature, found).value
    return _strings(values) if kind == STRINGS else np.array(values, _KINDS[found][1])


def _strings(values: list[bytes]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def packed_of(data: bytes, kind: int, start: int, end: int) -> Any:
    """Return the vector of a packed list of numbers."""
    if kind == INTS:
        return _ints(data[start:end])
    if (end - start) % 4:
        raise WireError(f"A list of floats has {end - start} bytes.")
    return np.frombuffer(data, "<f4", (end - start) // 4, start).astype(np.float32)


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
