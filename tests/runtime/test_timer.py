"""Timers: by steps, by seconds, and ticks."""

from __future__ import annotations

import asyncio
import math

import pytest

from asyncmon.runtime import Coordinator, LooperTask, SecondOrStepTimer
from asyncmon.testing.pytest_plugin import VirtualTime

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


async def test_exactly_one_of_the_two_is_given_tm_1() -> None:
    with pytest.raises(ValueError, match=r"Either every_secs or every_steps should be provided\."):
        SecondOrStepTimer()
    with pytest.raises(ValueError, match=r"Can not provide both every_secs and every_steps\."):
        SecondOrStepTimer(every_secs=1, every_steps=1)


async def test_by_steps_tm_2() -> None:
    timer = SecondOrStepTimer(every_steps=3)
    assert timer.should_trigger_for_step(1)
    timer.update_last_triggered_step(1)
    assert [s for s in range(1, 8) if timer.should_trigger_for_step(s)] == [4, 5, 6, 7]


async def test_by_seconds_never_for_the_same_step_tm_2() -> None:
    timer = SecondOrStepTimer(every_secs=1.0)
    timer.update_last_triggered_step(1)
    await asyncio.sleep(0.9)
    assert not timer.should_trigger_for_step(2)
    await asyncio.sleep(0.2)
    assert not timer.should_trigger_for_step(1)
    assert timer.should_trigger_for_step(2)


async def test_update_gives_what_elapsed_tm_3() -> None:
    timer = SecondOrStepTimer(every_secs=1.0)
    assert timer.last_triggered_step() is None
    assert timer.update_last_triggered_step(1) == (None, None)
    await asyncio.sleep(2)
    assert timer.update_last_triggered_step(5) == (2, 4)
    assert timer.last_triggered_step() == 5
    timer.reset()
    assert timer.last_triggered_step() is None
    assert timer.should_trigger_for_step(5)


async def test_a_step_that_goes_backwards_is_due_tm_4() -> None:
    timer = SecondOrStepTimer(every_steps=10)
    timer.update_last_triggered_step(100)
    assert timer.should_trigger_for_step(95)
    assert timer.update_last_triggered_step(95) == (None, None)


async def test_zero_is_due_on_each_different_step_tm_4() -> None:
    for timer in (SecondOrStepTimer(every_steps=0), SecondOrStepTimer(every_secs=0)):
        timer.update_last_triggered_step(1)
        assert not timer.should_trigger_for_step(1)
        assert timer.should_trigger_for_step(2)


async def _ticks(secs: float | None, busy: list[float], **options: bool) -> list[tuple[int, float]]:
    coord, seen = Coordinator(), []
    loop = asyncio.get_running_loop()
    start = loop.time()
    async for tick in coord.every(secs, **options):
        seen.append((tick, round(loop.time() - start, 6)))
        if not busy:
            coord.request_stop()
        else:
            await asyncio.sleep(busy.pop(0))
    return seen


async def test_ticks_do_not_drift() -> None:
    assert await _ticks(0.1, [0.03] * 99) == [(n, round(n * 0.1, 6)) for n in range(1, 101)]


async def test_ticks_missed_by_a_slow_body_are_skipped_ax_13() -> None:
    assert await _ticks(1.0, [2.5, 0.0, 1.0]) == [(1, 1.0), (4, 4.0), (5, 5.0), (6, 6.0)]


async def test_ticks_can_begin_at_once() -> None:
    assert await _ticks(1.0, [0.0, 0.0], immediately=True) == [(0, 0.0), (1, 1.0), (2, 2.0)]


async def test_ticks_without_an_interval_give_others_a_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await _ticks(None, [0.0] * 10)
    task.cancel()
    assert turns >= 10


async def test_a_stop_ends_the_ticks_at_once() -> None:
    coord, loop = Coordinator(), asyncio.get_running_loop()
    loop.call_later(0.5, coord.request_stop)
    assert [tick async for tick in coord.every(3600)] == []
    assert loop.time() == 0.5


@pytest.mark.parametrize("immediately", [False, True])
async def test_a_wait_that_is_given_up_loses_no_tick(immediately: bool) -> None:
    ticks, loop = Coordinator().every(10, immediately=immediately), asyncio.get_running_loop()
    seen: list[tuple[int, float]] = []
    while len(seen) < 3:
        try:
            async with asyncio.timeout(3):
                tick = await anext(ticks)
                seen.append((tick, loop.time()))
        except TimeoutError:
            continue
    assert seen == ([(0, 0), (1, 10), (2, 20)] if immediately else [(1, 10), (2, 20), (3, 30)])


async def test_a_clock_that_jumps_skips_ticks_and_continues(virtual_time: VirtualTime) -> None:
    """AX-13: the process was suspended, or other code held the loop: one tick, not a burst."""
    coord, seen = Coordinator(), []
    async for tick in coord.every(1):
        seen.append((tick, virtual_time.now()))
        if len(seen) == 2:
            virtual_time.spend(3600.5)
        elif len(seen) == 4:
            coord.request_stop()
    assert seen == [(1, 1), (2, 2), (3603, 3603), (3604, 3604)]


@pytest.mark.parametrize("secs", [None, 0, -1])
async def test_ticks_without_an_interval_count_on_and_stop(secs: float | None) -> None:
    assert [tick for tick, _ in await _ticks(secs, [0.0] * 3)] == [1, 2, 3, 4]
    assert [tick for tick, _ in await _ticks(secs, [0.0] * 3, immediately=True)] == [0, 1, 2, 3]


async def test_a_tick_in_a_body_that_is_cancelled_is_not_repeated() -> None:
    ticks = Coordinator().every(1)
    for expected in (1, 3):
        tick = await anext(ticks)
        assert tick == expected
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.5):
                await asyncio.Event().wait()


@pytest.mark.parametrize(("pause", "expected"), [(3, [(3, 30)]), (17, [(3, 37), (4, 40)])])
async def test_ticks_that_continue_others_keep_their_phase_and_catch_up_once(
    pause: float, expected: list[tuple[int, float]]
) -> None:
    loop = asyncio.get_running_loop()
    first = Coordinator().every(10)
    assert [await anext(first) for _ in range(2)] == [1, 2]
    await asyncio.sleep(pause)
    second = Coordinator().every(10, continuing=first)
    assert [(await anext(second), loop.time()) for _ in expected] == expected


async def test_an_interval_of_nan_is_refused() -> None:
    coord = Coordinator()
    for make in (
        lambda: coord.every(math.nan),
        lambda: SecondOrStepTimer(every_secs=math.nan),
        lambda: LooperTask(coord, math.nan, target=print),
    ):
        with pytest.raises(ValueError, match=r"_?secs=nan: pass a number of seconds"):
            make()
