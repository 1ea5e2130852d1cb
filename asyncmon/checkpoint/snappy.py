"""Decompression of the snappy block format, in which old TensorFlow versions wrote index blocks.

A block is the varint length of its content, then elements; the low two bits of an element's first byte
say which: 00 a literal (bytes follow), 01, 10 and 11 a copy of earlier content, with an offset of 11,
16 and 32 bits.
"""

from __future__ import annotations

from asyncmon.protobuf import read_varint

__all__ = ["decompress"]


def decompress(data: bytes) -> bytes:
    """Return the content of a snappy block.

    Raises:
        ValueError: the block is damaged.
    """
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
    while length > 0:  # a copy may run into what it writes: then the pattern repeats
        start = len(content) - offset
        piece = content[start : start + length]
        content += piece
        length -= len(piece)
