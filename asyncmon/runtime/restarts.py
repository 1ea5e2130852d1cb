"""Workers that are started again when they fail."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any, Protocol

from asyncmon.errors import CancelledError, OutOfRangeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["refuse_coroutine", "supervised"]

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECS = 0.05
LONGEST_PAUSE_SECS = 5.0


class _Stoppable(Protocol):
    def should_stop(self) -> bool: ...

    async def wait_for_stop(self, timeout: float | None = None) -> bool: ...


async def supervised(
    coord: _Stoppable, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], name: str, restart: int
) -> Any:
    """Call ``fn(*args)``; when it fails, call it again, up to ``restart`` times, after a pause.

    The pauses double, from 0.05 s up to 5 s. The error that is one too many is raised, with the earlier
    ones as notes. The end of the data is no reason to start again. After a stop nothing is: a failure
    that would have been forgiven is logged, and that a channel or a queue was closed is none.
    """
    earlier: list[Exception] = []
    while True:
        try:
            return await fn(*args)
        except Exception as error:
            if coord.should_stop() and isinstance(error, (CancelledError, OutOfRangeError)):
                return None
            if len(earlier) == restart or isinstance(error, OutOfRangeError):
                for number, failure in enumerate(earlier, 1):
                    error.add_note(f"Failure {number}, restarted: {type(failure).__name__}: {failure}")
                raise
            earlier.append(error)
        if coord.should_stop():
            logger.warning("Task %r failed while it was to stop.", name, exc_info=earlier[-1])
            return None
        logger.warning(
            "Task %r failed and is started again (%d of %d): %s: %s",
            name, len(earlier), restart, type(earlier[-1]).__name__, earlier[-1],
            exc_info=earlier[-1],
        )  # fmt: skip
        pause = min(FIRST_PAUSE_SECS * 2 ** (len(earlier) - 1), LONGEST_PAUSE_SECS)
        if await coord.wait_for_stop(pause):
            return None


def refuse_coroutine(fn: Any) -> None:
    """Refuse a coroutine object where a function is expected.

    Raises:
        TypeError: it is one.
    """
    if inspect.iscoroutine(fn):
        fn.close()
        raise TypeError(
            f"create_task takes a function and its arguments, got the coroutine {fn.__qualname__!r}. "
            f"Write coord.create_task({fn.__name__}, ...)."
        )
