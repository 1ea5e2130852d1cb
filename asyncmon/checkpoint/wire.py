"""Just enough of the protocol buffer wire format to read the messages of a TensorFlow checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["fields", "signed", "varint"]

_MASK = (1 << 64) - 1


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint (at most 64 bits) that begins at ``at``, and where it ends.

    Raises:
        ValueError: there is none.
    """
    value = 0
    for count in range(10):
        if at + count >= len(data):
            break
        byte = data[at + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & _MASK, at + count + 1
    raise ValueError(f"there is no varint at byte {at} of {len(data)}")


def signed(value: int) -> int:
    """Return a varint's value read as a signed 64-bit number."""
    return value - (1 << 64) if value >= 1 << 63 else value


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of each field: numbers for varints and fixed ones, bytes for the rest.

    Raises:
        ValueError: the message ends early, or has a group.
    """
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = varint(message, at)
        elif kind in {1, 5}:
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"field {key >> 3} has the unknown wire type {kind}")
        content = message[at : at + length]
        if len(content) != length:
            raise ValueError(f"field {key >> 3} ends early")
        yield key >> 3, content if kind == 2 else int.from_bytes(content, "little")
        at += length
