"""Something that a client waits for: a run, a load or a snapshot that a service does for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

from asyncmon.distributed.wire import Message

T = TypeVar("T")

current_job: ContextVar[Job] = ContextVar("asyncmon_job")
"""The job that the running task does."""


MANY = 1000
"""Operations to plan, or values to write or read, that would hold the event loop."""


async def off_loop(count: int, fn: Callable[..., T], *args: Any) -> T:
    """Call a function, in a thread where what it does to so many things would hold the event loop."""
    return fn(*args) if count < MANY else await asyncio.to_thread(fn, *args)


class Job:
    """What a client waits for: a task, and the functions that it waits for in turn.

    Attributes:
        answer: the message with the result; None while there is none.
    """

    def __init__(self) -> None:
        self.answer: Message | None = None
        self.task: asyncio.Task[None] | None = None
        self.lease: asyncio.TimerHandle | None = None
        self.asked: dict[int, tuple[int, tuple[Any, ...]]] = {}  # calls to tell the client of
        self._results: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._waiters: list[asyncio.Future[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it in a task of its own."""
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self.wake)

    async def call(self, number: int, *arrays: Any) -> Any:
        """Have the client call a function, and wait for what it returns."""
        self._calls += 1
        call = self._calls
        future = self._results[call] = asyncio.get_running_loop().create_future()
        self.asked[call] = (number, arrays)
        self.wake()
        try:
            return await future
        finally:
            self._results.pop(call, None)
            self.asked.pop(call, None)

    def deliver(self, call: int, result: Any, error: Exception | None) -> None:
        """Hand on what a function returned or raised; nothing where nobody waits any more."""
        future = self._results.get(call)
        if future is not None and not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def wait(self, secs: float) -> None:
        """Wait until it is done or there is something to call, so many seconds at most."""
        if self.asked or self.answer is not None or self.task is None or self.task.done():
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()  # asyncio.wait() takes three times as long
        self._waiters.append(waiter)
        timer = loop.call_later(secs, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()

    def cancel(self) -> None:
        """End it, if it is under way."""
        if self.lease is not None:
            self.lease.cancel()
        if self.task is not None:
            self.task.cancel()

    def wake(self, _task: object = None) -> None:
        """Let what waits for it look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
