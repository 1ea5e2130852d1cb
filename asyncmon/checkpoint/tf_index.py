"""Read the ``.index`` file of a TensorFlow checkpoint, a table of blocks, perhaps snappy-compressed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from asyncmon.protobuf import DELIMITED, fields, read_varint, signed
from asyncmon.protobuf.tf_types import masked

Slice = tuple[tuple[int, int | None], ...]
"""The start and length of a slice in each dimension; the length None is the whole dimension."""


class BundleEntry(NamedTuple):
    """The position of a tensor: ``size`` bytes at ``offset`` of shard ``shard``."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    crc32c: int
    slices: tuple[Slice, ...]


class Bundle(NamedTuple):
    """The entries of a checkpoint: tensors by name, slices by (name, slice)."""

    shards: int
    big_endian: bool
    tensors: dict[str, BundleEntry]
    slices: dict[tuple[str, Slice], BundleEntry]


def read_bundle(index: bytes) -> Bundle:
    """Return the entries of an ``.index`` file. Raises ValueError for a damaged one."""
    table = read_table(index)
    shards, big_endian = 1, False
    for number, value in _fields(table.pop(b"")) if b"" in table else ():
        if number == 1:
            shards = _number(value)
        elif number == 2:
            big_endian = value == 1
    # Only the keys of slices begin with a zero byte.
    tensors = {key.decode(): _entry(value) for key, value in table.items() if not key.startswith(b"\0")}
    try:
        slices = {
            (name, one): _entry(table[_slice_key(name, one)])
            for name, entry in tensors.items()
            for one in entry.slices
        }
    except KeyError as error:
        raise ValueError(f"it lists a slice that it does not have: {error}") from error
    return Bundle(shards, big_endian, tensors, slices)


def _entry(message: bytes) -> BundleEntry:
    values: dict[int, int | bytes] = {}
    slices: list[Slice] = []
    for number, value in _fields(message):
        values[number] = value
        if number == 7:
            slices.append(tuple(_extent(extent) for _, extent in _fields(_bytes(value))))
    shape = tuple(_dimension(dim) for key, dim in _fields(_bytes(values.get(2, b""))) if key == 2)
    dtype, shard, offset, size, crc32c = (_number(values.get(number, 0)) for number in (1, 3, 4, 5, 6))
    if min((offset, size, shard, *shape)) < 0:
        raise ValueError(f"an entry has a negative size, offset or dimension: {shape}")
    return BundleEntry(dtype, shape, shard, offset, size, crc32c, tuple(slices))


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field: ints for varints and fixed fields, else bytes."""
    for number, wire_type, value in fields(message):
        if isinstance(value, int):
            yield number, value
        else:
            yield number, bytes(value) if wire_type == DELIMITED else int.from_bytes(value, "little")


def _dimension(message: int | bytes) -> int:
    return next((_number(value) for number, value in _fields(_bytes(message)) if number == 1), 0)


def _extent(message: int | bytes) -> tuple[int, int | None]:
    values = {number: _number(value) for number, value in _fields(_bytes(message))}
    return values.get(1, 0), values.get(2)


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field that should be a number is none")
    return signed(value)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field that should be a message is a number")
    return value


def _slice_key(name: str, one: Slice) -> bytes:
    escaped = name.encode().replace(b"\0", b"\0\xff")  # UTF-8 has no \xff, which would be escaped, too
    key = b"\0" + escaped + b"\0\1" + _ordered(len(one))
    for start, length in one:
        key += _ordered_signed(start) + _ordered_signed(-1 if length is None else length)
    return key


def _ordered(number: int) -> bytes:
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _ordered_signed(number: int) -> bytes:
    """Encode a number in sort order: the count of leading one bits is the number of bytes."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    digits = bytearray(number.to_bytes(length, "big", signed=True))
    header = ((1 << length) - 1) << (8 * max(length, 2) - length)  # `length` ones, from the highest bit
    for place, byte in enumerate(header.to_bytes(max(length, 2), "big")[:length]):
        digits[place] ^= byte
    return bytes(digits)


_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return the keys and values of a table. Raises ValueError for a damaged one."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ValueError("it does not end like a table")
    footer = data[-_FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    table: dict[bytes, bytes] = {}
    for _, value in _entries(_block(data, index)):
        handle, _ = _handle(value, 0)
        table.update(_entries(_block(data, handle)))
    return table


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    block = data[offset : offset + size + _TRAILER]
    if len(block) != size + _TRAILER:
        raise ValueError(f"the block at byte {offset} ends early")
    content, kind = block[:size], block[size]
    if masked(google_crc32c.value(block[:-4])) != int.from_bytes(block[-4:], "little"):
        raise ValueError(f"the block at byte {offset} does not match its checksum")
    if kind == 0:
        return content
    if kind == 1:
        return decompress(content)
    raise ValueError(f"the block at byte {offset} has the unknown compression {kind}")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if end < 0:
        raise ValueError(f"a block of {len(block)} bytes cannot have {restarts} restart points")
    at = 0
    key = b""
    while at < end:
        shared, at = read_varint(block, at)
        fresh, at = read_varint(block, at)
        length, at = read_varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ValueError("an entry runs over the end of its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def decompress(data: bytes) -> bytes:
    """Return the content of a snappy block. Raises ValueError for a damaged one."""
    expected, at = read_varint(data, 0)
    content = bytearray()
    while at < len(data):
        kind = data[at] & 3
        size = data[at] >> 2
        if kind == 0:
            at += 1
            if size >= 60:
                width = size - 59
                size = int.from_bytes(_take(data, at, width), "little")
                at += width
            content += _take(data, at, size + 1)
            at += size + 1
        else:
            if kind == 1:
                offset = (data[at] >> 5) << 8 | _take(data, at + 1, 1)[0]
                length = 4 + (size & 7)
                at += 2
            else:
                width = 2 if kind == 2 else 4
                offset = int.from_bytes(_take(data, at + 1, width), "little")
                length = 1 + size
                at += 1 + width
            _repeat(content, offset, length)
        if len(content) > expected:
            break
    if len(content) != expected:
        raise ValueError(f"a snappy block has {len(content)} bytes of content where it says {expected}")
    return bytes(content)


def _take(data: bytes, at: int, count: int) -> bytes:
    taken = data[at : at + count]
    if len(taken) != count:
        raise ValueError(f"a snappy block ends {count - len(taken)} bytes early")
    return taken


def _repeat(content: bytearray, offset: int, length: int) -> None:
    if not 0 < offset <= len(content):
        raise ValueError(f"a snappy block copies from {offset} bytes before byte {len(content)}")
    while length > 0:  # a copy may overlap its own output, which repeats the pattern
        start = len(content) - offset
        piece = content[start : start + length]
        content += piece
        length -= len(piece)
