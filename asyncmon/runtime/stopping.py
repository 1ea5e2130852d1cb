"""Grace, then force, then a report: how tasks are brought to their end."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["stop_tasks", "time_out", "where_it_waits"]

logger = logging.getLogger(__name__)

Tasks = set[asyncio.Task[Any]]

PATIENCE_SECS = 1.0
"""After this long without a word, a line says who is being waited for."""

CANCEL_ROUNDS = 5
"""How often, a second apart, a task is cancelled before it is given up."""

_NOT_THEIRS = ("asyncmon", "asyncio", "anyio")


async def stop_tasks(alive: Callable[[], Tasks], grace: float) -> list[str]:
    """Wait for tasks, then cancel them. Return the names of those that outlive even that.

    Args:
        alive: gives the tasks that have not ended; asked again, as tasks start tasks.
        grace: seconds they have to end by themselves.
    """
    await _wait_quietly(alive, min(grace, PATIENCE_SECS))
    if grace > PATIENCE_SECS and alive():
        logger.info("Waiting up to %g s for tasks to stop: %s", grace, " ".join(_names(alive())))
        await _wait_quietly(alive, grace - PATIENCE_SECS)
    for _ in range(CANCEL_ROUNDS):
        for task in alive():
            task.cancel()
        await _wait_quietly(alive, 1.0)
    for task in alive():
        logger.warning("Task %r ignores its cancellation: %s", task.get_name(), where_it_waits(task))
    return _names(alive())


async def _wait_quietly(alive: Callable[[], Tasks], secs: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + secs
    while (tasks := alive()) and (left := deadline - loop.time()) > 0:
        await asyncio.wait(tasks, timeout=left)


def _names(tasks: Tasks) -> list[str]:
    return sorted(task.get_name() for task in tasks)


def where_it_waits(task: asyncio.Task[Any]) -> str:
    """Say at which line a task is suspended, the innermost one, and which one of its user led there."""
    frames = task.get_stack()[-1:]
    inner: Any = task.get_coro()
    while inner is not None:  # the last one awaited is a future, which has no frame
        frame = getattr(inner, "cr_frame", None)
        if frame is not None:
            frames.append(frame)
        inner = getattr(inner, "cr_await", None)
    if not frames:
        return "it has no Python frame"
    last = frames[-1]
    theirs = [frame for frame in frames if _package(frame) not in _NOT_THEIRS]
    led_there = f", called from {_place(theirs[-1])}" if theirs and theirs[-1] is not last else ""
    return f"it waits in {_place(last)}{led_there}"


def _package(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0]


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"


def time_out(waiter: asyncio.Future[bool]) -> None:
    """Tell who waits that it was in vain."""
    if not waiter.done():
        waiter.set_result(False)
