"""What a call of a hook's method is wrapped in: its deadline, the origin of errors, their log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.stop.origin import Kind, marked, own_generator_exit
from asyncmon.system.cancellation import current_task
from asyncmon.system.error_text import where_it_waits
from asyncmon.system.leavable import Leavable, leavable

logger = logging.getLogger(__name__)

Method = Callable[..., Awaitable[Any]]

LEAVE_SECS = 1.0
"""A method that ignores its cancellation is left behind this time after its deadline."""

FIRST_PAUSE_SECS = 0.1
LONGEST_PAUSE_SECS = 30.0
"""Pauses before ``background`` is called again. Each is twice as long as the last."""


def pause_secs(failures: int) -> float:
    """Return the pause in seconds after a number of consecutive failures."""
    return min(FIRST_PAUSE_SECS * 2.0 ** min(failures - 1, 60), LONGEST_PAUSE_SECS)


async def with_origin(kind: Kind, name: str, method: Method, *args: Any) -> Any:
    """Call a method, and note in its errors where they come from."""
    task = current_task()
    with marked(kind, name):
        try:
            return await method(*args)
        except GeneratorExit as error:
            if (fault := own_generator_exit(error, name, task)) is None:
                raise
            raise fault from error


async def with_deadline(secs: float, name: str, method: Method, *args: Any) -> Any:
    """Call a method with a deadline, after which it is cancelled, and then left behind.

    Raises:
        DeadlineExceededError: the deadline was exceeded.
    """
    scope, began = asyncio.timeout(secs), time.perf_counter()
    caller, task = Leavable(), asyncio.current_task()
    assert task is not None, "hooks are called in tasks"

    def leave() -> None:
        logger.warning(
            "%s has a deadline of %g s and ignores its cancellation, so it is left behind: %s. An "
            "`except BaseException`, or a bare `except`, must raise CancelledError again.",
            name, secs, where_it_waits(task),
        )  # fmt: skip
        caller.is_left = True
        task.cancel()

    leaving = asyncio.get_running_loop().call_later(secs + LEAVE_SECS, leave)
    try:
        async with scope:
            try:
                result = await leavable(caller, method(*args))
            finally:
                leaving.cancel()
                if caller.is_left:
                    task.uncancel()  # that of leave()
        if (took := time.perf_counter() - began) > secs:  # and the timeout could not come
            logger.warning(
                "%s held the event loop for %.3g s, beyond its deadline of %g s. Move what takes long "
                "to a thread: `await asyncio.to_thread(...)`.",
                name, took, secs,
            )  # fmt: skip
        return result
    except TimeoutError as error:
        if not scope.expired():  # the hook's own
            raise
        raise DeadlineExceededError(f"{name} took longer than its deadline of {secs:g} s.") from error
