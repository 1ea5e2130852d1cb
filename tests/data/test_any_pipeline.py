"""A pipeline of any steps, interrupted anywhere, resumes at the exact element."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.data import Dataset, from_arrays, from_iterable
from asyncmon.testing import assert_nothing_left_behind, run


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        if number % 2:
            await asyncio.sleep(0.01)
        yield number


async def negative(value: Any) -> Any:
    await asyncio.sleep(0.01)
    return -value


SOURCES: dict[str, Callable[[int], Dataset]] = {
    "range": lambda n: from_iterable(range(n)),
    "thread": lambda n: from_iterable(lambda: iter(range(n))),
    "async": lambda n: from_iterable(lambda: numbers(n)),
    "arrays": lambda n: from_arrays(np.arange(n)),
}
STEPS: dict[str, Callable[[Dataset, int], Dataset]] = {
    "shuffle": lambda data, k: data.shuffle(k + 1, seed=k),
    "repeat": lambda data, k: data.repeat(k % 2 + 1),
    "take": lambda data, k: data.take(7 * k),
    "batch": lambda data, k: data.batch(k % 4 + 1, collate=list),
    "map": lambda data, k: data.map(str, concurrency=k % 3 + 1),
    "zip": lambda data, k: data.zip(from_iterable(range(30 + k)).shuffle(4, seed=k)),
    "interleave": lambda data, k: data.interleave(lambda value: [value] * 2, k % 3 + 1, k % 2 + 1),
    "prefetch": lambda data, k: data.prefetch(k + 1),
    "shard": lambda data, k: data.shard(k % 3 + 1, k % (k % 3 + 1)),
}


def plain(element: Any) -> Any:
    if isinstance(element, list | tuple):
        return [plain(part) for part in element]
    return element.item() if isinstance(element, np.generic | np.ndarray) else element


def stored(state: Any) -> Any:
    return json.loads(json.dumps(state, default=lambda array: array.tolist()))


async def walk(data: Dataset, count: int) -> list[Any]:
    taken: list[Any] = []
    async with data:
        walk = aiter(data)
        while len(taken) < count:
            try:
                taken.append(plain(await anext(walk)))
            except StopAsyncIteration:
                break
    return taken


@given(
    source=st.sampled_from(sorted(SOURCES)),
    length=st.integers(0, 40),
    steps=st.lists(st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 6)), max_size=4),
    points=st.lists(st.integers(0, 25), min_size=1, max_size=3),
)
@settings(max_examples=120)
def test_any_pipeline_resumes_anywhere(
    source: str, length: int, steps: list[tuple[str, int]], points: list[int]
) -> None:
    def make() -> Dataset:
        data = SOURCES[source](length)
        for step, size in steps:
            data = STEPS[step](data, size)
        return data

    async def main() -> None:
        async with assert_nothing_left_behind():
            whole = await walk(make(), 10_000)
            data, got = make(), list[Any]()
            for point in points:
                wanted = min(point, len(whole) - len(got))
                got += await walk(data, wanted)
                state = stored(data.state_dict())
                data = make()
                data.load_state_dict(state)
            got += await walk(data, 10_000)
            assert got == whole

    run(main())
