"""Work that a cancellation does not interrupt, and cancellations that were not requested."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

import anyio

from asyncmon.system.error_text import add_note, phrase

logger = logging.getLogger(__name__)

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

CANCEL_ROUNDS = 5
"""The number of cancellations before a task is abandoned."""


async def outlast(
    task: asyncio.Future[Any],
    cancel_after: float | None = None,
    on_cancel: Callable[[asyncio.CancelledError], None] | None = None,
) -> asyncio.CancelledError | None:
    """Wait until a task is done, also while the caller is cancelled.

    Args:
        task: to wait for.
        cancel_after: cancel the task this number of seconds after the first cancellation of the caller,
            and again in this interval. None: never.
        on_cancel: called with the first cancellation of the caller.

    Returns:
        The first cancellation of the caller, to be raised after its cleanup, or None.
    """
    loop = asyncio.get_running_loop()
    cancelled: asyncio.CancelledError | None = None
    deadline: float | None = None
    try:
        if not task.done():
            try:
                await _until_done(task)  # nearly always all: without a scope, which costs 10 us
            except asyncio.CancelledError as error:
                cancelled = error
                if on_cancel is not None:
                    on_cancel(error)
                if cancel_after is not None:
                    deadline = loop.time() + cancel_after
        if task.done():
            return cancelled
        # The scope holds back anyio's cancellations, which recur in each iteration of the loop.
        with anyio.CancelScope(shield=True):
            while not task.done():
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0 and cancel_after is not None:
                    task.cancel()
                    deadline = loop.time() + max(cancel_after, 1.0)
                    continue
                try:
                    await asyncio.wait([task], timeout=left)
                except asyncio.CancelledError as error:
                    cancelled = cancelled or error
                    if cancel_after is not None and deadline is None:
                        deadline = loop.time() + cancel_after
        return cancelled
    finally:
        del cancelled, task  # the error's traceback refers to this frame


def _until_done(task: asyncio.Future[Any]) -> asyncio.Future[None]:
    """Return a future that is done when a task is, and is cancelled without it."""
    # The error of asyncio.wait() would refer to the task, which may end with that very error.
    waiter: asyncio.Future[None] = task.get_loop().create_future()

    def complete(_task: object) -> None:
        if not waiter.done():
            waiter.set_result(None)

    task.add_done_callback(complete)
    return waiter


async def completed(
    task: asyncio.Future[T], on_cancel: Callable[[asyncio.CancelledError], None] | None = None
) -> T:
    """Wait until a task is done, and return its result. A cancellation of the caller is raised then.

    Args:
        task: to wait for. Its error is dropped if the caller is cancelled.
        on_cancel: see :func:`outlast`.
    """
    cancelled = await outlast(task, on_cancel=on_cancel)
    try:
        if cancelled is None:
            return task.result()
        if not task.cancelled():
            task.exception()  # retrieved
        raise cancelled
    finally:
        del cancelled, task  # a traceback and its frame would keep each other and all results alive


async def shielded(
    fn: Callable[[*Ts], Coroutine[Any, Any, T]],
    *args: *Ts,
    name: str,
    cancel_after: float | None = None,
) -> T:
    """Run ``fn(*args)`` to completion in a new task, even if the caller is cancelled.

    A cancellation of the caller is raised when the task is done.

    Args:
        fn: an ``async def`` function.
        *args: its arguments.
        name: the name of the task.
        cancel_after: see :func:`outlast`.
    """
    task = asyncio.create_task(fn(*args), name=name)
    cancelled = await outlast(task, cancel_after)
    if cancelled is None:
        return task.result()
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        logger.error("%s failed while it was being cancelled.", name, exc_info=failure)
        add_note(cancelled, f"{name} raised {phrase(failure)}")
    try:
        raise cancelled
    finally:
        del cancelled, failure, task  # a traceback and its frame would keep each other alive


def current_task() -> asyncio.Task[Any] | None:
    """Return the running task; None in a callback, and in a thread without an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the running event loop; None in a thread without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def is_unrequested(requests_before: int = 0) -> bool:
    """Return whether the ``CancelledError`` being handled was not requested of the current task.

    ``other.cancel(); await other`` raises such an error.

    Args:
        requests_before: the earlier value of ``Task.cancelling``, for a task that survived
            cancellations.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() <= requests_before


async def without_unrequested(what: str, fn: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Return ``await fn(*args)``, with an unrequested ``CancelledError`` as a ``RuntimeError``.

    Args:
        what: the name of the call, for the message.
        fn: an ``async def`` function.
        *args: its arguments.

    Raises:
        RuntimeError: from a ``CancelledError`` that was not requested of this task.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await fn(*args)
    except asyncio.CancelledError as error:
        if not is_unrequested(before):
            raise
        raise RuntimeError(
            f"{what} raised a CancelledError and was not cancelled: it waited for a task or a future "
            "that was. Where that is meant, write `with contextlib.suppress(asyncio.CancelledError)`."
        ) from error
