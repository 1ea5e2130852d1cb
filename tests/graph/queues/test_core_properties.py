"""Elements survive cancelled takes and puts, at any moment, and keep each producer's order."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.errors import OutOfRangeError
from asyncmon.graph.queues.core import QueueCore, Request
from asyncmon.graph.queues.order import FirstInFirstOut
from asyncmon.testing import run

DISTURBANCES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)
"""For each operation: how many turns of the loop it gets, and whether it is cancelled then."""

RUNS = st.lists(
    st.tuples(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 40)), max_size=5
)
"""For each run: how many elements it puts in each of its operations, and when it is cancelled."""


async def put(core: QueueCore, number: int, value: int) -> None:
    core.commit(await core.put(object(), [(number, value)]))


async def take(core: QueueCore, owner: object, count: int) -> list[Any]:
    return (await core.take(owner, count, at_most=True)).elements


@given(
    disturbances=DISTURBANCES,
    capacity=st.integers(1, 4),
    producers=st.integers(1, 3),
    count=st.integers(1, 5),
)
@settings(max_examples=60)
def test_nothing_is_lost_or_doubled_by_cancelling(
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
                taking = asyncio.ensure_future(take(core, "consumer", count))
                if not await survived(taking):
                    continue
                if taking.exception() is not None:
                    return
                got.extend(taking.result())

        consumer = asyncio.ensure_future(consume())
        await asyncio.gather(*[produce(core, number) for number in range(producers)])
        core.close()
        await consumer
        for number in range(producers):
            assert [value for producer, value in got if producer == number] == list(range(6))

    run(main())


async def put_in_a_run(core: QueueCore, number: int, counts: list[int], turns: int) -> bool:
    """Put these many elements after each other, all in one run; return whether it committed."""
    rooms: list[Request] = []
    values = itertools.count()

    async def all_of_it() -> None:
        run = object()
        for count in counts:
            rooms.append(await core.put(run, [(number, next(values)) for _ in range(count)]))
            await asyncio.sleep(0)

    putting = asyncio.ensure_future(all_of_it())
    if turns < 30:
        for _ in range(turns):
            await asyncio.sleep(0)
        putting.cancel()
    await asyncio.wait([putting])
    for room in rooms:
        (core.release if putting.cancelled() else core.commit)(room)
    return not putting.cancelled()


@given(
    runs=RUNS,
    capacity=st.integers(1, 6),
    minimum=st.integers(0, 5),
    count=st.integers(1, 4),
)
@settings(max_examples=150)
def test_runs_that_put_more_than_fits_end_and_nothing_is_lost_or_doubled(
    runs: list[tuple[list[int], int]], capacity: int, minimum: int, count: int
) -> None:
    async def main() -> None:
        core = QueueCore("FIFOQueue 'q'", FirstInFirstOut(), capacity, min(minimum, capacity - 1))
        got: list[Any] = []

        async def consume() -> None:
            with contextlib.suppress(OutOfRangeError):
                while True:
                    got.extend(await take(core, object(), count))

        consumer = asyncio.ensure_future(consume())
        committed = await asyncio.gather(
            *[put_in_a_run(core, number, *run) for number, run in enumerate(runs)]
        )
        core.close()
        await consumer
        for number, (counts, _turns) in enumerate(runs):
            values = [value for producer, value in got if producer == number]
            assert values == list(range(sum(counts) if committed[number] else len(values)))
            assert committed[number] or not values or sum(counts) > capacity - minimum or len(runs) > 1

    run(main())
