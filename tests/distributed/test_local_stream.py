"""The blocks of shared memory between a process and its child."""

from __future__ import annotations

import mmap
from typing import Any, cast

from asyncmon.distributed.local_stream import SHARED, Inbox, Outbox


class Memory:
    """Notes what is mapped; each mapping is small, whatever its block."""

    def __init__(self) -> None:
        self.mapped: list[int] = []

    def map(self, start: int, size: int, *, new: bool = False) -> mmap.mmap:
        self.mapped.append(start)
        return mmap.mmap(-1, SHARED)


def test_a_block_that_is_released_twice_does_not_hold_back_the_others() -> None:
    memory = Memory()
    outbox = Outbox(cast("Any", memory))
    starts = [outbox.put(bytes(SHARED))[0] for _ in range(2)]
    outbox.release(starts[:1])
    outbox.release(starts)
    assert sorted(outbox.put(bytes(SHARED))[0] for _ in range(2)) == starts
    assert memory.mapped == starts


def test_a_received_block_stays_mapped_unless_it_is_larger_than_what_is_kept() -> None:
    memory = Memory()
    inbox = Inbox(cast("Any", memory))
    small, large = 0, SHARED
    for _ in range(3):
        inbox.take(small, SHARED, SHARED)
        inbox.take(large, (1 << 26) + SHARED, SHARED)
    assert memory.mapped == [small, large, large, large]
    inbox.take(2 * SHARED, 1 << 26, SHARED)
    inbox.take(2 * SHARED, 1 << 26, SHARED)
    assert memory.mapped[4:] == [2 * SHARED]
    assert list(inbox.free) == [small, large] * 3 + [2 * SHARED] * 2
