"""When the hooks have been told of every step that is done."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Settled"]

T = TypeVar("T")


class Settled:
    """Whether a session is between two steps for its hooks, too.

    While a run is under way, its step may be committed and some hooks' ``after_run`` still to come:
    the hooks' states then belong to no step. What saves them beside the steps waits for :meth:`when`.
    """

    __slots__ = ("_waiting", "told", "under_way")

    def __init__(self) -> None:
        self.under_way = False
        """Whether a run with hooks is."""
        self.told: int | None = None
        """The step that the last such run made complete."""
        self._waiting: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []

    def is_now(self, step: int | None) -> bool:
        """Return whether the hooks know of this step, which is the session's."""
        return not self.under_way or self.told == step

    async def when(self, call: Callable[[], T]) -> T:
        """Call something at the very end of the run that is under way, and return what it returns."""
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append((outcome, call))
        return await outcome

    def run_ended(self) -> None:
        """Say that the run is over, for whatever reason."""
        self.under_way = False
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for outcome, call in waiting:
                if not outcome.done():
                    try:
                        outcome.set_result(call())
                    except Exception as error:
                        outcome.set_exception(error)
