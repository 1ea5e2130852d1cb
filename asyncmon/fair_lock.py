"""A lock that is handed on in the order in which it was asked for."""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["FairLock"]


class FairLock:
    """First come, first served; nobody slips in between a release and the next one's turn.

    ``held`` is a plain attribute, so that a synchronous section on the loop's thread may go ahead
    while it is false without taking the lock.
    """

    __slots__ = ("_waiting", "held")

    def __init__(self) -> None:
        self.held = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    def try_lock(self) -> bool:
        """Take the lock if it is free, and return whether it was."""
        if self.held:
            return False
        self.held = True
        return True

    def ask(self) -> asyncio.Future[None]:
        """Queue up. The lock is held by the caller when the future is done; see :meth:`withdraw`."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.held:
            self._waiting.append(turn)
        else:
            self.held = True
            turn.set_result(None)
        return turn

    async def wait(self) -> None:
        """Take the lock after everybody who asked before."""
        turn = self.ask()
        try:
            await turn
        except BaseException:
            self.withdraw(turn)
            raise

    def withdraw(self, turn: asyncio.Future[None]) -> None:
        """Leave the queue, or hand on what came just now."""
        if turn.done() and not turn.cancelled():
            self.release()
        else:
            turn.cancel()

    def release(self) -> None:
        """Hand the lock to the first in the queue."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.held = False
