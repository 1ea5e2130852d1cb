"""``shuffle``: every element once, the same order for the same seed, another in every pass."""

from __future__ import annotations

import numpy as np
import pytest

from asyncmon.data import Dataset, from_arrays, from_iterable, shuffling

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def order(data: Dataset) -> list[int]:
    return [int(number) async for number in data]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 2500])
@pytest.mark.parametrize("buffer", [1, 10, 1024, 5000])
async def test_every_element_comes_once(count: int, buffer: int) -> None:
    assert sorted(await order(from_iterable(range(count)).shuffle(buffer, seed=1))) == list(
        range(count)
    )


async def test_the_seed_decides() -> None:
    def make(seed: int | None) -> Dataset:
        return from_iterable(range(100)).shuffle(50, seed)

    assert await order(make(1)) == await order(make(1))
    assert await order(make(1)) != await order(make(2))
    assert await order(make(None)) != await order(make(None))
    assert await order(make(1)) != list(range(100))


async def test_every_pass_has_another_order() -> None:
    data = from_iterable(range(30)).shuffle(30, seed=1)
    first, second = await order(data), await order(data)
    assert first != second
    repeated = await order(from_iterable(range(30)).shuffle(30, seed=1).repeat(2))
    assert repeated[:30] != repeated[30:]


async def test_the_order_does_not_depend_on_how_it_is_requested() -> None:
    def make() -> Dataset:
        return from_iterable(range(3000)).shuffle(100, seed=1)

    one_by_one = await order(make())
    assert await order(make().prefetch(64)) == one_by_one
    assert [x async for batch in make().batch(7) for x in batch.tolist()] == one_by_one
    rows = from_arrays(np.arange(3000)).shuffle(100, seed=1).batch(64).prefetch(3)
    assert [x async for batch in rows for x in batch.tolist()] == one_by_one


async def test_an_element_comes_no_earlier_than_the_buffer_allows() -> None:
    got = await order(from_iterable(range(1000)).shuffle(10, seed=1))
    assert all(number <= place + 10 for place, number in enumerate(got))


async def test_a_buffer_as_large_as_the_data_makes_every_order_equally_likely() -> None:
    first = [(await order(from_iterable(range(4)).shuffle(4, seed)))[0] for seed in range(400)]
    counts = np.bincount(first, minlength=4)
    assert counts.min() > 70  # of 100 expected: six standard deviations would be 48


async def test_filling_a_large_buffer_does_not_hold_the_loop(turns: list[None]) -> None:
    data = from_iterable(range(50_000)).shuffle(50_000, seed=1).batch(1000)
    assert len([batch async for batch in data]) == 50
    assert shuffling._LONG < 50_000  # so the permutation was drawn in a thread
    assert len(turns) > 40


async def test_filling_a_buffer_lets_other_tasks_run(turns: list[None]) -> None:
    await anext(aiter(from_iterable(range(30_000)).shuffle(20_000, seed=1)))
    assert len(turns) >= 20
