"""Between guards, which judge each step, and savers, which must not save what a guard refuses.

By its priority a guard sees each run before a saver does. But a saver that works by seconds is a task,
and may wake just after a step's commit and before the guard's verdict on it, so it asks here first.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.runtime.coordinator import Coordinator

__all__ = ["SavingGuard", "at_verdict", "is_judged", "may_save", "veto_saving"]

T = TypeVar("T")

_PATIENCE = 10.0  # seconds; where no guard has spoken by then, steps are run without hooks


class SavingGuard:
    """A guard's side: ``passed(step)`` after each step it found good. Made in ``after_create_session``.

    Args:
        coord: the coordinator of the created session.
        step: the step at creation, which counts as judged.

    Example::

        async def after_create_session(self, session, coord):
            self._guard = SavingGuard(coord, session.global_step)
    """

    __slots__ = ("_board", "step")

    def __init__(self, coord: Coordinator, step: int | None) -> None:
        self.step = step
        """The last step judged."""
        self._board = _board_of(coord)
        self._board.guards.append(self)

    def passed(self, step: int | None) -> None:
        """Say that the state after this step may be saved."""
        self.step = step
        board = self._board
        board.silent = False
        if board.waiting and board.has_passed(step):
            board.answer()


class _Board:
    """What the guards of one session have said."""

    def __init__(self) -> None:
        self.guards: list[SavingGuard] = []
        self.waiting: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        self.reason: str | None = None
        self.silent = False

    def has_passed(self, step: int | None) -> bool:
        return self.silent or all(guard.step == step for guard in self.guards)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            if future.done():
                continue
            try:
                future.set_result(call() if self.reason is None else None)
            except Exception as error:
                future.set_exception(error)


_boards: WeakKeyDictionary[Coordinator, _Board] = WeakKeyDictionary()


def veto_saving(coord: Coordinator, reason: str) -> None:
    """Let no saver hook save the state of this session any more. A recovery makes a new session."""
    board = _board_of(coord)
    board.reason = board.reason or reason
    board.answer()


def may_save(coord: Coordinator) -> bool:
    """Return whether no guard of this session has refused its state."""
    board = _boards.get(coord)
    return board is None or board.reason is None


def is_judged(coord: Coordinator, step: int | None) -> bool:
    """Return whether all guards of this session found the state after a step good."""
    board = _boards.get(coord)
    return board is None or (board.reason is None and board.has_passed(step))


async def at_verdict(coord: Coordinator, call: Callable[[], T]) -> T | None:
    """Wait until the guards find a step good, and call something at that very moment.

    Steps run without hooks are never judged: when no guard has spoken for some seconds they count as
    good, until one speaks again.

    Returns:
        What ``call`` returned; None after a veto, or where no guard spoke.
    """
    board = _board_of(coord)
    verdict: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()
    board.waiting.append((verdict, call))
    try:
        async with asyncio.timeout(_PATIENCE):
            return await verdict
    except TimeoutError:
        board.silent = True
        return None


def _board_of(coord: Coordinator) -> _Board:
    board = _boards.get(coord)
    if board is None:
        board = _boards[coord] = _Board()
    return board
