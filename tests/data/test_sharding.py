"""``shard`` splits a pass over processes; positions continue in another number of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncmon.data import Dataset, from_arrays, from_iterable
from asyncmon.testing import run

pytestmark = pytest.mark.fast


def whole(length: int) -> Dataset:
    return from_arrays(np.arange(length)).shuffle(7, seed=3)


async def taken(data: Dataset, count: int) -> list[list[int]]:
    """Return the next batches, as many as there are of ``count``."""
    found: list[list[int]] = []
    async for batch in data:
        found.append(list(map(int, batch)))
        if len(found) == count:
            break
    await data.aclose()
    return found


async def all_of(data: Dataset) -> list[int]:
    return [int(element) async for element in data]


@given(length=st.integers(0, 40), count=st.integers(1, 5), mapped=st.booleans())
@settings(max_examples=40, deadline=None)
def test_shards_are_the_pass_without_an_incomplete_round(length: int, count: int, mapped: bool) -> None:
    async def main() -> None:
        source = whole(length).map(int) if mapped else whole(length)
        order = await all_of(whole(length))
        complete = order[: length // count * count]
        for index in range(count):
            assert await all_of(source.shard(count, index)) == complete[index::count]

    run(main())


@given(
    length=st.integers(0, 60),
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    steps=st.integers(1, 3),
    size=st.integers(1, 4),
    order=st.sampled_from(["batch", "map", "repeat"]),
)
@settings(max_examples=60, deadline=None)
def test_each_element_of_a_pass_is_read_once_where_the_number_of_shards_changes(
    length: int, counts: list[int], steps: int, size: int, order: str
) -> None:
    def pipeline(count: int, index: int) -> Dataset:
        data = whole(length).shard(count, index)
        if order == "map":
            data = data.map(int, concurrency=2)
        if order == "repeat":
            data = data.repeat(1)
        return data.batch(size, collate=list).prefetch(2)

    async def main() -> None:
        expected = await all_of(whole(length).repeat(1) if order == "repeat" else whole(length))
        found: list[int] = []
        state: Any = None
        for number, count in enumerate(counts):
            is_last = number == len(counts) - 1
            shards = [pipeline(count, index) for index in range(count)]
            parts = []
            for data in shards:
                if state is not None:
                    data.load_state_dict(state)
                batches = await taken(data, 999 if is_last else steps) if data.passes == 0 else []
                parts.append([element for batch in batches for element in batch])
            found += [element for turn in zip(*parts, strict=True) for element in turn]
            state = shards[number % count].state_dict()  # that of any process
        assert found == expected[: len(found)]
        assert len(expected) - len(found) < max(counts)  # an incomplete last round

    run(main())


def test_a_batch_may_have_another_size_where_the_number_of_shards_changes() -> None:
    async def main() -> None:
        two = [whole(24).shard(2, rank).batch(3, collate=list) for rank in range(2)]
        for data in two:
            await taken(data, 2)
        one = whole(24).shard(1, 0).batch(6, collate=list)
        one.load_state_dict(two[0].state_dict())
        order = await all_of(whole(24))
        assert await taken(one, 9) == [order[12:18], order[18:]]

    run(main())


def test_another_number_of_shards_is_refused_by_steps_that_count_the_elements_of_one_process() -> None:
    async def main() -> None:
        data = from_iterable(range(20)).shard(2, 0).map(int).take(8)
        async for _ in data:
            break
        with pytest.raises(ValueError, match="Let only map, batch, repeat and"):
            from_iterable(range(20)).shard(1, 0).map(int).take(8).load_state_dict(data.state_dict())
        await data.aclose()

    run(main())


def test_a_shuffle_without_a_seed_and_an_index_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shuffle\(5\) before a shard needs a seed"):
        from_iterable(range(9)).shuffle(5).batch(2).shard(2, 0)
    with pytest.raises(ValueError, match="from 0 to 1, not 2"):
        from_iterable(range(9)).shard(2, 2)
