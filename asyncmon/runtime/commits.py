"""Which captured states of a pipeline or a channel are committed in checkpoints."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from asyncmon.errors import CancelledError
from asyncmon.runtime.stop.interrupt import background_task
from asyncmon.runtime.stop.stop import StopEvent


class _Captured(NamedTuple):
    number: int
    taken: int
    outstanding: frozenset[int]


class Commits:
    """The commits of the states of one pipeline or channel.

    Args:
        listeners: of the session's commits, each called with a step.
        stop: of the session.
    """

    def __init__(self, listeners: list[Callable[[int | None], None]], stop: StopEvent) -> None:
        #   captured(): _captures counts ---> _of_steps, or _without_step --- _commit() ---> _committed
        #   wait():     _waiters, each for the capture of a number, or for a later one
        self._stop = stop
        self._captures = 0
        self._of_steps: dict[int, _Captured] = {}
        self._without_step: deque[_Captured] = deque()  # of a program that counts no steps
        self._committed: _Captured | None = None
        self._waiters: dict[asyncio.Future[None], int] = {}
        self._of_tasks: set[asyncio.Future[None]] = set()  # waiters in tasks of a coordinator
        self._follows_stop = False
        self._is_closed = False
        self._listeners = listeners
        listeners.append(self._commit)

    def captured(self, step: int | None, taken: int, outstanding: set[int]) -> None:
        """Record that a state is captured, for a checkpoint maybe."""
        self._captures += 1
        state = _Captured(self._captures, taken, frozenset(outstanding))
        if step is None:
            self._without_step.append(state)
        else:  # the first one of a step stays until its commit: a later one may be of no save
            self._of_steps.setdefault(step, state)

    def _commit(self, step: int | None) -> None:
        state: _Captured | None
        if self._without_step:  # saves commit in order; after a failed one this is an earlier state
            state = self._without_step.popleft()
        elif step is not None:
            state = self._of_steps.pop(step, None)
            self._of_steps = {s: state for s, state in self._of_steps.items() if s > step}
        else:
            state = None
        if state is None:
            return
        self._committed = state
        for waiter in [waiter for waiter, number in self._waiters.items() if number <= state.number]:
            del self._waiters[waiter]
            if not waiter.done():
                waiter.set_result(None)

    def moved_back(self) -> None:
        """Forget all captures: a recovery has lost steps, and a later one may have the same number."""
        self._of_steps.clear()
        self._committed = None

    def still_needed(self, elements: dict[int, Any]) -> dict[int, Any]:
        """Return the elements that the last committed state has not, or has as outstanding."""
        last = self._committed
        if last is None:
            return elements
        return {n: one for n, one in elements.items() if n >= last.taken or n in last.outstanding}

    async def wait(self) -> None:
        """Wait for the commit of a state that is captured from now on.

        Raises:
            CancelledError: the session is closed before; or it stops, and this is in a task of its
                coordinator: the last save follows the end of these.
        """
        is_in_task = background_task() is not None
        if self._is_closed or (is_in_task and self._stop.is_set):
            raise self._no_commit()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = self._captures + 1
        if is_in_task:
            if (
                not self._follows_stop
            ):  # not before: a session may have many channels, one after another
                self._follows_stop = True
                self._stop.when_set(self._leave_tasks)
            self._of_tasks.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)
            self._of_tasks.discard(waiter)

    def _leave_tasks(self) -> None:
        for waiter in self._of_tasks:
            if not waiter.done():
                waiter.set_exception(self._no_commit())

    def close(self) -> None:
        """End the waits, and follow no more commits. A second call does nothing."""
        if not self._is_closed:
            self._listeners.remove(self._commit)
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(self._no_commit())

    def _no_commit(self) -> CancelledError:
        if self._is_closed:
            return CancelledError("The session was closed before a checkpoint.")
        return CancelledError("The session stops, and waits for this task before its last checkpoint.")
