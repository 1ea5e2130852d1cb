"""A lock that is passed on in the order of the requests."""

from __future__ import annotations

import asyncio


class FairLock:
    """First come, first served: a release passes the lock to the longest waiter.

    A synchronous section on the loop's thread need not take the lock while ``held`` is false.
    """

    __slots__ = ("_waiting", "held")

    def __init__(self) -> None:
        self.held = False
        self._waiting: dict[asyncio.Future[None], None] = {}  # in order; an empty deque takes 600 bytes

    def try_lock(self) -> bool:
        """Take the lock if it is free, and return whether it was."""
        if self.held:
            return False
        self.held = True
        return True

    def ask(self) -> asyncio.Future[None]:
        """Enter the queue. The caller holds the lock when the future is done; see :meth:`wait`."""
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.held:
            self._waiting[place] = None
        else:
            self.held = True
            place.set_result(None)
        return place

    async def __aenter__(self) -> None:
        await self.wait()

    async def __aexit__(self, *_exc_info: object) -> None:
        self.release()

    async def wait(self, place: asyncio.Future[None] | None = None) -> None:
        """Take the lock after all earlier callers. A caller that is cancelled leaves the queue.

        Args:
            place: what :meth:`ask` gave; by default it is asked now.
        """
        if place is None:
            place = self.ask()
        try:
            await place
        except BaseException:
            self.withdraw(place)
            raise

    def withdraw(self, place: asyncio.Future[None]) -> None:
        """Leave the queue, or pass the lock on where it was just granted."""
        if place.done() and not place.cancelled():
            self.release()
        else:
            place.cancel()
            self._waiting.pop(place, None)

    def release(self) -> None:
        """Pass the lock to the first in the queue."""
        while self._waiting:
            place = next(iter(self._waiting))
            del self._waiting[place]
            if not place.done():
                place.set_result(None)
                return
        self.held = False
