"""A cancellation that nobody asked for is an error, and not the end of who happens to see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["is_stray", "without_strays"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def is_stray(asked_before: int = 0) -> bool:
    """Return whether a ``CancelledError`` that is just being handled was not asked of this task.

    ``self.task.cancel(); await self.task`` raises such a one.

    Args:
        asked_before: what ``Task.cancelling`` was before, for a task that outlives cancellations.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() <= asked_before


async def without_strays(what: str, fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Return what ``fn(*args)`` does. A cancellation of this task goes through.

    Args:
        what: is called, for the message.
        fn: is called.
        *args: its arguments.

    Raises:
        RuntimeError: from a ``CancelledError`` that nobody asked for.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await fn(*args)
    except asyncio.CancelledError as error:
        if not is_stray(before):
            raise
        raise RuntimeError(
            f"{what} raised a CancelledError and was not cancelled: it waited for a task or a future "
            "that was. Where that is meant, write `with contextlib.suppress(asyncio.CancelledError)`."
        ) from error
