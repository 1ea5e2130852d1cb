"""Waiting that a cancellation does not cut short."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["outlast"]


async def outlast(
    future: asyncio.Future[Any], on_cancel: Callable[[asyncio.CancelledError], None] | None = None
) -> asyncio.CancelledError | None:
    """Wait until a future is done, however often this task is cancelled meanwhile.

    Args:
        future: what to wait for; its result is left to the caller.
        on_cancel: called at the first cancellation, to hurry the future along.

    Returns:
        The first cancellation, for the caller to raise; None if there was none.
    """
    if future.done():
        return None
    try:
        await _done(future)
    except asyncio.CancelledError as error:
        if on_cancel is not None:
            on_cancel(error)
        with anyio.CancelScope(shield=True):  # anyio would cancel again at every turn of the loop
            while not future.done():
                try:
                    await asyncio.wait((future,))
                except asyncio.CancelledError:
                    continue
        del future  # it may have ended with this very error, which refers to this frame
        return error
    return None


def _done(future: asyncio.Future[Any]) -> asyncio.Future[None]:
    """Return what ends with a future and can be cancelled without it. ``asyncio.wait`` is slower."""
    waiter: asyncio.Future[None] = future.get_loop().create_future()

    def tell(_future: asyncio.Future[Any]) -> None:
        if not waiter.done():
            waiter.set_result(None)

    future.add_done_callback(tell)
    return waiter
