"""Interrupt an awaited call from outside with an error, without a task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Literal, Self
from weakref import ref

from asyncmon.runtime.stop.current_run import CurrentRun
from asyncmon.system.cancellation import current_task
from asyncmon.system.leavable import Leavable, leavable

Kind = Literal[
    "run", "bare run", "opening", "creation", "data", "pause", "retry", "evaluation", "waiting", "body",
    "before_save", "listener", "sample",
]  # fmt: skip

RUNS: tuple[Kind, ...] = ("run", "bare run")

_background_task: ContextVar[ref[asyncio.Task[Any]] | None] = ContextVar(
    "asyncmon_background_task", default=None
)  # weak: a timer that was cancelled keeps its context, which would keep the task and its error


def background_task() -> asyncio.Task[Any] | None:
    """Return the task of a coordinator that the calling code is part of, or None.

    Tasks that it starts inherit it.
    """
    task = _background_task.get()
    return None if task is None else task()


def enter_background(task: asyncio.Task[Any]) -> None:
    """Make the calling code part of a task of a coordinator."""
    _background_task.set(ref(task))


_MESSAGE = "asyncmon: this call is interrupted, its error follows"


class CallScope(Leavable):
    """One awaited call that :meth:`interrupt` ends with an error. Can be entered again.

    The interruption cancels the task, and the end of the ``with`` block raises the error in place of
    the cancellation. Scopes nest. A call that completes anyway keeps its result.

    Args:
        scopes: the open scopes of the session.
        kind: the kind of call.

    Example::

        with CallScope(scopes, "data"):
            item = await anext(source)
    """

    __slots__ = (
        "_base", "_cancels", "_is_leavable", "_scopes", "error", "exempt", "kind", "limit", "number",
        "task", "timer",
    )  # fmt: skip

    def __init__(self, scopes: CallScopes, kind: Kind) -> None:
        self._scopes = scopes
        self._base = self._cancels = 0
        self.is_left = self._is_leavable = False
        self.kind = kind
        self.number = 0
        """How often it was entered, which distinguishes one call from the next."""
        self.task: asyncio.Task[Any] | None = None
        """The task inside the block, or None. Set before ``with`` if it is known: the lookup takes as
        long as the rest."""
        self.error: BaseException | None = None
        """The error of the interruption."""
        self.exempt = False
        """Whether the stop was requested inside the call, which then has no grace period."""
        self.limit: asyncio.TimerHandle | None = None
        """The end of the time of a run, or None. Cancelled by the caller."""
        self.timer: asyncio.TimerHandle | None = None
        """The end of the grace period of the call, or None. Cancelled at the end of the call."""

    def __enter__(self) -> Self:
        task = self.task
        if task is None:
            task = self.task = asyncio.current_task()
            assert task is not None, "coroutines of a session run in tasks"
        self._base = task.cancelling()
        self.number += 1
        scopes = self._scopes
        scopes.open[self] = None
        if scopes.on_enter is not None:
            scopes.on_enter(self)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        del self._scopes.open[self]
        task, self.task = self.task, None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.exempt = False
        reason = self.error
        if reason is None:
            return
        self.error = None
        assert task is not None, "set in __enter__"
        # As asyncio.timeout does: take our own requests back, and raise the error only if these were
        # all. A cancellation by other code at the same time is kept, whichever came first.
        requests = 0
        for _ in range(self._cancels):
            requests = task.uncancel()
        if requests <= self._base and isinstance(error, asyncio.CancelledError):
            context = reason.__context__
            try:
                raise reason
            finally:
                reason.__context__ = context  # not the cancellation
                del reason, error

    def interrupt(self, error: BaseException) -> bool:
        """End the call with an error, unless it is interrupted already or is the caller of this."""
        task = self.task
        if task is None or self.error is not None or task is current_task():
            return False  # a task that cancels itself would do so at its next await, in other code
        self.error, self._cancels = error, 1
        task.cancel(_MESSAGE)
        return True

    def interrupt_again(self) -> None:
        """Cancel a call again that ignores its interruption."""
        assert self.task is not None, "the timer is cancelled at the end of the call"
        self._cancels += 1
        self.task.cancel(_MESSAGE)

    def leavable(self, awaitable: Awaitable[Any], *waits_for: Any) -> Awaitable[Any]:
        """Return an awaitable of the block that :meth:`leave` leaves behind. See :func:`leavable`."""
        self._is_leavable = True
        return leavable(self, awaitable, *waits_for)

    def leave(self) -> bool:
        """End a call that ignores its cancellations, if it was made :meth:`leavable`."""
        if not self._is_leavable:
            return False
        inner = [one for one in self._scopes.open if one.task is self.task]
        for one in inner[inner.index(self) + 1 :]:  # their blocks are left, too, without an end
            self._cancels += one._cancels
            del self._scopes.open[one]
        self.is_left = True
        self.interrupt_again()
        return True


class CallScopes:
    """The open calls of one session, outer ones first."""

    __slots__ = ("abandon", "current", "inside_step", "on_enter", "open")

    def __init__(self) -> None:
        self.current = CurrentRun()
        self.abandon: Callable[[], None] | None = None
        """See ``SessionMembers.abandon``, of the current raw session."""
        self.inside_step: Callable[[asyncio.Task[Any] | None], bool] | None = None
        """See ``SessionMembers.inside``, of the current raw session."""
        self.open: dict[CallScope, None] = {}
        self.on_enter: Callable[[CallScope], None] | None = None
        """Called with each scope that is entered."""

    def interrupt(self, error: BaseException, *kinds: Kind) -> None:
        """Interrupt the open calls of some kinds."""
        for scope in list(self.open):
            if scope.kind in kinds:
                scope.interrupt(error)

    def are_around(self, *kinds: Kind) -> bool:
        """Return whether the caller is part of the current run, or of an open call of some kinds."""
        if self.current.has_caller():
            return True
        task, inside = current_task(), self.inside_step
        return any(
            scope.kind in kinds
            and scope.task is not None
            and (scope.task is task or (inside is not None and inside(scope.task)))
            for scope in self.open
        )

    def listens(self, *kinds: Kind) -> bool:
        """Return whether the calling code is part of a listener, and so of the task that awaits it."""
        tasks = current_task(), background_task()
        return any(scope.kind in kinds and scope.task in tasks for scope in self.open)

    def is_awaited(self) -> bool:
        """Return whether the calling code is part of a step of the program that other runs wait for."""
        return self.inside_step is not None and self.inside_step(None)
