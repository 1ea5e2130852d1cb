"""The protobuf wire format, without the protobuf package: event files and TF checkpoints need it.

A function for writing returns the bytes of a field; a message is the concatenation of its fields.
:func:`fields` splits a message into fields. Messages that are written and read are subclasses of
:class:`~asyncmon.protobuf.message.Message`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types."""

_SINGLE_BYTES = [bytes([n]) for n in range(128)]


class WireError(ValueError):
    """Bytes that are no message: a field is truncated, or of an unknown wire type."""


def varint(number: int) -> bytes:
    """Return the base-128 form of an int64; a negative one takes ten bytes."""
    if 0 <= number < 128:
        return _SINGLE_BYTES[number]
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"{number!r} does not fit into 64 bits.")
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, data: bytes) -> bytes:
    """Return a field of bytes: ``bytes``, a nested message, a packed list."""
    return varint(number << 3 | DELIMITED) + varint(len(data)) + data


def string(number: int, text: str) -> bytes:
    """Return a field of text."""
    return delimited(number, text.encode())


def integer(number: int, value: int) -> bytes:
    """Return a field of an integer, an enum or a truth value."""
    return varint(number << 3 | VARINT) + varint(int(value))


def double(number: int, value: float) -> bytes:
    """Return a field of a float64."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def float32(value: float) -> bytes:
    """Return the four bytes of a float32; a number out of range becomes infinite."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def fields(data: bytes | memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield ``(field number, wire type, value)``; the value is an int for a varint, else raw bytes.

    WireError if the bytes are no message, or end within a field.
    """
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end:
        key, position = read_varint(view, position)
        number, wire_type = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise WireError(f"Field number {number} at byte {position} does not exist.")
        if wire_type == VARINT:
            value, position = read_varint(view, position)
            yield number, wire_type, value
            continue
        if wire_type == DELIMITED:
            size, position = read_varint(view, position)
        elif wire_type in (FIXED64, FIXED32):
            size = 8 if wire_type == FIXED64 else 4
        else:
            raise WireError(f"Field {number} at byte {position} has the unknown wire type {wire_type}.")
        if size > end - position:
            raise WireError(f"Field {number} needs {size} bytes at byte {position} of {end}.")
        yield number, wire_type, view[position : position + size]
        position += size


def signed(number: int) -> int:
    """Convert an unsigned 64-bit number to the signed number with the same bits."""
    return number - (1 << 64) if number >> 63 else number


def read_varint(view: memoryview | bytes, position: int) -> tuple[int, int]:
    """Return the unsigned 64-bit number at a position, and the position after it."""
    result = shift = 0
    try:
        while True:
            byte = view[position]
            position += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result & ((1 << 64) - 1), position
            shift += 7
            if shift > 63:
                raise WireError(f"A varint at byte {position} is longer than ten bytes.")
    except IndexError:
        raise WireError(f"The bytes end within a varint, at byte {position}.") from None
