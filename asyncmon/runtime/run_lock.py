"""The lock of ``run()``: first come, first served, and no deadlock with the run that holds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from asyncmon.runtime.stop.interrupt import CallScope, CallScopes
from asyncmon.system.fair_lock import FairLock


class RunLock:
    """A fair lock with a holder, which refuses a caller inside the run that holds it.

    Args:
        scopes: of the session, in which the waiting callers are.
    """

    __slots__ = ("_fair", "_releases", "_scopes", "holder")

    def __init__(self, scopes: CallScopes) -> None:
        self._scopes = scopes
        self._fair = FairLock()
        self.holder: asyncio.Task[Any] | None = None
        """The task that holds the lock."""
        self._releases: list[asyncio.Future[None]] = []

    def is_mine(self) -> bool:
        """Return whether the calling code is part of the run that holds the lock."""
        if self.holder is None:
            return False
        return self.holder is asyncio.current_task() or self._scopes.are_around("run")

    def acquire_nowait(self, task: asyncio.Task[Any]) -> bool:
        """Take the lock for a task if it is free, and return whether it was."""
        if self._fair.try_lock():
            self.holder = task
            return True
        return False

    async def acquire(self) -> None:
        """Take the lock after all earlier callers.

        Raises:
            RuntimeError: the caller is part of the run that holds it.
        """
        if self.is_mine() or (self._fair.held and self._scopes.is_awaited()):
            raise RuntimeError(
                "run() was called from inside a run of the same session (from a hook, a step or a task "
                "they wait for) and would wait for itself. In a hook use run_context.session.run(...), "
                "or the session that it gets; in a step function step_context.run_with_hooks(...); in "
                "a step of a program call the function of another step with the state of this one. Or "
                "make the run after this one."
            )
        with CallScope(self._scopes, "waiting") as scope:
            await self._fair.wait()
            self.holder = scope.task

    def release(self) -> None:
        """Pass the lock to the longest waiter."""
        self.holder = None
        self._fair.release()
        if self._releases:
            for waiter in self._releases:
                if not waiter.done():
                    waiter.set_result(None)

    def is_used_by(self, task: asyncio.Task[Any]) -> bool:
        """Return whether a task holds the lock, or waits for it or for the end of a pause."""
        return self.holder is task or any(
            scope.task is task and scope.kind in ("waiting", "pause") for scope in self._scopes.open
        )

    async def wait_release(self, secs: float) -> None:
        """Wait until the lock is released, or for a number of seconds."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._releases.append(waiter)
        try:
            await asyncio.wait([waiter], timeout=secs)
        finally:
            self._releases.remove(waiter)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock inside the block. Code inside the run that holds it may enter."""
        if self.is_mine():
            yield
            return
        await self.acquire()
        try:
            yield
        finally:
            self.release()
