"""A request to stop: made in any thread, acted on in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from asyncmon.runtime.stopping import time_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["StopEvent"]


class StopEvent:
    """Whether a stop was requested, and who is to be woken by it.

    Args:
        on_wake: called in the loop's thread after each request, before anybody is woken.
    """

    __slots__ = ("_callbacks", "_loop", "_on_wake", "_waiters", "is_set", "reason")

    def __init__(self, on_wake: Callable[[], None]) -> None:
        self._on_wake = on_wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[bool]] = set()
        self._callbacks: list[Callable[[], None]] = []
        self.clear()

    def clear(self) -> None:
        """Forget the request. Who waits goes on to wait."""
        self.is_set = False
        self.reason: str | None = None
        """Why, by whoever was first to say."""

    def set(self, reason: str | None) -> None:
        """Request the stop, or say once more that something came of it. Safe in any thread."""
        # Each is one store, which the interpreter keeps whole.
        if self.reason is None:
            self.reason = reason
        self.is_set = True
        self._wake_loop()

    def bind(self) -> asyncio.AbstractEventLoop:
        """Belong to the running loop, which is returned. The next one only when that is closed.

        Raises:
            RuntimeError: this belongs to another loop.
        """
        loop = asyncio.get_running_loop()
        if self._loop is None or self._loop.is_closed():
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError("A Coordinator belongs to one event loop; it is used in a second one.")
        return loop

    def when_set(self, callback: Callable[[], None]) -> None:
        """Call something once, in the loop's thread, after the request, or soon if it was made."""
        self.bind()
        self._callbacks.append(callback)
        if self.is_set:
            self._wake_loop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for the request. Return whether it came within ``timeout`` seconds."""
        loop = self.bind()
        if timeout is not None and timeout <= 0:
            if not self.is_set:
                await asyncio.sleep(0)
            return self.is_set
        with self.waiter() as waiter:
            if self.is_set:  # asked when the waiter is in place: a thread may come in at any time
                return True
            timer = loop.call_later(timeout, time_out, waiter) if timeout is not None else None
            try:
                return await waiter
            finally:
                if timer is not None:
                    timer.cancel()

    @contextlib.contextmanager
    def waiter(self) -> Iterator[asyncio.Future[bool]]:
        """Return a future that the request fulfils; ask :attr:`is_set` before you wait for it."""
        waiter: asyncio.Future[bool] = self.bind().create_future()
        self._waiters.add(waiter)
        try:
            yield waiter
        finally:
            self._waiters.discard(waiter)
            waiter.cancel()

    def _wake_loop(self) -> None:
        if self._loop is not None:
            # Always by way of the loop: a signal handler runs in the middle of anything.
            with contextlib.suppress(RuntimeError):  # a closed loop has nobody to wake
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.is_set:
            return
        self._on_wake()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:  # each by itself: one that fails does not keep the others from it
            asyncio.get_running_loop().call_soon(callback)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(True)
