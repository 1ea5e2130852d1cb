"""End an awaited call early, from outside, without a task of its own for each call."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["Interrupts"]

_MESSAGE = "asyncmon: this call is interrupted, its error follows"


class Interrupts:
    """The tasks that are inside a call which :meth:`interrupt` may end with an error.

    An interruption is a cancellation that :meth:`leave` turns into the error. It counts by
    ``Task.cancelling`` as ``asyncio.timeout`` does, so a cancellation by somebody else at the same
    time stays one, and scopes inside and outside of the call keep working.

    Example::

        base = interrupts.enter(task)
        try:
            result = await call()
        except BaseException as error:
            reason = interrupts.leave(task, base, error)
            if reason is None:
                raise
        else:
            interrupts.leave(task, base)
            return result
        raise reason  # out here, so that the cancellation does not become its context
    """

    __slots__ = ("_inside", "_later", "patience")

    def __init__(self) -> None:
        self._inside: dict[asyncio.Task[Any], BaseException | None] = {}
        self._later: asyncio.TimerHandle | None = None
        self.patience = 0.0
        """Seconds that :meth:`on_error` leaves the calls to end by themselves."""

    def __contains__(self, task: object) -> bool:
        return task in self._inside

    def __len__(self) -> int:
        return len(self._inside)

    def enter(self, task: asyncio.Task[Any]) -> int | None:
        """Mark a task as inside. Return what :meth:`leave` needs, or None where it is inside already:
        then whoever entered it leaves."""
        if task in self._inside:
            return None
        self._inside[task] = None
        return task.cancelling()

    def leave(
        self, task: asyncio.Task[Any], base: int, error: BaseException | None = None
    ) -> BaseException | None:
        """Mark a task as outside again. Return the error to raise instead of ``error``, or None."""
        reason = self._inside.pop(task)
        if self._later is not None and not self._inside:
            self._later.cancel()
            self._later = None
        if reason is None:
            return None
        alone = task.uncancel() <= base
        return reason if alone and isinstance(error, asyncio.CancelledError) else None

    def interrupt(self, error: BaseException, only: asyncio.Task[Any] | None = None) -> None:
        """End every call that is waiting inside, except one of the task that calls this.

        Args:
            error: what the calls raise.
            only: the one task that is meant.
        """
        current = asyncio.current_task()
        for task, reason in self._inside.items():
            if reason is None and task is not current and only in (None, task):
                self._inside[task] = error
                task.cancel(_MESSAGE)

    def on_error(self, error: BaseException) -> None:
        """Something failed beside the calls: interrupt them, now or when their time is up."""
        if self.patience <= 0:
            self.interrupt(error)
        elif self._later is None and self._inside:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self.patience, self.interrupt, error)
