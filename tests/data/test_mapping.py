"""``map``: order, concurrency, threads, and functions that fail, hang or are cancelled."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from asyncmon.data import from_iterable
from asyncmon.system.clock import monotonic
from asyncmon.testing import assert_nothing_left_behind, wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def wait(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


async def test_results_keep_their_order_by_default() -> None:
    data = from_iterable([3, 1, 2])
    assert [x async for x in data.map(wait, concurrency=3)] == [3, 1, 2]
    assert [x async for x in data.map(wait, concurrency=3, ordered=False)] == [1, 2, 3]


@pytest.mark.parametrize("ordered", [True, False])
async def test_so_many_calls_are_under_way_at_once(ordered: bool) -> None:
    running = most = 0

    async def count(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1
        return number

    data = from_iterable(range(20)).map(count, concurrency=4, ordered=ordered)
    assert sorted([x async for x in data]) == list(range(20))
    assert most == 4
    assert monotonic() == pytest.approx(5)


async def test_without_concurrency_nothing_is_called_ahead() -> None:
    called: list[int] = []

    async def note(number: int) -> int:
        called.append(number)
        return number

    async with from_iterable(range(9)).map(note) as data:
        walk = aiter(data)
        await anext(walk)
        await anext(walk)
        await asyncio.sleep(1)
    assert called == [0, 1]


async def test_with_concurrency_no_more_than_twice_that_is_called_ahead() -> None:
    called: list[int] = []

    async def note(number: int) -> int:
        called.append(number)
        return number

    async with from_iterable(range(99)).map(note, concurrency=4) as data:
        await anext(aiter(data))
        await asyncio.sleep(1)
    assert 1 < len(called) <= 9


async def test_a_plain_function_runs_in_threads() -> None:
    def name(number: int) -> str:
        return threading.current_thread().name

    async with assert_nothing_left_behind():
        names = [x async for x in from_iterable(range(100)).map(name, concurrency=2).prefetch(64)]
    assert {x.split(".")[0] for x in names} == {"map(test_a_plain_function_runs_in_threads"}


async def test_elements_of_a_fast_function_share_calls_of_the_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop = asyncio.get_running_loop()
    call_soon, returns = loop.call_soon_threadsafe, list[None]()

    def count(*args: Any, **kwargs: Any) -> asyncio.Handle:
        returns.append(None)
        return call_soon(*args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    await anext(aiter(from_iterable(range(1024)).map(abs).batch(1024)))
    assert 0 < len(returns) < 100


async def test_a_function_may_return_an_awaitable_for_some_elements() -> None:
    def double(number: int) -> Any:
        return wait(2 * number) if number % 10 == 9 else 2 * number

    data = from_iterable(range(64)).map(double).batch(64)
    assert (await anext(aiter(data))).tolist() == [2 * number for number in range(64)]


@pytest.mark.parametrize(
    "fn",
    [functools.partial(wait), lambda x: wait(x), type("C", (), {"__call__": staticmethod(wait)})()],
)
async def test_an_awaitable_result_is_awaited(fn: Any) -> None:
    assert [x async for x in from_iterable([2, 1]).map(fn, concurrency=2)] == [2, 1]


async def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="map needs a function"):
        from_iterable([1]).map(3)  # type: ignore[arg-type]  # the error is the subject
    with pytest.raises(ValueError, match="concurrency must be an integer of at least 1"):
        from_iterable([1]).map(wait, concurrency=0)


async def fail_at_two(number: int) -> int:
    await asyncio.sleep(0.1 * (3 - number))
    if number == 2:
        raise OSError("two")
    return number


def fail_at_two_in_a_thread(number: int) -> int:
    if number == 2:
        raise OSError("two")
    return number


async def fail_in_an_awaitable(number: int) -> int:
    return await fail_at_two(number)


@pytest.mark.parametrize(
    "fn", [fail_at_two, fail_at_two_in_a_thread, lambda x: fail_in_an_awaitable(x)]
)
@pytest.mark.parametrize("concurrency", [1, 4])
async def test_an_error_takes_the_place_of_its_result(fn: Any, concurrency: int) -> None:
    async with assert_nothing_left_behind():
        walk = aiter(from_iterable(range(4)).map(fn, concurrency=concurrency).prefetch(4))
        assert [await anext(walk), await anext(walk)] == [0, 1]
        with pytest.raises(OSError, match="two"):
            await anext(walk)


async def test_an_error_of_an_unordered_map_comes_when_nothing_else_does() -> None:
    async with assert_nothing_left_behind():
        walk = aiter(from_iterable(range(4)).map(fail_at_two, concurrency=4, ordered=False))
        assert {await anext(walk) for _ in range(3)} == {0, 1, 3}
        with pytest.raises(OSError, match="two"):
            await anext(walk)


async def test_an_error_of_the_input_comes_after_the_results() -> None:
    data = from_iterable(range(4)).map(fail_at_two_in_a_thread).map(wait, concurrency=3)
    walk = aiter(data)
    assert [await anext(walk), await anext(walk)] == [0, 1]
    with pytest.raises(OSError, match="two"):
        await anext(walk)


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_function_that_cancels_itself_is_an_error(ordered: bool) -> None:
    async def cancels(number: int) -> int:
        raise asyncio.CancelledError

    data = from_iterable(range(3)).map(cancels, concurrency=2, ordered=ordered)
    with pytest.raises(RuntimeError, match="was cancelled"):
        await anext(aiter(data))


async def test_stop_iteration_of_a_function_is_an_error_and_no_end() -> None:
    """AX-2: neither a silent end nor a hang."""
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        await anext(aiter(from_iterable(range(3)).map(lambda _: next(iter([])))))


async def test_closing_ends_calls_that_would_wait_for_ever() -> None:
    async def hang(number: int) -> int:
        await asyncio.Event().wait()
        return number

    async with assert_nothing_left_behind(), from_iterable(range(9)).map(hang, concurrency=4) as data:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await anext(aiter(data))


@pytest.mark.parametrize("ordered", [True, False])
async def test_closing_ends_a_wait_of_another_task(ordered: bool) -> None:
    data = from_iterable([3600]).map(wait, ordered=ordered)
    waiting = asyncio.ensure_future(anext(aiter(data)))
    await wait_all_tasks_blocked()
    await data.aclose()
    with pytest.raises(RuntimeError, match="was cancelled"):
        await waiting
    assert monotonic() == 0


async def test_a_cancelled_wait_loses_no_result() -> None:
    async with from_iterable([1, 2, 3]).map(wait, concurrency=2).batch(2) as data:
        walk = aiter(data)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.6):
                    await anext(walk)
        assert (await anext(walk)).tolist() == [1, 2]
        assert (await anext(walk)).tolist() == [3]
