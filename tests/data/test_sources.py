"""Iterables as sources: threads, tasks, and what happens when they fail, hang or end early."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from asyncmon import errors
from asyncmon.data import from_iterable, stage
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def letters() -> AsyncIterator[str]:
    for letter in "abc":
        await asyncio.sleep(1)
        yield letter


class Squares:
    """Indexed, and slow enough to be read in a thread."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        return index * index


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ((1, 2), [1, 2]),
        (range(4), [0, 1, 2, 3]),
        (deque([1, 2]), [1, 2]),
        ({"k": 1, "l": 2}, ["k", "l"]),
        (frozenset([7]), [7]),
        (Squares(), [0, 1, 4, 9, 16]),
        (lambda: (x for x in "xy"), ["x", "y"]),
        (lambda: [5, 6], [5, 6]),
        (letters, ["a", "b", "c"]),
        (letters(), ["a", "b", "c"]),
        (lambda: letters(), ["a", "b", "c"]),
        (iter([8, 9]), [8, 9]),
        ([], []),
    ],
)
async def test_any_iterable_is_a_source(source: Any, expected: list[Any]) -> None:
    async with assert_nothing_left_behind():
        assert [element async for element in from_iterable(source)] == expected


async def test_a_plain_iterable_is_read_in_a_thread() -> None:
    def names() -> Iterator[str]:
        yield threading.current_thread().name

    (name,) = [name async for name in from_iterable(names)]
    assert name.startswith("reader of from_iterable(")


async def test_a_function_that_opens_an_iterable_runs_in_that_thread() -> None:
    def opened() -> list[str]:
        return [threading.current_thread().name]

    (name,) = [name async for name in from_iterable(opened)]
    assert name.startswith("reader of from_iterable(")


async def test_what_is_no_iterable_is_refused() -> None:
    with pytest.raises(TypeError, match="needs an iterable"):
        from_iterable(3)  # type: ignore[arg-type]  # the error is the subject
    with pytest.raises(TypeError, match="a string is no data"):
        from_iterable("file.txt")
    with pytest.raises(TypeError, match="expected to return an iterable"):
        await anext(aiter(from_iterable(lambda: 3)))  # type: ignore[arg-type, return-value]  # refused


async def test_a_function_is_called_for_every_pass_and_an_iterator_can_be_read_once() -> None:
    anew = from_iterable(lambda: iter([1, 2])).repeat(2)
    assert [number async for number in anew] == [1, 2, 1, 2]
    once = from_iterable(iter([1, 2])).repeat(2)
    with pytest.raises(ValueError, match="can be read once"):
        [number async for number in once]


async def test_an_error_comes_after_the_elements_before_it() -> None:
    def broken() -> Iterator[int]:
        yield from (1, 2)
        raise OSError("the disk is gone")

    async with assert_nothing_left_behind():
        walk = aiter(from_iterable(broken).prefetch(8))
        assert [await anext(walk), await anext(walk)] == [1, 2]
        for _ in range(2):  # and stays
            with pytest.raises(OSError, match="the disk is gone"):
                await anext(walk)


async def test_out_of_range_ends_a_source_cleanly() -> None:
    """AX-1: the end of the data can be raised inside an async function."""

    def plain() -> Iterator[int]:
        yield 1
        raise errors.OutOfRangeError("no more")

    async def asynchronous() -> AsyncIterator[int]:
        yield 1
        raise errors.OutOfRangeError("no more")

    assert [number async for number in from_iterable(plain).batch(2)] == [[1]]
    assert [number async for number in from_iterable(asynchronous).batch(2)] == [[1]]


async def test_a_source_at_its_end_is_not_read_again() -> None:
    class Refilled:
        """An iterator that would give more after the end it announced."""

        def __init__(self) -> None:
            self.asked = 0

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.asked += 1
            if self.asked == 3:
                raise errors.OutOfRangeError("no more")
            if self.asked == 6:
                raise StopIteration
            return self.asked

    source = Refilled()
    assert [number async for number in from_iterable(source)] == [1, 2]
    assert source.asked == 3


async def test_an_async_source_that_is_cancelled_from_within_is_an_error_and_no_end() -> None:
    async def source() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError

    with pytest.raises(RuntimeError, match="was cancelled"):
        [number async for number in from_iterable(source).prefetch(2)]


async def test_reading_an_async_source_that_never_waits_lets_other_tasks_run(
    turns: list[None],
) -> None:
    async def endless() -> AsyncIterator[int]:
        while True:
            yield 0

    async with from_iterable(endless).batch(100) as data:
        await anext(aiter(data))
        assert len(turns) >= 100


async def test_closing_ends_a_source_that_waits_for_ever() -> None:
    closed = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            closed.append("async")

    def generator() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append("thread")

    async with assert_nothing_left_behind():
        async with from_iterable(source).prefetch(2) as data:
            assert await anext(aiter(data)) == 1
        async with from_iterable(generator).prefetch(2) as data:
            async for _ in data:
                break
    assert closed == ["async", "thread"]


async def test_nothing_is_read_that_was_not_requested() -> None:
    produced = 0

    def plain() -> Iterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    async def asynchronous() -> AsyncIterator[int]:
        nonlocal produced
        while True:
            produced += 1
            yield produced

    for source in (plain, asynchronous):
        produced = 0
        async with from_iterable(source) as data:
            async for number in data:
                if number == 3:
                    break
        assert produced == 3


async def test_an_item_of_a_sequence_is_loaded_when_it_is_requested() -> None:
    loaded = []

    class Noted(Squares):
        def __getitem__(self, index: int) -> int:
            loaded.append(index)
            return super().__getitem__(index)

    async with from_iterable(Noted()) as data:
        walk = aiter(data)
        for number in range(3):
            assert await anext(walk) == number * number
            await wait_all_tasks_blocked()
            assert loaded == list(range(number + 1))


async def test_a_cancelled_wait_loses_no_element() -> None:
    data = from_iterable(letters)
    walk = aiter(data)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await anext(walk)
    assert [await anext(walk) for _ in range(3)] == ["a", "b", "c"]
    await walk.aclose()


async def test_a_source_that_ignores_its_cancellation_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn() -> AsyncIterator[int]:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield 1

    data = from_iterable(stubborn)
    waiting = asyncio.ensure_future(anext(aiter(data)))  # a coroutine
    await wait_all_tasks_blocked()
    waiting.cancel()
    await asyncio.wait([waiting])
    await data.aclose()
    assert "stubborn" in caplog.text
    assert "did not end within 5 s" in caplog.text
    release.set()
    await wait_all_tasks_blocked()


async def test_elements_arrive_while_the_thread_continues() -> None:
    go_on = threading.Event()

    def source() -> Iterator[int]:
        yield 1
        assert go_on.wait(10)
        yield 2

    async with from_iterable(source).prefetch(4) as data:
        walk = aiter(data)
        assert await anext(walk) == 1  # though the job of four elements hangs in the second
        go_on.set()
        assert await anext(walk) == 2


async def test_a_wake_reaches_waiters_only() -> None:
    waiter = stage.Waiter()
    waiter.wake()
    waiting = asyncio.ensure_future(waiter.wait())
    await wait_all_tasks_blocked()
    assert not waiting.done()
    waiter.wake()
    await waiting
