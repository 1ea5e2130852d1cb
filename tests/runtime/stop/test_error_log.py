"""The error log of a coordinator: each error of any kind and reporter is kept."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from asyncmon.runtime import Coordinator
from asyncmon.runtime.stop.error_log import ErrorLog

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.fixture
def hasty_switches() -> Iterator[None]:
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_switches")
async def test_of_errors_from_many_threads_one_is_primary_and_has_all_others_attached_co_19() -> None:
    for _ in range(20):
        coord = Coordinator()
        errors = [ValueError(f"error {number}") for number in range(8)]
        start = threading.Barrier(len(errors))

        def report(error: Exception, start: Any = start, coord: Any = coord) -> None:
            start.wait()
            coord.request_stop(error)

        threads = [threading.Thread(target=report, args=[error]) for error in errors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(ValueError, match="error") as caught:
            await coord.join()
        assert set(coord.errors) == set(errors)
        assert caught.value is coord.errors[0]
        notes = caught.value.__notes__
        assert sorted(note.rpartition(": ")[2] for note in notes) == sorted(
            str(error) for error in errors if error is not caught.value
        )


@pytest.mark.parametrize("how", ["request_stop", "stop_on_exception"])
async def test_a_stop_iteration_is_raised_as_an_error_that_says_what_to_do(how: str) -> None:
    """CO-5: it is not clean by default. A coroutine cannot raise it, so another error stands for it."""
    coord, stop = Coordinator(), StopIteration("no more")
    if how == "request_stop":
        coord.request_stop(stop)
    else:
        with coord.stop_on_exception():
            raise stop
    for _ in range(2):
        with pytest.raises(RuntimeError, match="The end of the data is OutOfRangeError") as caught:
            await coord.join()
    assert caught.value.__cause__ is stop


@pytest.mark.parametrize("in_task", [False, True])
async def test_a_stop_iteration_that_was_named_clean_is_co_5(in_task: bool) -> None:
    """In a task it is what Python makes of it when it leaves a coroutine."""
    coord = Coordinator([StopIteration])

    async def work() -> None:
        next(iter(()))

    if in_task:
        coord.create_task(work)
    else:
        coord.request_stop(StopIteration())
    await coord.join()
    assert coord.should_stop()
    assert len(coord.errors) == 1


async def test_a_reported_cancellation_stops_and_is_not_raised() -> None:
    coord = Coordinator()
    coord.request_stop(asyncio.CancelledError("of somebody else"))
    await coord.join()
    assert coord.stop_reason == "CancelledError: of somebody else"
    coord.request_stop(asyncio.CancelledError())


async def test_an_error_is_kept_once() -> None:
    coord, error = Coordinator(), ValueError("once")
    for _ in range(3):
        coord.request_stop(error)
    assert coord.errors == (error,)
    assert not hasattr(error, "__notes__")


@pytest.mark.parametrize("wrong", [ValueError, [5], ["ValueError"], [ValueError, int]])
async def test_clean_types_are_exception_types(wrong: Any) -> None:
    with pytest.raises(TypeError, match="takes a collection of exception types"):
        ErrorLog(wrong)
