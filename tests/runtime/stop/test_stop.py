"""A stop is requested anywhere, at any moment, and acted on in the loop."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from asyncmon.runtime import Coordinator
from asyncmon.runtime.stop.stop import Cause, Stop, StopEvent
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest.fixture
def alarm() -> Iterator[Any]:
    """Return what installs a handler of a signal, for the time of the test."""
    before = signal.getsignal(signal.SIGUSR1)

    def install(handler: Any) -> None:
        signal.signal(signal.SIGUSR1, handler)

    yield install
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [None, ValueError("in the handler")])
async def test_a_stop_from_a_signal_handler_wakes_the_loop_ax_18(alarm: Any, error: Any) -> None:
    coord = Coordinator()

    def handle(number: int, frame: FrameType | None) -> None:
        coord.request_stop(error, reason="SIGUSR1")

    alarm(handle)
    waiters = [asyncio.create_task(coord.wait_for_stop()) for _ in range(3)]
    await wait_all_tasks_blocked()
    for _ in range(10):
        signal.raise_signal(signal.SIGUSR1)
    assert coord.should_stop()
    assert await asyncio.gather(*waiters) == [True] * 3
    assert coord.stop_reason == "SIGUSR1"
    assert coord.errors == (() if error is None else (error,))


async def test_a_signal_in_the_middle_of_a_request_does_no_harm_ax_18(alarm: Any) -> None:
    """CO-19: nothing is locked, so the handler cannot wait for the code it interrupts."""
    coord = Coordinator()
    calls: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        coord.request_stop(KeyError("in the handler"))

    class Interrupting(ValueError):
        def __str__(self) -> str:  # asked for in the midst of the report
            if not calls:
                calls.append(1)
                signal.raise_signal(signal.SIGUSR1)
            return "interrupted"

    alarm(handle)
    coord.request_stop(Interrupting())
    with pytest.raises(Interrupting) as caught:
        await coord.join()
    assert [type(error) for error in coord.errors] == [Interrupting, KeyError]
    assert any("in the handler" in note for note in caught.value.__notes__)


async def test_many_threads_ask_at_once_and_the_first_reason_stays() -> None:
    coord = Coordinator()
    waiter = asyncio.create_task(coord.wait_for_stop())
    reasons = [f"thread {number}" for number in range(20)]
    threads = [
        threading.Thread(target=coord.request_stop, kwargs={"reason": reason}) for reason in reasons
    ]
    for thread in threads:
        thread.start()
    assert await waiter
    for thread in threads:
        thread.join()
    assert coord.stop_reason in reasons


async def test_each_callback_is_called_even_if_others_fail() -> None:
    stop, called = StopEvent(), []
    unhandled: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    stop.when_set(lambda: called.append(1))
    stop.when_set(lambda: called.remove(5))
    stop.when_set(lambda: called.append(2))
    stop.set(Stop(Cause.REQUEST, "first"))
    stop.set(Stop(Cause.SIGNAL, "second", preempted=True))
    assert stop.stop == Stop(Cause.REQUEST, "first")
    await stop.wait()
    await wait_all_tasks_blocked()
    assert called == [1, 2]
    assert isinstance(unhandled[0]["exception"], ValueError)
    stop.when_set(lambda: called.append(3))
    await wait_all_tasks_blocked()
    assert called == [1, 2, 3]


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    coord = Coordinator()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await coord.wait_for_stop(60)
    coord.request_stop()
    assert await coord.wait_for_stop()


async def test_a_stop_travels_as_values_of_json() -> None:
    stop = Stop(Cause.CLUSTER, "signal SIGTERM", "worker a:1", preempted=True)
    assert Stop.from_wire(json.loads(json.dumps(stop.to_wire()))) == stop


async def test_a_text_is_never_compared() -> None:
    """The text of a signal's stop, in a request, is a text."""
    event = StopEvent()
    event.set(Stop(Cause.REQUEST, "signal SIGTERM"))
    assert event.stop is not None
    assert not event.stop.preempted
