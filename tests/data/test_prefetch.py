"""``prefetch``: ahead of the consumer, and never further than it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from asyncmon.data import from_iterable
from asyncmon.system.clock import monotonic
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Counting:
    """Counts the elements it has produced."""

    def __init__(self) -> None:
        self.produced = 0

    def plain(self) -> Iterator[int]:
        while True:
            self.produced += 1
            yield self.produced

    async def asynchronous(self) -> AsyncIterator[int]:
        while True:
            self.produced += 1
            yield self.produced


@pytest.mark.parametrize("depth", [1, 2, 5, 64, 500])
@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
@pytest.mark.parametrize("batch", [None, 8])
async def test_no_more_than_depth_elements_are_made_ahead(
    depth: int, kind: str, batch: int | None
) -> None:
    source = Counting()
    data = from_iterable(getattr(source, kind))
    data = data.batch(batch).prefetch(depth) if batch else data.prefetch(depth)
    consumed = 0
    async with data:
        async for _ in data:
            consumed += 1
            await wait_all_tasks_blocked()
            assert source.produced <= (consumed + depth) * (batch or 1)
            if consumed == 3:
                break
    assert source.produced > 3 * (batch or 1) or depth == 1


@pytest.mark.parametrize("kind", ["plain", "asynchronous"])
async def test_elements_taken_singly_are_replaced_in_runs_of_a_quarter_of_the_depth(kind: str) -> None:
    source = Counting()
    inner = from_iterable(getattr(source, kind)).prefetch(16)
    made = []
    async with from_iterable([0]).interleave(lambda _: inner, cycle_length=1) as data:
        walk = aiter(data)
        for _ in range(9):
            await anext(walk)
            await wait_all_tasks_blocked()
            made.append(source.produced)
    assert made == [16, 16, 16, 16, 20, 20, 20, 20, 24]


async def test_elements_are_made_while_the_consumer_works() -> None:
    async def source() -> AsyncIterator[int]:
        for number in range(10):
            await asyncio.sleep(1)
            yield number

    async for _ in from_iterable(source).prefetch(2):
        await asyncio.sleep(1)
    assert monotonic() == pytest.approx(11)


async def test_a_waiting_consumer_wakes_when_an_element_arrives() -> None:
    async def source() -> AsyncIterator[float]:
        for _ in range(3):
            await asyncio.sleep(60)
            yield monotonic()

    late = [monotonic() - sent async for sent in from_iterable(source).prefetch(8)]
    assert late == [0, 0, 0]


async def test_a_slow_consumer_of_small_batches_gets_all() -> None:
    source = Counting()
    data = from_iterable(source.asynchronous).prefetch(7).batch(3).prefetch(2).take(50)
    walk = aiter(data)
    got: list[int] = []
    for _ in range(50):
        got += (await anext(walk)).tolist()
        await asyncio.sleep(1)
    assert got == list(range(1, 151))


async def test_a_prefetching_task_that_is_cancelled_is_an_error_and_no_end() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    walk = aiter(from_iterable(source).take(9).prefetch(3))
    assert await anext(walk) == 1
    (task,) = [task for task in asyncio.all_tasks() - before if task.get_name() == "prefetch"]
    task.cancel()
    with pytest.raises(RuntimeError, match="prefetches was cancelled"):
        await anext(walk)
