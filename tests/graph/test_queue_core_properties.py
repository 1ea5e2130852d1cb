"""Elements survive cancelled takes and puts, at any moment, and keep each producer's order."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.graph.queue_core import FirstInFirstOut, QueueCore
from asyncmon.testing import run

DISTURBANCES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)
"""For each operation: how many turns of the loop it gets, and whether it is cancelled then."""


async def put(core: QueueCore, number: int, value: int) -> None:
    room = await core.reserve("producer", 1)
    core.fill(room, [(number, value)])
    core.commit(room)


@given(
    disturbances=DISTURBANCES,
    capacity=st.integers(1, 4),
    producers=st.integers(1, 3),
    count=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_or_doubled_whoever_is_cancelled(
    disturbances: list[tuple[int, bool]], capacity: int, producers: int, count: int
) -> None:
    remaining = iter(disturbances)

    async def survived(operation: asyncio.Future[Any]) -> bool:
        turns, cancel = next(remaining, (0, False))
        for _ in range(turns):
            await asyncio.sleep(0)
        if cancel:
            operation.cancel()
        await asyncio.wait([operation])
        return not operation.cancelled()

    async def produce(core: QueueCore, number: int) -> None:
        for value in range(6):
            while not await survived(asyncio.ensure_future(put(core, number, value))):
                pass

    async def main() -> None:
        core = QueueCore("FIFOQueue 'q'", FirstInFirstOut(), capacity)
        got: list[Any] = []

        async def consume() -> None:
            while True:
                taking = asyncio.ensure_future(core.take("consumer", count, at_most=True))
                if not await survived(taking):
                    continue
                if taking.exception() is not None:
                    return
                got.extend(taking.result().elements)

        consumer = asyncio.ensure_future(consume())
        await asyncio.gather(*[produce(core, number) for number in range(producers)])
        core.close()
        await consumer
        for number in range(producers):
            assert [value for who, value in got if who == number] == list(range(6))

    run(main())
