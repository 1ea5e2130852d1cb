"""A future that saves its waiter a turn of the loop."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context

__all__ = ["Handover"]


class Handover(asyncio.Future[None]):
    """A future whose first waiter goes on in the very call of the loop that sets its result.

    Of any other future, what is set in one turn of the loop is heard of in the next one, some twenty
    microseconds later. Others who wait, and who is cancelled, hear of it in the next turn here, too.
    """

    _first: tuple[Callable[[Any], object], Context] | None = None

    def add_done_callback(
        self, fn: Callable[[Any], object], /, *, context: Context | None = None
    ) -> None:
        """As of any future."""
        if self._first is None and not self.done():
            self._first = fn, copy_context() if context is None else context
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: Callable[[Any], object], /) -> int:
        """As of any future."""
        removed = super().remove_done_callback(fn)
        if self._first is not None and self._first[0] == fn:
            self._first = None
            removed += 1
        return removed

    def cancel(self, msg: Any | None = None) -> bool:
        """As of any future."""
        self._as_of_any()
        return super().cancel(msg)

    def set_result(self, result: None, /) -> None:
        """As of any future: all who wait hear of it in the next turn."""
        self._as_of_any()
        super().set_result(result)

    def set_exception(self, exception: type | BaseException, /) -> None:
        """As of any future: all who wait hear of it in the next turn."""
        self._as_of_any()
        super().set_exception(exception)

    def end(self) -> None:
        """Set the result, unless this was cancelled. For a call of the loop: no task may be running."""
        if self.done():
            return
        first, self._first = self._first, None
        super().set_result(None)
        if first is not None:
            fn, context = first
            context.run(fn, self)

    def _as_of_any(self) -> None:
        if self._first is not None:
            (fn, context), self._first = self._first, None
            super().add_done_callback(fn, context=context)
