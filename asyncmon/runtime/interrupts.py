"""End an awaited call early, from outside, without a task of its own for each call."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    __slots__ = ("_again", "_inside", "_later", "patience")

    def __init__(self) -> None:
        # None, or the time from which on a call is timed (inf: it is not), or what interrupted it.
        # It is kept here since it ends with the call, and a call that nobody looks at pays nothing.
        self._inside: dict[asyncio.Task[Any], BaseException | float | None] = {}
        self._again: dict[asyncio.Task[Any], int] = {}
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
        if reason is None or isinstance(reason, float):
            return None
        for _ in range(self._again.pop(task, 0)):
            task.uncancel()
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
            if isinstance(reason, BaseException) or task is current or only not in (None, task):
                continue
            self._inside[task] = error
            task.cancel(_MESSAGE)

    def insist(self, task: asyncio.Task[Any], error: BaseException) -> bool:
        """Interrupt a call once more that goes on in spite of this interruption; else return False."""
        if self._inside.get(task) is not error:
            return False
        self._again[task] = self._again.get(task, 0) + 1
        task.cancel(_MESSAGE)
        return True

    def on_error(self, error: BaseException) -> None:
        """Something failed beside the calls: interrupt them, now or when their time is up."""
        if self.patience <= 0:
            self.interrupt(error)
        elif self._later is None and self._inside:
            loop = asyncio.get_running_loop()
            self._later = loop.call_later(self.patience, self.interrupt, error)

    # -- how long calls take, for who asks -----------------------------------------------------------

    def timed(self, now: float) -> Iterator[tuple[asyncio.Task[Any], float]]:
        """Give the calls that are not interrupted, and since when each is timed: else from now on."""
        for task, state in list(self._inside.items()):
            if not isinstance(state, BaseException):
                if state is None:
                    state = self._inside[task] = now
                yield task, state

    def time_all(self, now: float) -> None:
        """Time all calls from now on that are not timed yet, those that were excused as well."""
        for task, state in self._inside.items():
            if state is None or state == math.inf:
                self._inside[task] = now

    def excuse(self, task: asyncio.Task[Any]) -> bool:
        """Let the call of a task take its time, unless it is timed; return whether it has one."""
        if task not in self._inside:
            return False
        if self._inside[task] is None:
            self._inside[task] = math.inf
        return True
