"""Something that a client waits for: a run, a load or a snapshot that a service does for it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncmon.distributed.wire import Message

current_job: ContextVar[Job] = ContextVar("asyncmon_job")
"""The job that the running task does."""


class Job:
    """What a client waits for: a task, and the functions that it waits for in turn.

    Attributes:
        answer: the message with the result; None while there is none.
    """

    def __init__(self) -> None:
        self.answer: Message | None = None
        self.task: asyncio.Task[Message] | None = None
        self.lease: asyncio.TimerHandle | None = None
        self.asked: dict[int, tuple[int, tuple[Any, ...]]] = {}  # calls to tell the client of
        self._results: dict[int, asyncio.Future[Any]] = {}
        self._calls = 0
        self._changed: asyncio.Future[None] | None = None

    async def call(self, number: int, *arrays: Any) -> Any:
        """Have the client call a function, and wait for what it returns."""
        self._calls += 1
        call = self._calls
        future = self._results[call] = asyncio.get_running_loop().create_future()
        self.asked[call] = (number, arrays)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
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
        if self.asked or self.task is None or self.task.done():
            return
        self._changed = asyncio.get_running_loop().create_future()
        await asyncio.wait(
            (self.task, self._changed), timeout=secs, return_when=asyncio.FIRST_COMPLETED
        )

    def cancel(self) -> None:
        """End it, if it is under way."""
        if self.lease is not None:
            self.lease.cancel()
        if self.task is not None:
            self.task.cancel()
