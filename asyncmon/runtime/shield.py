"""What has to be done is done, whoever cancels the caller meanwhile."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

import anyio

from asyncmon.notes import add_note, phrase

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["shielded"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def shielded(
    fn: Callable[[*Ts], Coroutine[Any, Any, T]],
    *args: *Ts,
    name: str,
    patience: float | None = None,
) -> T:
    """Run ``fn(*args)`` to its end in a task of its own, and return what it returns.

    A cancellation of the caller is kept and raised once the task is done.

    Args:
        fn: what to do.
        *args: its arguments.
        name: of the task.
        patience: seconds after the first cancellation at which the task is cancelled too, and once
            more after every further ``patience``. None: it takes what it takes.
    """
    task = asyncio.create_task(fn(*args), name=name)
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    deadline: float | None = None
    # The scope holds back anyio's cancellations, which would come again at every turn of the loop.
    with anyio.CancelScope(shield=True):
        while not task.done():
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0 and patience is not None:
                task.cancel()
                deadline = loop.time() + max(patience, 1.0)
                continue
            try:
                await asyncio.wait([task], timeout=left)
            except asyncio.CancelledError as error:
                cancelled = cancelled or error
                if patience is not None and deadline is None:
                    deadline = loop.time() + patience
    if cancelled is None:
        return task.result()
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        logger.error("%s failed while it was being cancelled.", name, exc_info=failure)
        add_note(cancelled, f"{name} raised {phrase(failure)}")
    try:
        raise cancelled
    finally:
        del cancelled, failure, task  # a traceback and its frame that hold each other live on
