"""Wrote ``snappy.index`` and ``snappy.json`` beside it, with cramjam 2.14: ``python make_snappy.py``.

``snappy.index`` is ``many.ckpt.index`` with its blocks compressed, as TensorFlow wrote them before 1.0;
``snappy.json`` has pieces of text and what Google's snappy makes of them, in base64.
"""

import base64
import json
import os
import random
from pathlib import Path

import cramjam
import google_crc32c

from asyncmon.protobuf import read_varint as varint
from asyncmon.protobuf.tf_types import masked

os.chdir(Path(__file__).parent)


def put_varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def compressed(block: bytes) -> bytes:
    content = bytes(cramjam.snappy.compress_raw(block)) + b"\x01"
    return content + masked(google_crc32c.value(content)).to_bytes(4, "little")


def handle(data: bytes, at: int) -> tuple[int, int, int]:
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return offset, size, at


def entries(block: bytes) -> list[tuple[bytes, bytes]]:
    found, at, key = [], 0, b""
    end = len(block) - 4 * (int.from_bytes(block[-4:], "little") + 1)
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        key = key[:shared] + block[at : at + fresh]
        found.append((key, block[at + fresh : at + fresh + length]))
        at += fresh + length
    return found


old = Path("many.ckpt.index").read_bytes()
_, _, at = handle(old[-48:], 0)
start, size, _ = handle(old[-48:], at)
new = b""
index = b""
for key, value in entries(old[start : start + size]):
    block_at, block_size, _ = handle(value, 0)
    block = compressed(old[block_at : block_at + block_size])
    place = put_varint(len(new)) + put_varint(len(block) - 5)
    index += put_varint(0) + put_varint(len(key)) + put_varint(len(place)) + key + place
    new += block
index += (0).to_bytes(4, "little") + (1).to_bytes(4, "little")
block = compressed(index)
footer = put_varint(0) + put_varint(0) + put_varint(len(new)) + put_varint(len(block) - 5)
new += block + footer.ljust(40, b"\0") + old[-8:]
Path("snappy.index").write_bytes(new)

choose = random.Random(1)
texts = [
    b"",
    b"a",
    b"abcd" * 3000,
    choose.randbytes(300),
    b"".join(b"tower_%d/layer_%03d/kernel" % (n % 4, n) for n in range(60)),
    b"x" * 7000,
]
pairs = [[text, bytes(cramjam.snappy.compress_raw(text))] for text in texts]
encoded = [[base64.b64encode(one).decode() for one in pair] for pair in pairs]
Path("snappy.json").write_text(json.dumps(encoded) + "\n")
