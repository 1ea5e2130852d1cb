"""The messages between a process and its children: a kind, a length, and pickled data."""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol

CALL = b"c"
"""An element, and the version of a policy or None."""
WEIGHTS = b"w"
"""Weights for the calls that follow."""
RESULT = b"r"
"""The value of a call; None once the function is imported."""
ERROR = b"e"
"""A phrase of an error, the pickled error or None, and its traceback."""

HEADER = struct.Struct("!cQ")


class Output(Protocol):
    """What a message is written into."""

    def write(self, data: bytes, /) -> object: ...


def write_frame(output: Output, kind: bytes, data: bytes) -> None:
    """Write a message."""
    output.write(HEADER.pack(kind, len(data)))
    output.write(data)


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the kind and the data of the next message. IncompleteReadError: there is none."""
    kind, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    return kind, await reader.readexactly(size)
