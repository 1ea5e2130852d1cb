"""Going through a dataset: walks, passes, sharing, closing."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator

import numpy as np
import pytest

from asyncmon import errors
from asyncmon.data import from_arrays, from_iterable
from asyncmon.data.dataset import Iteration
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def endless() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


async def test_a_finished_walk_is_followed_by_a_new_pass() -> None:
    data = from_iterable(lambda: iter([1, 2])).prefetch(2)
    assert [x async for x in data] == [1, 2]
    assert [x async for x in data] == [1, 2]


async def test_a_walk_that_was_left_is_gone_on_with() -> None:
    data = from_iterable(range(6)).prefetch(4)
    async for number in data:
        if number == 2:
            break
    assert [x async for x in data] == [3, 4, 5]
    assert [x async for x in data] == [0, 1, 2, 3, 4, 5]


async def test_datasets_built_on_one_another_have_positions_of_their_own() -> None:
    base = from_iterable(range(4))
    left, right = base.batch(2), base.map(str)
    assert (await anext(aiter(left))).tolist() == [0, 1]
    assert await anext(aiter(right)) == "0"
    assert [x async for x in base] == [0, 1, 2, 3]


async def test_a_loop_that_is_left_leaves_nothing_behind() -> None:
    async with assert_nothing_left_behind():
        async for number in from_iterable(endless).map(str, concurrency=2).prefetch(8):
            if number == "20":
                break
        gc.collect()


async def test_a_walk_dropped_in_another_thread_is_closed_on_its_loop() -> None:
    async with assert_nothing_left_behind():
        walks = [aiter(from_iterable(endless).prefetch(2))]
        await anext(walks[0])
        await asyncio.to_thread(walks.clear)
        await wait_all_tasks_blocked()


async def test_a_walk_dropped_after_its_loop_is_closed_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", errors.append)

    async def begin() -> Iteration:
        walk = aiter(from_iterable(range(3)))
        assert await anext(walk) == 0
        return walk

    walks = [await asyncio.to_thread(asyncio.run, begin())]
    walks.clear()
    gc.collect()
    assert errors == []


async def test_a_loop_over_elements_at_hand_lets_other_tasks_run(turns: list[None]) -> None:
    one_by_one = from_iterable(range(2)).interleave(lambda _: [0] * 50, cycle_length=2)
    assert len([number async for number in one_by_one]) == 100
    assert len(turns) >= 100


async def test_a_new_walk_ends_the_earlier_one() -> None:
    data = from_iterable(endless).prefetch(2)
    first = aiter(data)
    assert await anext(first) == 0
    second = aiter(data)
    assert await anext(second) == 1
    with pytest.raises(StopAsyncIteration):
        await anext(first)
    await data.aclose()
    await data.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(second)


async def test_two_tasks_cannot_wait_in_one_walk() -> None:
    async def never() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async with from_iterable(never) as data:
        walk = aiter(data)
        waiting = asyncio.ensure_future(walk.__anext__())
        await wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="get_next"):
            await anext(walk)
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_several_tasks_share_a_dataset_by_get_next() -> None:
    data = from_iterable(range(20)).prefetch(3)
    got: list[int] = []

    async def consume() -> None:
        while True:
            got.append(await data.get_next())
            await asyncio.sleep(0.1)

    async with assert_nothing_left_behind():
        ends = await asyncio.gather(*[consume() for _ in range(3)], return_exceptions=True)
    assert sorted(got) == list(range(20))
    assert all(isinstance(end, errors.OutOfRangeError) for end in ends)
    with pytest.raises(errors.OutOfRangeError, match="The data is at its end"):
        await data.get_next()


async def test_get_next_continues_at_a_loaded_position() -> None:
    data = from_iterable(range(3))
    start = data.state_dict()
    assert [await data.get_next() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(errors.OutOfRangeError):
        await data.get_next()
    data.load_state_dict(start)
    assert await data.get_next() == 0


async def test_a_cancellation_while_closing_is_passed_on_when_all_is_closed() -> None:
    closed = asyncio.Event()

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            closed.set()

    data = from_iterable(source).prefetch(2)
    walk = aiter(data)
    assert await anext(walk) == 1
    closing = asyncio.create_task(data.aclose())
    await wait_all_tasks_blocked()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert closed.is_set()


async def test_arrays_need_the_same_number_of_rows() -> None:
    with pytest.raises(ValueError, match=r"array 0 of shape \(3,\), array 1 of shape \(2, 2\)"):
        from_arrays({"x": np.zeros(3), "y": np.zeros((2, 2))})
    with pytest.raises(ValueError, match="scalar"):
        from_arrays(np.zeros(()))
    with pytest.raises(ValueError, match="no array"):
        from_arrays({})


async def test_rows_come_as_copies_in_the_structure_of_the_source() -> None:
    arrays = (np.arange(6).reshape(3, 2), {"y": np.arange(3)})
    rows = [row async for row in from_arrays(arrays)]
    assert rows[1][0].tolist() == [2, 3]
    assert rows[1][1]["y"] == 1
    rows[1][0][:] = 9
    assert arrays[0][1, 0] == 2
    assert [x.tolist() async for x in from_iterable(np.eye(2))] == [[1, 0], [0, 1]]


async def test_a_description_says_what_it_is_made_of() -> None:
    data = from_iterable(range(9)).shuffle(3, seed=1).map(str).repeat(2).take(4).batch(2).prefetch(3)
    steps = "(3, seed=1)).map(str).repeat(2).take(4).batch(2).prefetch(3)"
    assert repr(data) == f"from_iterable(range of 9 elements.shuffle{steps}"
    assert (
        repr(from_iterable(endless).zip([1]))
        == "from_iterable(endless).zip(from_iterable(list of 1 elements))"
    )
    assert repr(from_iterable([1]).interleave(list, 3, 2)).endswith(".interleave(3, 2)")
    assert (
        repr(from_arrays(np.eye(2)).map(str, ordered=False))
        == "from_arrays(2 elements).map(str, ordered=False)"
    )
