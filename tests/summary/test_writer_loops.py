"""A FileWriter and the loops it lives in: before one runs, after one ended, over several."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from asyncmon.summary import FileWriter, FileWriterCache

Scalars = list[tuple[int, str, float]]


def test_events_added_before_a_loop_and_in_several_are_in_one_file(
    tmp_path: Path, scalars: Callable[[], Scalars], event_files: Callable[[], list[Path]]
) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)

    async def train(step: int) -> None:
        writer.add_scalar("loss", 0.5, step)
        await writer.flush()

    asyncio.run(train(2))
    writer.add_scalar("loss", 1.0, 3)
    asyncio.run(train(4))
    writer.add_scalar("loss", 1.0, 5)
    asyncio.run(writer.close())
    assert [step for step, _, _ in scalars()] == [1, 2, 3, 4, 5]
    assert len(event_files()) == 1


def test_close_alone_writes_what_is_pending(tmp_path: Path, scalars: Callable[[], Scalars]) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)
    asyncio.run(writer.close())
    assert scalars() == [(1, "loss", 1.0)]


def test_the_cache_needs_no_loop_and_has_one_writer_for_all(tmp_path: Path) -> None:
    async def get() -> FileWriter:
        return FileWriterCache.get(tmp_path)

    first = FileWriterCache.get(tmp_path)
    assert asyncio.run(get()) is asyncio.run(get()) is first
    asyncio.run(FileWriterCache.clear())
    assert first.closed
