"""A position is exact: after any number of elements, the rest follows, in any pipeline."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from asyncmon.data import Dataset, from_arrays, from_iterable
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def numbers(count: int) -> AsyncIterator[int]:
    for number in range(count):
        if number % 3 == 0:
            await asyncio.sleep(0.001)
        yield number


async def slowly(number: int) -> int:
    await asyncio.sleep(number * 7919 % 13 * 0.01)
    return number


def rows(count: int) -> Dataset:
    return from_iterable(range(100 * count, 100 * count + count + 3)).shuffle(3, seed=1)


PIPELINES: dict[str, Callable[[], Dataset]] = {
    "list": lambda: from_iterable(list(range(97))),
    "thread": lambda: from_iterable(lambda: iter(range(97))),
    "async": lambda: from_iterable(lambda: numbers(97)),
    "shuffle": lambda: from_iterable(lambda: iter(range(97))).shuffle(10, seed=3),
    "shuffle of numbers": lambda: from_iterable(range(97)).shuffle(10, seed=3),
    "large buffer": lambda: from_iterable(range(97)).shuffle(1000, seed=3).repeat(2),
    "several segments": lambda: from_iterable(range(3000)).shuffle(500, seed=3).batch(100),
    "batch": lambda: from_iterable(lambda: numbers(97)).batch(5),
    "all": lambda: from_iterable(lambda: numbers(40)).shuffle(16, 1).repeat(3).batch(7).prefetch(3),
    "map": lambda: from_iterable(range(97)).map(slowly, concurrency=4).prefetch(5).batch(3),
    "map in threads": lambda: from_iterable(range(97)).map(hex, concurrency=2).shuffle(11, 2),
    "zip": lambda: from_iterable(range(97)).shuffle(5, 1).zip(lambda: numbers(80)).prefetch(3),
    "interleave": lambda: from_iterable(range(9)).interleave(rows, 3, 2).prefetch(2).batch(3),
    "arrays": lambda: from_arrays(np.arange(50)).shuffle(50, 1).repeat().batch(8).take(20).prefetch(2),
}


def plain(element: Any) -> Any:
    return element.tolist() if hasattr(element, "tolist") else element


def stored(state: Any) -> Any:
    """Return a state as it comes back from a file of JSON."""
    return json.loads(json.dumps(state, default=lambda array: array.tolist()))


async def walk(data: Dataset, count: int) -> list[Any]:
    """Return the next elements and leave the loop."""
    taken: list[Any] = []
    async with data:
        async for element in data:
            taken.append(plain(element))
            if len(taken) == count:
                break
    return taken


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
async def test_resumed_input_continues_at_the_exact_element(make: Callable[[], Dataset]) -> None:
    """Ten random interruption points each, two in a row; the next test has fifty."""
    whole = [plain(element) async for element in make()]
    dice = random.Random(7)
    async with assert_nothing_left_behind():
        for _ in range(5):
            first = dice.randrange(1, len(whole))
            second = dice.randrange(1, len(whole) - first + 1)
            data = make()
            assert await walk(data, first) == whole[:first]
            state = stored(data.state_dict())
            data = make()
            data.load_state_dict(state)
            assert await walk(data, second) == whole[first : first + second]
            state = stored(data.state_dict())
            data = make()
            data.load_state_dict(state)
            assert await walk(data, len(whole) + 1) == whole[first + second :]
        data = make()
        assert await walk(data, len(whole)) == whole
        state = stored(data.state_dict())
        data = make()
        data.load_state_dict(state)
        assert await walk(data, 1) == []  # the end of the pass, not the next one


async def test_shuffled_input_resumes_at_fifty_random_points() -> None:
    def make() -> Dataset:
        return from_iterable(lambda: numbers(200)).shuffle(32, seed=5).repeat(2).batch(3).prefetch(4)

    whole = [plain(batch) async for batch in make()]
    assert sorted(chain(*whole)) == sorted([*range(200), *range(200)])
    for point in random.Random(1).sample(range(1, len(whole)), 50):
        data = make()
        assert await walk(data, point) == whole[:point]
        resumed = make()
        resumed.load_state_dict(stored(data.state_dict()))
        assert await walk(resumed, len(whole)) == whole[point:]


@pytest.mark.parametrize("seed", range(10))
async def test_an_unordered_map_loses_and_repeats_nothing_over_interruptions(seed: int) -> None:
    def make() -> Dataset:
        return from_iterable(range(50)).map(slowly, concurrency=5, ordered=False).prefetch(3).batch(3)

    dice = random.Random(seed)
    data, got = make(), list[int]()
    for _ in range(4):
        got += chain(*await walk(data, dice.randrange(1, 5)))
        state = stored(data.state_dict())
        data = make()
        data.load_state_dict(state)
    got += chain(*await walk(data, 100))
    assert sorted(got) == list(range(50))


async def test_an_unordered_map_resumes_twice_in_the_middle_of_earlier_results() -> None:
    def make() -> Dataset:
        return from_iterable(range(8)).map(slowly, concurrency=8, ordered=False)

    data = make().prefetch(8)
    async with data:
        iterator = aiter(data)
        got = [await anext(iterator)]
        await asyncio.sleep(1)
        state = stored(data.state_dict())
    order = [0, 7, 1, 2, 3, 4, 5, 6]  # as the calls end
    for count in (3, 8):
        data = make()
        data.load_state_dict(state)
        got += await walk(data, count)
        state = stored(data.state_dict())
    assert got == order


async def test_resuming_an_interleave_makes_no_more_elements_than_were_open() -> None:
    made: list[int] = []

    async def note(number: int) -> int:
        made.append(number)
        return number

    def make() -> Dataset:
        return from_iterable(range(9)).map(note).interleave(lambda x: [x] * 3, cycle_length=1)

    data = make()
    assert await walk(data, 2) == [0, 0]
    resumed = make()
    resumed.load_state_dict(stored(data.state_dict()))
    made.clear()
    assert await walk(resumed, 1) == [0]
    assert made == [0]


async def test_a_position_may_be_taken_before_the_first_element_and_after_the_last() -> None:
    data = from_iterable(range(3))
    fresh = from_iterable(range(3))
    fresh.load_state_dict(stored(data.state_dict()))
    assert await walk(fresh, 9) == [0, 1, 2]
    after = from_iterable(range(3)).shuffle(3, seed=1)
    assert sorted(await walk(after, 9)) == [0, 1, 2]
    assert after.state_dict()["passes"] == 1


async def test_later_passes_of_a_resumed_run_are_those_of_the_saved_one() -> None:
    """Also without a seed: positions remember the one that was drawn."""

    def make() -> Dataset:
        return from_iterable(range(20)).shuffle(20).repeat(3)

    data = make()
    first = await walk(data, 5)
    state = stored(data.state_dict())
    rest = await walk(data, 100)
    resumed = make()
    resumed.load_state_dict(state)
    assert await walk(resumed, 100) == rest
    assert len(first + rest) == 60


async def test_a_loaded_position_redirects_a_walk_under_way() -> None:
    data = from_iterable(range(10)).prefetch(4)
    got, state = [], None
    async for number in data:
        got.append(number)
        if number == 3 and state is None:
            state = data.state_dict()
        if number == 6 and len(got) == 7:
            data.load_state_dict(state)  # type: ignore[arg-type]  # not None by now
    assert got == [0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("name", ["list", "shuffled", "repeated"])
async def test_mark_keeps_its_position_while_the_dataset_advances(name: str) -> None:
    pipeline: Callable[[], Dataset] = {
        "list": lambda: from_iterable(lambda: iter(range(30))).prefetch(5),
        "shuffled": lambda: from_iterable(range(30)).shuffle(8, seed=2).map(slowly, concurrency=3),
        "repeated": lambda: from_iterable(range(30)).shuffle(4, seed=1).repeat(2).prefetch(2),
    }[name]
    data = pipeline()
    whole, marks = [], [data.mark()]
    async for element in data:
        whole.append(element)
        marks.append(data.mark())
    for place, mark in enumerate(marks[:-1]):
        again = pipeline()
        again.load_state_dict(mark())
        assert [x async for x in again] == whole[place:]


async def test_a_position_of_another_pipeline_is_refused_in_words() -> None:
    data = from_iterable(range(10)).batch(2)
    await walk(data, 1)
    other = from_iterable(range(10)).batch(3)
    with pytest.raises(ValueError, match=r"batch\(size=2\) where this one has batch\(size=3\)"):
        other.load_state_dict(data.state_dict())
    with pytest.raises(ValueError, match=r"seed=1.* where this one has .*seed=2"):
        from_iterable(range(9)).shuffle(3, 2).load_state_dict(
            {"format": 1, "passes": 0, "position": {"stage": "shuffle", "buffer": 3, "seed": 1}}
        )
    with pytest.raises(ValueError, match="state_dict"):
        other.load_state_dict({"next": 3})
    assert await walk(other, 1) == [[0, 1, 2]]


async def test_prefetch_and_ordered_map_can_be_changed_between_saving_and_loading() -> None:
    data = from_iterable(range(10)).map(slowly, concurrency=3).prefetch(4)
    await walk(data, 4)
    tuned = from_iterable(range(10)).prefetch(2)
    tuned.load_state_dict(data.state_dict())
    assert await walk(tuned, 99) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("short", [list(range(3)), lambda: iter(range(3)), lambda: numbers(3)])
async def test_a_source_that_became_shorter_is_an_error(short: Any) -> None:
    data = from_iterable(range(10))
    await walk(data, 5)
    shorter = from_iterable(short)
    shorter.load_state_dict(data.state_dict())
    with pytest.raises(ValueError, match="ended"):
        await walk(shorter, 1)


@pytest.mark.parametrize(("drop_remainder", "last"), [(False, [[40, 41]]), (True, [])])
async def test_batches_resume_with_and_without_their_remainder(
    drop_remainder: bool, last: list[Any]
) -> None:
    data = from_iterable(range(42)).batch(10, drop_remainder)
    await walk(data, 3)
    position = data.state_dict()
    resumed = from_iterable(range(42)).batch(10, drop_remainder)
    resumed.load_state_dict(position)
    assert await walk(resumed, 99) == [[*range(30, 40)], *last]
    shorter = from_iterable(range(20)).batch(10, drop_remainder)
    shorter.load_state_dict(position)
    with pytest.raises(ValueError, match=r"ended .*: 1 elements"):
        await walk(shorter, 1)


async def test_a_shuffle_over_a_source_that_became_shorter_is_an_error() -> None:
    data = from_iterable(range(3000)).map(int).shuffle(5, seed=1)
    await walk(data, 2900)
    shorter = from_iterable(range(100)).map(int).shuffle(5, seed=1)
    shorter.load_state_dict(data.state_dict())
    with pytest.raises(ValueError, match="position"):
        await walk(shorter, 1)
