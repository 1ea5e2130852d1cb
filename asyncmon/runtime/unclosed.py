"""Sessions that were started, and not closed by the program."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.runtime.gate import Gate
from asyncmon.runtime.hook_set import HookSet
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.stop.process_end import process_shutdown
from asyncmon.system.error_text import calling_line

logger = logging.getLogger(__name__)

_NOT_CLOSED = "A session was started here and not closed. Write `async with`, or `await sess.close()`."


class Unclosed:
    """A session that was started, and may be dropped before its close.

    It refers to parts of the session, and never to the session, which it would keep alive.
    """

    def __init__(
        self,
        gate: Gate,
        hooks: HookSet,
        unsaved: Callable[[], str | None],
        close: Callable[[BaseException | None], Awaitable[Any]],
        abandon: Callable[[], None],
    ) -> None:
        self._gate = gate
        self._hooks = hooks
        self._unsaved = unsaved
        self._close = close
        self._abandon = abandon
        self._opened_at = calling_line()

    async def close(self, error: BaseException | None) -> None:
        """Close the session at the end of ``am.run``, with the error of ``main``."""
        try:
            await self._close(error)
        finally:
            warnings.warn_explicit(_NOT_CLOSED, ResourceWarning, *self._opened_at)

    def report(self) -> None:
        """Warn about a session that nothing refers to any more, unless ``am.run`` closes it."""
        gate = self._gate
        if gate.state is SessionState.OPEN and gate.loop not in process_shutdown.get().loops:
            step, lost = self._hooks.observers.step, self._unsaved()
            with self._hooks.observers.entered():
                logger.warning(
                    "Session ended%s: it was not closed%s.",
                    "" if step is None else f" at step {step}",
                    "" if lost is None else f", and {lost}",
                )
            self._abandon()
            warnings.warn_explicit(_NOT_CLOSED, ResourceWarning, *self._opened_at)
