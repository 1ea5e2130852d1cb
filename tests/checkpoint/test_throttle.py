"""The pace of a save: its threads, their pauses, their end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from asyncmon.checkpoint import throttle
from asyncmon.checkpoint.throttle import Control, Pace
from asyncmon.errors import CancelledError

pytestmark = pytest.mark.asyncio

MEGABYTE = 1 << 20


async def test_one_failing_call_stops_the_others() -> None:
    control = Control()
    made: list[int] = []

    def fail() -> None:
        raise ValueError("first")

    def wait_for_stop() -> None:
        control.pause(10)
        control.check()

    calls: list[Callable[[], None]] = [fail, wait_for_stop]
    with pytest.raises(ValueError, match="first"):
        await asyncio.to_thread(throttle.each, calls, control)
    with pytest.raises(CancelledError, match="The save was stopped"):
        await asyncio.to_thread(throttle.each, [lambda: made.append(3)], stopped())
    assert made == []
    throttle.each([], Control())
    calls = [partial(made.append, number) for number in range(4)]
    await asyncio.to_thread(throttle.each, calls, Control())
    assert sorted(made) == [0, 1, 2, 3]


def stopped() -> Control:
    control = Control()
    control.stop()
    return control


async def test_a_thread_in_the_background_pauses_where_others_want_the_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = {"wall": 0.0, "processor": 0.0}
    monkeypatch.setattr(throttle, "_PAUSE_ALONE", 0.5)
    monkeypatch.setattr(throttle, "_INTERVAL", 4 * MEGABYTE)
    monkeypatch.setattr(time, "perf_counter", lambda: clocks["wall"])
    monkeypatch.setattr(time, "thread_time", lambda: clocks["processor"])
    pauses: list[float] = []

    class Watched(Control):
        def pause(self, seconds: float) -> None:
            pauses.append(seconds)
            clocks["wall"] += seconds
            super().pause(0)

    pace = Pace(Watched())
    for wall, processor in [(0.01, 0.01), (0.04, 0.01), (0.01, 0.01)]:
        for _ in range(4):
            clocks["wall"] += wall / 4
            clocks["processor"] += processor / 4
            pace.did(MEGABYTE)
    assert pauses == pytest.approx([0.005, 0.04, 0.005])


async def test_it_pauses_less_where_the_save_would_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(throttle, "_PAUSE_ALONE", 3.0)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(time, "thread_time", lambda: now)
    pauses: list[float] = []

    class Watched(Control):
        def pause(self, seconds: float) -> None:
            nonlocal now
            pauses.append(seconds)
            now += seconds

    for due, expected in [(100.0, [3.0, 3.0, 3.0, 3.0]), (8.0, [1.0, 1.0, 1.0, 1.0]), (2.0, [0.0] * 4)]:
        now = 0.0
        pauses.clear()
        control = Watched(due)
        control.left = 4 * MEGABYTE
        pace = Pace(control)
        for _ in range(4):
            now += 1.0
            pace.did(MEGABYTE)
        assert pauses == pytest.approx(expected)


async def test_several_calls_run_at_once_and_a_single_one_in_the_same_thread() -> None:
    all_of_them = threading.Barrier(8)
    throttle.each([partial(all_of_them.wait, 10)] * 8, Control())  # one after the other breaks it
    here: list[threading.Thread] = []
    throttle.each([lambda: here.append(threading.current_thread())], Control())
    assert here == [threading.current_thread()]


async def test_a_pause_ends_when_the_save_is_unthrottled_or_stopped() -> None:
    for order in (Control.unthrottle, Control.stop):
        control = Control()
        pausing = asyncio.create_task(asyncio.to_thread(control.pause, 3600))
        order(control)
        await pausing
    with pytest.raises(CancelledError, match="The save was stopped"):
        control.check()
