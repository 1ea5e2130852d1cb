"""A job of a client: a run, a load or a snapshot that a service executes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from asyncmon.distributed.error_data import failure
from asyncmon.distributed.wire import Message

T = TypeVar("T")

current_job: ContextVar[ServiceJob] = ContextVar("asyncmon_job")
"""The job of the current task."""


MANY = 1000
"""The number of operations to plan, or values to convert, that would hold the event loop."""


async def off_loop(count: int, fn: Callable[..., T], *args: Any) -> T:
    """Call a function; in a thread if it processes more than ``MANY`` items."""
    return fn(*args) if count < MANY else await asyncio.to_thread(fn, *args)


class ServiceJob:
    """A task, and the pending calls of functions of its client.

    Attributes:
        answer: the response; None before the end.
    """

    def __init__(self) -> None:
        self.answer: Message | None = None
        self.task: asyncio.Task[None] | None = None
        self.asked: dict[int, tuple[int, tuple[Any, ...]]] = {}  # calls to send to the client
        self._dropped: Exception | None = None  # the response after drop()
        self._results: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._waiters: list[asyncio.Future[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start the task."""
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(self.wake)

    async def call(self, number: int, *arrays: Any) -> Any:
        """Call a function of the client, and return its result."""
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
        """Complete a call with the result or error of the function, if the call is still pending."""
        future = self._results.get(call)
        if future is not None and not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def wait(self, secs: float) -> None:
        """Wait for the end or for a call of the client, with a timeout in seconds."""
        if self.asked or self.answer is not None or self.task is None or self.task.done():
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()  # three times as fast as asyncio.wait()
        self._waiters.append(waiter)
        timer = loop.call_later(secs, self.wake)
        try:
            await waiter
        finally:
            timer.cancel()

    def finish(self, answer: Message) -> None:
        """Set the response, an iteration of the loop before the callbacks of the task."""
        self.answer = answer
        self._release()
        self.wake()

    def _cancel(self, task: asyncio.Task[None]) -> None:
        if inspect.getcoroutinestate(cast("Any", task.get_coro())) == inspect.CORO_CREATED:
            # It begins first: it has to release the snapshot that was ordered for it.
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            task.cancel()

    def drop(self, error: Exception) -> None:
        """Cancel the task, and release the memory of a response that was not sent.

        Args:
            error: the response to a later request.
        """
        if self.task is not None:
            self._dropped = error
            self._cancel(self.task)
            self._release()

    def _release(self) -> None:
        if self._dropped is not None and self.answer is not None:
            unsent, self.answer = self.answer, failure(self._dropped)
            unsent.sent()

    def wake(self, _task: object = None) -> None:
        """Wake the waiter."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
