"""What becomes, after a stop, of a hook that does not come to an end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.hook_check import hook_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from asyncmon.runtime.hook_set import HookSet
    from asyncmon.runtime.turn import Turn

__all__ = ["Patience"]

logger = logging.getLogger(__name__)

LEAST_SECS = 0.1
"""How often to look, at most."""


class Patience:
    """Ends a run that, after a stop, stays inside of one hook for longer than the grace period.

    The step itself is left to complete, however long it takes; and a stop that a hook asked for lets
    the run in which it asked take all the time it needs.

    Args:
        grace: seconds.
        hooks: know which of them is running.
        turn: knows whose run it is.
    """

    def __init__(self, grace: float, hooks: HookSet, turn: Turn) -> None:
        self._grace = grace
        self._hooks = hooks
        self._turn = turn
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, reason: str | None, interrupt: Callable[[BaseException, Any], None]) -> None:
        """Begin with it; begun before, nothing happens.

        Args:
            reason: of the stop.
            interrupt: called with an error and the task whose run it is to end.
        """
        if self._timer is None and not self._hooks.stop_requested:
            self._look_later(reason, interrupt)

    def forget(self) -> None:
        """End it."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, *args: Any) -> None:
        loop, secs = asyncio.get_running_loop(), max(self._grace, LEAST_SECS)
        self._timer = loop.call_later(secs, self._look, (self._turn.run, self._hooks.running), *args)

    def _look(
        self,
        before: tuple[object, object],
        reason: str | None,
        interrupt: Callable[[BaseException, Any], None],
    ) -> None:
        hook = self._hooks.running
        if hook is None:
            return
        if (self._turn.run, hook) != before:
            self._look_later(reason, interrupt)
            return
        what = (
            f"The hook {hook_name(hook)} did not finish within the grace period of {self._grace:g} s "
            f"after a stop: {reason}."
        )
        logger.warning("%s The run is interrupted.", what)
        interrupt(DeadlineExceededError(what), self._turn.holder)
