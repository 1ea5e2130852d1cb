"""The connection of a process and its child: frames over a socket, large buffers in shared memory.

A frame has a kind, a number, and a message. Buffers of 64 kB or more are in blocks of shared memory,
which the sender writes. The receiver's arrays are views of them, and a block is free when the last of
these arrays is garbage. So data is copied once, and the receiver owns its arrays.
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np

from asyncmon.distributed.wire import Buffer, Message
from asyncmon.system.files import in_thread
from asyncmon.system.portable import SharedMemory, give_back

CALL, LOG, READY = range(3)
"""Kinds of frames: a request or a response, a log record of the child, and its readiness."""

SHARED = 1 << 16
"""The minimum bytes of a buffer in shared memory; the size of a block is a multiple."""

_INLINE = 1 << 20  # bytes copied on the loop's thread; more in a worker
_KEPT = 1 << 26  # bytes of free blocks kept for reuse
_MAPPED = 64  # blocks that the receiver keeps mapped
# Bytes of the rest, number, kind, counts of buffers and free blocks, bytes of the header.
_HEAD = struct.Struct("<QQBIII")
_PLACE = struct.Struct("<QQQ")  # offset of a block, its size, bytes of the buffer
_NOWHERE = (1 << 64) - 1  # the buffer is in the frame


class _Block(NamedTuple):
    start: int
    size: int
    mapping: mmap.mmap


class Outbox:
    """Blocks of shared memory that this process writes. Thread-safe."""

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._end = 0
        self._used: dict[int, _Block] = {}
        self._free: list[_Block] = []

    def put(self, data: Buffer) -> tuple[int, int, int]:
        """Copy a buffer into a block. Return the offset and size of the block, and the buffer's size.

        Raises:
            OSError: no memory.
        """
        nbytes = len(data)
        size = -(-nbytes // SHARED) * SHARED
        block = self._block(size)
        target = np.frombuffer(block.mapping, np.uint8, nbytes)
        # Releases the interpreter lock, which a slice assignment does not.
        np.copyto(target, np.frombuffer(data, np.uint8))
        return block.start, block.size, nbytes

    def release(self, starts: Iterable[int]) -> None:
        """Mark blocks as free."""
        dropped = []
        with self._lock:
            kept = sum([block.size for block in self._free])
            for start in starts:
                block = self._used.pop(start, None)
                if block is None:
                    continue
                kept += block.size
                if kept > _KEPT:
                    kept -= block.size
                    dropped.append(block)
                else:
                    self._free.append(block)
        for block in dropped:
            give_back(block.mapping)

    def _block(self, size: int) -> _Block:
        with self._lock:
            fitting = [block for block in self._free if size <= block.size <= 2 * size]
            if fitting:
                block = min(fitting, key=lambda block: block.size)
                self._free.remove(block)
                self._used[block.start] = block
                return block
            start, self._end = self._end, self._end + size
        block = _Block(start, size, self._memory.map(start, size, new=True))
        with self._lock:
            self._used[start] = block
        return block


class Inbox:
    """Blocks of shared memory that the other process writes.

    Attributes:
        free: offsets of blocks that are no longer used here, appended in any thread.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        self._mapped: OrderedDict[int, mmap.mmap] = OrderedDict()
        self.free: deque[int] = deque()

    def take(self, start: int, size: int, nbytes: int) -> memoryview:
        """Return the buffer in a block; the block is released with its last array."""
        mapping = self._mapped.pop(start, None)
        if mapping is None:
            mapping = self._memory.map(start, size)
        if size <= _KEPT:
            self._mapped[start] = mapping
        if len(self._mapped) > _MAPPED:
            self._mapped.popitem(last=False)
        owner = np.frombuffer(mapping, np.uint8, nbytes)
        weakref.finalize(owner, self.free.append, start).atexit = False
        return owner.data


class Stream(asyncio.Protocol):
    """See the module. For :meth:`asyncio.loop.create_connection`.

    Args:
        outbox: blocks for sent buffers.
        inbox: blocks of received buffers.
        received: called with the kind, the number and the message of each frame.
        lost: called once, at the end of the connection.
    """

    def __init__(
        self,
        outbox: Outbox,
        inbox: Inbox,
        received: Callable[[int, int, Message], None],
        lost: Callable[[], None],
    ) -> None:
        self._outbox = outbox
        self._inbox = inbox
        self._received = received
        self._lost = lost
        self._data = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is not derived from it

    def connection_lost(self, _error: Exception | None) -> None:
        """Report the end of the connection."""
        self._lost()

    def data_received(self, data: bytes) -> None:
        """Pass on complete frames."""
        self._data += data
        while len(self._data) >= _HEAD.size:
            size = _HEAD.size + _HEAD.unpack_from(self._data)[0]
            if len(self._data) < size:
                return
            if len(self._data) == size:
                frame, self._data = self._data, bytearray()
            else:
                frame = self._data[:size]
                del self._data[:size]
            self._received(*self._read(frame))

    async def send(self, kind: int, number: int, message: Message) -> None:
        """Send a frame. Large data is copied in a thread; a cancellation then sends nothing.

        Raises:
            OSError: no memory.
        """
        large = sum([len(buffer) for buffer in message.buffers if len(buffer) >= SHARED])
        if large > _INLINE:
            places = await in_thread(self._place, message.buffers, lost=self._give_up)
        else:
            places = self._place(message.buffers)
        self.write(kind, number, message, places)

    def write(
        self, kind: int, number: int, message: Message, places: Sequence[tuple[int, int, int]] = ()
    ) -> None:
        """Send a frame whose large buffers are in their blocks."""
        free = [self._inbox.free.popleft() for _ in range(len(self._inbox.free))]
        parts: list[Buffer] = [_PLACE.pack(*place) for place in places]
        if free:
            parts.append(struct.pack(f"<{len(free)}Q", *free))
        parts.append(message.header)
        pairs = zip(message.buffers, places, strict=True)
        parts += [buffer for buffer, place in pairs if place[0] == _NOWHERE]
        size = sum([len(part) for part in parts])
        head = _HEAD.pack(size, number, kind, len(places), len(free), len(message.header))
        self._transport.write(b"".join([head, *parts]))

    def close(self) -> None:
        """Close the connection, dropping unsent data."""
        self._transport.abort()

    def _place(self, buffers: Sequence[Buffer]) -> list[tuple[int, int, int]]:
        places: list[tuple[int, int, int]] = []
        try:
            for buffer in buffers:
                is_large = len(buffer) >= SHARED
                places.append(self._outbox.put(buffer) if is_large else (_NOWHERE, 0, len(buffer)))
        except BaseException:
            self._give_up(places)
            raise
        return places

    def _give_up(self, places: Sequence[tuple[int, int, int]]) -> None:
        self._outbox.release([place[0] for place in places])

    def _read(self, frame: bytearray) -> tuple[int, int, Message]:
        _, number, kind, count, freed, length = _HEAD.unpack_from(frame)
        at = _HEAD.size
        places = [_PLACE.unpack_from(frame, at + i * _PLACE.size) for i in range(count)]
        at += count * _PLACE.size
        if freed:
            self._outbox.release(struct.unpack_from(f"<{freed}Q", frame, at))
            at += 8 * freed
        view = memoryview(frame)
        header, at = bytes(view[at : at + length]), at + length
        buffers = []
        for start, size, nbytes in places:
            if start == _NOWHERE:
                buffers.append(view[at : at + nbytes])
                at += nbytes
            else:
                buffers.append(self._inbox.take(start, size, nbytes))
        return kind, number, Message(header, buffers)
