"""The blocks of shared memory between a process and its child."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import pytest

from asyncmon.distributed.local_stream import CALL, SHARED, Inbox, Outbox, Stream
from asyncmon.distributed.wire import Message


class Memory:
    """Notes each mapping and its thread. Mappings are no larger than the copies of the tests."""

    def __init__(self, blocks: int = 99) -> None:
        self.left = blocks
        self.mapped: list[int] = []
        self.threads: list[threading.Thread] = []

    def map(self, start: int, size: int, *, new: bool = False) -> mmap.mmap:
        if not self.left:
            raise OSError("no memory")
        self.left -= 1
        self.mapped.append(start)
        self.threads.append(threading.current_thread())
        return mmap.mmap(-1, min(size, 1 << 22))


class Transport:
    def __init__(self) -> None:
        self.written = 0

    def write(self, data: bytes) -> None:
        self.written += 1


def sender(memory: Any) -> tuple[Outbox, Stream, Transport]:
    outbox, transport = Outbox(memory), Transport()
    stream = Stream(outbox, Inbox(memory), lambda *_: None, lambda: None)
    stream.connection_made(transport)  # type: ignore[arg-type]  # the part in use
    return outbox, stream, transport


@pytest.mark.asyncio
async def test_a_message_without_memory_leaves_none_of_its_blocks_in_use() -> None:
    """Its small buffers, which have no block, do not hold back the others."""
    memory = Memory(blocks=1)
    outbox, stream, transport = sender(memory)
    with pytest.raises(OSError, match="no memory"):
        await stream.send(CALL, 1, Message(b"", [b"small", bytes(SHARED), bytes(SHARED)]))
    assert transport.written == 0
    assert outbox.put(bytes(SHARED))[0] == memory.mapped[0]


@pytest.mark.asyncio
async def test_only_large_data_is_copied_in_a_thread() -> None:
    memory = Memory()
    _, stream, transport = sender(memory)
    for size in (1 << 20, 1 << 21):
        await stream.send(CALL, 1, Message(b"", [bytes(size)]))
    assert [thread is threading.current_thread() for thread in memory.threads] == [True, False]
    assert transport.written == 2


def test_a_received_block_stays_mapped_unless_it_is_larger_than_what_is_kept() -> None:
    memory: Any = Memory()
    inbox = Inbox(memory)
    small, large = 0, SHARED
    for _ in range(3):
        inbox.take(small, SHARED, SHARED)
        inbox.take(large, (1 << 26) + SHARED, SHARED)
    assert memory.mapped == [small, large, large, large]
    for _ in range(2):
        inbox.take(2 * SHARED, 1 << 26, SHARED)
    assert memory.mapped[4:] == [2 * SHARED]
    assert list(inbox.free) == [small, large] * 3 + [2 * SHARED] * 2
