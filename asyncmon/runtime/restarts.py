"""Workers that are started again when they fail."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

from asyncmon.error_text import add_note, phrase
from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.runtime.phase import SessionClosing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from asyncmon.runtime.stop_event import StopEvent

__all__ = ["check_function", "supervised"]

logger = logging.getLogger(__name__)

FIRST_PAUSE_SECS = 0.05
LONGEST_PAUSE_SECS = 5.0


async def supervised(
    stop: StopEvent, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], name: str, restart: int
) -> Any:
    """Call ``fn(*args)``; when it fails, call it again, up to ``restart`` times, after a pause.

    The pauses double, from 0.05 s up to 5 s. The error that is one too many is raised, with the earlier
    ones as notes. The end of the data is no reason to start again. After a stop nothing is: a failure
    that would have been forgiven is logged, and that a channel, a queue or the session itself was
    closed is none.
    """
    earlier: list[Exception] = []
    while True:
        try:
            return await _awaitable(fn, args)
        except Exception as error:
            if _is_the_end(error, stop):
                return None
            if len(earlier) == restart or isinstance(error, OutOfRangeError):
                for number, failure in enumerate(earlier, 1):
                    add_note(error, f"Failure {number}, restarted: {phrase(failure)}")
                raise
            earlier.append(error)
        if stop.is_set:
            logger.warning("Task %r failed while it was to stop.", name, exc_info=earlier[-1])
            return None
        logger.warning(
            "Task %r failed and is started again (%d of %d): %s",
            name, len(earlier), restart, phrase(earlier[-1]), exc_info=earlier[-1],
        )  # fmt: skip
        pause = min(FIRST_PAUSE_SECS * 2 ** (len(earlier) - 1), LONGEST_PAUSE_SECS)
        if await stop.wait(pause):
            return None


def _is_the_end(error: Exception, stop: StopEvent) -> bool:
    """Return whether an error only says that what the worker uses was closed at the end of all."""
    if isinstance(error, SessionClosing):
        return error.stop is stop
    return stop.is_set and isinstance(error, (CancelledError, OutOfRangeError))


def check_function(fn: Any) -> None:
    """Refuse what cannot be called, a coroutine object above all.

    Raises:
        TypeError: it cannot.
    """
    if inspect.iscoroutine(fn):
        fn.close()
        raise TypeError(
            f"create_task takes a function and its arguments, got the coroutine {fn.__qualname__!r}. "
            f"Write coord.create_task({fn.__name__}, ...)."
        )
    if not callable(fn):
        raise TypeError(f"create_task takes an `async def` function and its arguments, got {fn!r}.")


def _awaitable(fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> Awaitable[Any]:
    result = fn(*args)
    if not inspect.isawaitable(result):
        raise TypeError(
            f"create_task takes an `async def` function; {fn!r} returned {result!r}, which cannot be "
            "awaited. Write `async def`, or coord.create_task(asyncio.to_thread, fn, ...)."
        )
    return result
