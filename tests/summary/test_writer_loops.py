"""A FileWriter and the loops it lives in: before one runs, after one ended, over several."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from asyncmon.summary import FileWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Scalars = list[tuple[int, str, float]]


def test_what_is_added_before_a_loop_runs_waits_for_one(
    tmp_path: Path, scalars: Callable[[], Scalars]
) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)

    async def train() -> None:
        writer.add_scalar("loss", 0.5, 2)
        await writer.close()

    asyncio.run(train())
    assert scalars() == [(1, "loss", 1.0), (2, "loss", 0.5)]


def test_close_alone_writes_what_waits(tmp_path: Path, scalars: Callable[[], Scalars]) -> None:
    writer = FileWriter(tmp_path)
    writer.add_scalar("loss", 1.0, 1)
    asyncio.run(writer.close())
    assert scalars() == [(1, "loss", 1.0)]


def test_a_loop_that_ends_without_close_loses_nothing(
    tmp_path: Path, scalars: Callable[[], Scalars]
) -> None:
    writer = FileWriter(tmp_path)

    async def train(step: int) -> None:
        writer.add_scalar("loss", 1.0, step)
        await asyncio.sleep(0)
        writer.add_scalar("loss", 0.5, step + 1)

    asyncio.run(train(1))
    assert scalars() == [(1, "loss", 1.0), (2, "loss", 0.5)]
    asyncio.run(train(3))  # the writer may be used in the next loop
    assert scalars()[2:] == [(3, "loss", 1.0), (4, "loss", 0.5)]


def test_a_loop_that_ends_at_the_begin_of_a_write_loses_nothing(
    tmp_path: Path, scalars: Callable[[], Scalars]
) -> None:
    """Its call is cancelled before, or after, a thread has taken it."""
    writer = FileWriter(tmp_path, max_queue=10)

    async def train(turns: int) -> None:
        for step in range(10):
            writer.add_scalar("loss", 1.0, step)
        for _ in range(turns):
            await asyncio.sleep(0)

    for turns in range(6):
        asyncio.run(train(turns))
        assert len(scalars()) == 10 * (turns + 1)
