"""``repeat``, ``take``, ``zip`` and ``interleave``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from asyncmon.data import Dataset, from_iterable
from asyncmon.testing import assert_nothing_left_behind

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def letters(word: str) -> AsyncIterator[str]:
    for letter in word:
        await asyncio.sleep(1)
        yield letter


async def test_repeat_goes_through_the_elements_again() -> None:
    data = from_iterable(lambda: iter([1, 2]))
    assert [x async for x in data.repeat(3)] == [1, 2] * 3
    assert [x async for x in data.repeat().take(5)] == [1, 2, 1, 2, 1]
    assert [x async for x in data.repeat(2).repeat(2)] == [1, 2] * 4
    with pytest.raises(ValueError, match="count must be an integer of at least 1"):
        data.repeat(0)


async def test_an_endless_repeat_of_nothing_ends() -> None:
    assert [x async for x in from_iterable([]).repeat()] == []


async def test_an_endless_repeat_ends_at_the_first_empty_pass() -> None:
    passes = iter([[1, 2], [], [3]])
    assert [x async for x in from_iterable(lambda: next(passes)).repeat()] == [1, 2]


async def test_take_requests_no_more_than_it_gives() -> None:
    produced = 0

    def source() -> Iterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    assert [x async for x in from_iterable(source).prefetch(1).take(3).prefetch(8)] == [1, 2, 3]
    assert produced <= 4
    assert [x async for x in from_iterable([1, 2]).take(0)] == []
    assert [x async for x in from_iterable([1, 2]).take(9)] == [1, 2]
    with pytest.raises(ValueError, match="not negative"):
        from_iterable([1]).take(-1)


async def test_zip_ends_with_the_shortest() -> None:
    async with assert_nothing_left_behind():
        data = from_iterable(range(9)).zip(lambda: letters("abc"), [True] * 5)
        assert [x async for x in data] == [(0, "a", True), (1, "b", True), (2, "c", True)]


async def test_interleave_takes_blocks_in_turn() -> None:
    data = from_iterable(["aaa", "bbbbb", "", "c"]).interleave(list, cycle_length=2, block_length=2)
    assert "".join([x async for x in data]) == "aabbabbbc"
    over = from_iterable([from_iterable([1, 2]), from_iterable([3])]).interleave(lambda data: data)
    assert [x async for x in over] == [1, 3, 2]


async def test_interleave_follows_the_rule_of_the_original() -> None:
    """As TF's documentation has it: cycle 2, block 4, each element repeated six times."""
    data = from_iterable(range(1, 6)).interleave(lambda x: [x] * 6, cycle_length=2, block_length=4)
    expected = "1111 2222 11 22 3333 4444 33 44 5555 55"
    assert "".join([str(x) async for x in data]) == expected.replace(" ", "")


async def test_interleaved_datasets_may_be_opened_asynchronously() -> None:
    async def open_file(word: str) -> Dataset:
        await asyncio.sleep(1)
        return from_iterable(lambda: letters(word)).prefetch(2)

    async with assert_nothing_left_behind():
        data = from_iterable(["ab", "cd", "ef"]).interleave(open_file, cycle_length=3)
        assert [x async for x in data] == ["a", "c", "e", "b", "d", "f"]


async def test_what_is_no_dataset_cannot_be_interleaved() -> None:
    data = from_iterable([1, 2]).interleave(lambda number: number, cycle_length=2)
    with pytest.raises(TypeError, match="needs an iterable"):
        await anext(aiter(data))


async def test_an_error_in_one_of_several_inputs_closes_all() -> None:
    async def broken(word: str) -> AsyncIterator[str]:
        yield word
        raise OSError("gone")

    def fail(element: Any) -> Any:
        raise OSError("never opened")

    async with assert_nothing_left_behind():
        with pytest.raises(OSError, match="gone"):
            [x async for x in from_iterable(["a", "b"]).interleave(broken, cycle_length=2).prefetch(2)]
        with pytest.raises(OSError, match="never opened"):
            [x async for x in from_iterable(["a"]).interleave(fail)]
        once = from_iterable(iter([1]))
        assert [x async for x in once] == [1]
        with pytest.raises(ValueError, match="can be read once"):
            [x async for x in from_iterable(lambda: letters("ab")).zip(once)]
