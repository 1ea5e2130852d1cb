"""Reading a sorted string table, the format of a TensorFlow checkpoint's ``.index`` file.

The file ends with a footer of 48 bytes: two block handles (varint offset and size; the first is of no
interest here, the second is the index block's), zeros, and 8 bytes of magic. A block is followed by one
byte for its compression (0: none, 1: snappy) and the masked CRC-32C of both. It holds entries (three
varints: how many bytes of the key are the previous key's, how many follow, how long the value is), an
array of restart points and their number (4 bytes each). The index block's values are the data blocks'
handles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import google_crc32c

from asyncmon.checkpoint.snappy import decompress
from asyncmon.protobuf import read_varint
from asyncmon.tf_types import masked

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5


def read_table(data: bytes) -> dict[bytes, bytes]:
    """Return the keys and values of a table.

    Raises:
        ValueError: the table is damaged.
    """
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
