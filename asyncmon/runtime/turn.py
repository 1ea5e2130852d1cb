"""Who may run now: one caller at a time, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Turn", "inside_run"]

inside_run: ContextVar[object] = ContextVar("asyncmon_inside_run", default=None)
"""The run this code is part of, as it is known to :attr:`Turn.run`. Tasks that a hook starts inherit
it, so that waiting for the very run that waits for them is an error and not a deadlock."""


class Turn:
    """A fair lock that knows its holder, with the fast path left to the caller::

    if turn.holder is None:
        turn.holder = asyncio.current_task()
    else:
        await turn.wait()
    try:
        ...
    finally:
        turn.release()
    """

    __slots__ = ("_waiting", "holder", "run")

    def __init__(self) -> None:
        self.holder: asyncio.Task[Any] | None = None
        self.run: object = None
        """The run that is under way, compared with :data:`inside_run`."""
        self._waiting: deque[tuple[asyncio.Task[Any], asyncio.Future[None]]] = deque()

    def is_mine(self) -> bool:
        """Return whether the calling code is part of the run that is under way."""
        if self.holder is None:
            return False
        run = inside_run.get()
        return self.holder is asyncio.current_task() or (run is not None and run is self.run)

    async def wait(self) -> None:
        """Take the turn after everyone who asked before.

        Raises:
            RuntimeError: the caller is part of the run that is under way.
        """
        if self.is_mine():
            raise RuntimeError(
                "run() was called from inside a run of the same session (from a hook, a step function "
                "or a task they wait for) and would wait for itself. Use run_context.session.run(...) "
                "in a hook, step_context.run_with_hooks(...) in a step function, or run(..., "
                "hooks=False)."
            )
        task = asyncio.current_task()
        assert task is not None, "coroutines of a session run in tasks"
        if self.holder is None:
            self.holder = task
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((task, future))
        try:
            await future
        except BaseException:
            if self.holder is task:  # handed over in the moment of the cancellation
                self.release()
            raise

    def release(self) -> None:
        """Hand the turn to whoever waits longest."""
        self.run = None
        while self._waiting:
            task, future = self._waiting.popleft()
            if not future.done():
                self.holder = task
                future.set_result(None)
                return
        self.holder = None

    @asynccontextmanager
    async def held(self, *, reentrant: bool = True) -> AsyncIterator[None]:
        """Hold the turn inside the block.

        Args:
            reentrant: inside the run that is under way the turn is held already; else that is an
                error, as in :meth:`wait`.
        """
        if reentrant and self.is_mine():
            yield
            return
        await self.wait()
        try:
            yield
        finally:
            self.release()
