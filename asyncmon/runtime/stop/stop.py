"""A request to stop, made in any thread and handled in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any


class StopEvent:
    """A one-way event with a reason. Wakes waiters and calls callbacks in its event loop.

    Args:
        on_set: called in the loop's thread after each request, before any waiter wakes.
    """

    __slots__ = ("_callbacks", "_loop", "_on_set", "_waiters", "is_set", "reason")

    def __init__(self, on_set: Callable[[], None] | None = None) -> None:
        self._on_set = on_set
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[bool]] = set()
        self._callbacks: list[Callable[[], None]] = []
        self.clear()

    def clear(self) -> None:
        """Clear the request. Waiters continue to wait."""
        self.is_set = False
        self.reason: str | None = None
        """The first reason that was given."""

    def set(self, reason: str | None) -> None:
        """Request the stop, once or again. Safe in any thread and signal handler."""
        # Each is a single store, which the interpreter keeps whole.
        if self.reason is None:
            self.reason = reason
        self.is_set = True
        self._wake_loop()

    def bind(self) -> asyncio.AbstractEventLoop:
        """Bind the event to the running loop, and return the loop.

        Raises:
            RuntimeError: the event is bound to another loop that is not closed.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("A Coordinator belongs to one event loop; it is used in a second one.")
        return loop

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call a function once, in the loop's thread, after the request, or soon if it was made."""
        self.bind()
        self._callbacks.append(callback)
        if self.is_set:
            self._wake_loop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the request. Return False after ``timeout`` seconds without one."""
        loop = self.bind()
        if timeout is not None and timeout <= 0:
            if not self.is_set:
                await asyncio.sleep(0)
            return self.is_set
        with self._waiter() as waiter:
            if self.is_set:
                return True
            timer = None if timeout is None else loop.call_later(timeout, _time_out, waiter)
            try:
                return await waiter
            finally:
                if timer is not None:
                    timer.cancel()

    async def wait_while(self, running: Callable[[], Collection[asyncio.Task[Any]]]) -> None:
        """Wait for the request, or until no task is running. Tasks may start other tasks."""
        with self._waiter() as waiter:
            while not self.is_set and (tasks := running()):
                await asyncio.wait({*tasks, waiter}, return_when=asyncio.FIRST_COMPLETED)

    @contextlib.contextmanager
    def _waiter(self) -> Iterator[asyncio.Future[bool]]:
        """Return a future that the request completes."""
        # The caller checks is_set after this: a thread may set it at any time.
        waiter: asyncio.Future[bool] = self.bind().create_future()
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)
            waiter.cancel()

    def _wake_loop(self) -> None:
        if self._loop is not None:
            # Always through the loop: a signal handler runs between any two instructions.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.is_set:
            return
        if self._on_set is not None:
            self._on_set()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:  # each on its own, so that an error in one does not skip the others
            asyncio.get_running_loop().call_soon(callback)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)


def _time_out(waiter: asyncio.Future[bool]) -> None:
    """Complete a waiter with False: the timeout passed."""
    if not waiter.done():
        waiter.set_result(False)


class SessionClosedError(RuntimeError):
    """Raised by a call when its session closes or is closed.

    In a task of the session's own coordinator it is no failure.

    Args:
        message: the text of the error.
        stop: the stop of that coordinator.
    """

    def __init__(self, message: str, stop: StopEvent) -> None:
        super().__init__(message)
        self.stop = stop
