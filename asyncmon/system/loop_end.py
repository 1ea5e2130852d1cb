"""Calls at the end of an event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable


class AtLoopEnd:
    """Call a function when the running event loop ends, unless :meth:`cancel` is called before.

    The function must not block.
    """

    def __init__(self, fn: Callable[[], object]) -> None:
        # asyncio.run() closes the async generators of its loop once it has cancelled all tasks, also
        # under other loops. It has no other hook for its end.
        self._fn: Callable[[], object] | None = fn
        self._generator = self._until_closed()
        with contextlib.suppress(StopIteration):  # it has come to its yield, and the loop knows it
            self._generator.asend(None).send(None)

    def cancel(self) -> None:
        """Do not call the function any more. A second call does nothing."""
        self._fn = None
        with contextlib.suppress(StopIteration, RuntimeError):  # the latter: it is just being closed
            self._generator.aclose().send(None)

    async def _until_closed(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            if self._fn is not None:
                self._fn()
