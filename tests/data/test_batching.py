"""Batches: sizes, kinds of elements, and the threads that make them."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from asyncmon.data import from_arrays, from_iterable, stack

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Point(NamedTuple):
    x: Any
    y: Any


async def test_the_last_batch_is_smaller_or_left_out() -> None:
    data = from_iterable(range(5))
    assert [batch.tolist() async for batch in data.batch(2)] == [[0, 1], [2, 3], [4]]
    assert [batch.tolist() async for batch in data.batch(2, drop_remainder=True)] == [[0, 1], [2, 3]]
    assert [batch.tolist() async for batch in data.batch(9)] == [[0, 1, 2, 3, 4]]
    assert [batch async for batch in from_iterable([]).batch(2)] == []


@pytest.mark.parametrize("size", [0, -1, 2.5, None])
async def test_a_size_is_a_positive_integer(size: Any) -> None:
    with pytest.raises(ValueError, match="size must be an integer of at least 1"):
        from_iterable(range(5)).batch(size)


async def test_elements_are_stacked_by_their_kind() -> None:
    assert stack([1, 2]).dtype == np.int64
    assert stack([True, False]).dtype == np.bool_
    assert stack([np.float32(1), np.float32(2)]).dtype == np.float32
    assert stack([np.zeros(3), np.ones(3)]).shape == (2, 3)
    assert stack(["a", "bcd"]).dtype == object
    assert stack([b"a", b"bcd"]).tolist() == [b"a", b"bcd"]
    assert stack([None, None]) == [None, None]
    mapping = stack([{"x": 1, "y": (2, 3)}, {"x": 4, "y": (5, 6)}])
    assert mapping["x"].tolist() == [1, 4]
    assert [part.tolist() for part in mapping["y"]] == [[2, 5], [3, 6]]
    point = stack([Point(1, 2), Point(3, 4)])
    assert isinstance(point, Point)
    assert point.y.tolist() == [2, 4]
    with pytest.raises(ValueError, match=r"same keys: found \['x'\] and \['y'\]"):
        stack([{"x": 1}, {"y": 1}])


async def test_rows_of_arrays_are_batched_in_the_structure_of_the_source() -> None:
    arrays = {"x": np.arange(12.0).reshape(6, 2), "y": np.arange(6)}
    batches = [batch async for batch in from_arrays(arrays).batch(4)]
    assert [batch["x"].shape for batch in batches] == [(4, 2), (2, 2)]
    assert batches[1]["y"].tolist() == [4, 5]
    batches[0]["x"][:] = -1  # a batch is a copy
    assert arrays["x"][0, 0] == 0
    points = [batch async for batch in from_arrays(Point(arrays["x"], arrays["y"])).batch(6)]
    assert isinstance(points[0], Point)


async def test_a_collate_function_makes_the_batch() -> None:
    data = from_arrays(np.arange(4)).batch(2, collate=lambda rows: sum(map(int, rows)))
    assert [batch async for batch in data] == [1, 5]


async def test_slow_collation_is_done_in_a_thread() -> None:
    threads = set()

    def slow(elements: Any) -> int:
        threads.add(threading.current_thread())
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        return len(elements)

    assert [batch async for batch in from_iterable(range(12)).batch(2, collate=slow)] == [2] * 6
    assert threading.main_thread() not in threads


async def test_quick_collation_is_done_on_the_loop_once_it_is_known_to_be_quick() -> None:
    def where(elements: Any) -> bool:
        return threading.current_thread() is threading.main_thread()

    found = [here async for here in from_iterable(range(200)).batch(2, collate=where)]
    assert not found[0]
    assert any(found)  # not all: a pause of the machine looks like slow collation


async def test_an_error_of_the_collation_reaches_the_consumer() -> None:
    data = from_iterable([np.zeros(2), np.zeros(3)]).batch(2).prefetch(2)
    with pytest.raises(ValueError, match="shape"):
        await anext(aiter(data))


async def test_batches_of_elements_that_come_one_by_one() -> None:
    async def source() -> AsyncIterator[int]:
        for number in range(7):
            yield number

    data = from_iterable(source).prefetch(3).batch(2)
    assert [batch.tolist() async for batch in data] == [[0, 1], [2, 3], [4, 5], [6]]


async def test_rows_of_several_chunks_and_sources_are_joined() -> None:
    left, right = from_arrays(np.arange(3)), from_arrays(np.arange(10, 13))
    both = from_iterable([left, right]).interleave(lambda data: data, cycle_length=2).batch(4)
    assert [batch.tolist() async for batch in both] == [[0, 10, 1, 11], [2, 12]]
    tenth = from_arrays(np.arange(10)).prefetch(2).batch(5)
    assert [batch.tolist() async for batch in tenth] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
