"""The data sources that a session has begun to read, and their clean-up."""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from asyncmon.data.stage import close_by
from asyncmon.errors import DeadlineExceededError
from asyncmon.runtime.stop.control import INSIST_SECS, LEAST_GRACE_SECS, StopControl
from asyncmon.runtime.stop.deadline import Stage
from asyncmon.runtime.stop.origin import NoEndError, mark
from asyncmon.system import clock
from asyncmon.system.cancellation import is_unrequested
from asyncmon.system.leavable import Leavable, leavable

logger = logging.getLogger(__name__)

T = TypeVar("T")

_Task = asyncio.Task[Any]


class OpenSources:
    """Async iterators that can be closed, each with the task that reads it."""

    # A source is closed in that task, as the blocks that it is inside of, a TaskGroup for example, can
    # only be left there. It is closed when a stop ends the iteration, and at the end of the session. A
    # generator whose last use was a `break` is _left, until its task begins to read another source.

    def __init__(self, stops: StopControl) -> None:
        self._stops = stops
        self._open: dict[int, tuple[Callable[[], Any], _Task]] = {}
        self._left: list[tuple[AsyncIterator[Any], _Task]] = []  # generators without another reference

    def begin(self, items: AsyncIterator[T]) -> Awaitable[T]:
        """Add a source that the calling task reads, and return the awaitable of its first item."""
        task = asyncio.current_task()
        assert task is not None, "coroutines of a session run in tasks"
        try:
            self._open[id(items)] = weakref.ref(items), task
        except TypeError:  # an object without weak references
            self._open[id(items)] = (lambda: items), task
        # A generator keeps the hooks of the moment at which its first item is asked for. They are
        # called when its last reference is dropped, where the event loop would close it in a new task.
        hooks = sys.get_asyncgen_hooks()

        def finalize(agen: AsyncGenerator[Any, Any]) -> None:
            if self._open.pop(id(agen), None) is not None and not task.done():
                self._left.append((agen, task))
            elif hooks.finalizer is not None:
                hooks.finalizer(agen)

        sys.set_asyncgen_hooks(finalizer=finalize)
        try:
            return anext(items)
        finally:
            sys.set_asyncgen_hooks(*hooks)

    async def end(self) -> None:
        """Close the sources that the calling task has read, at the end of the session."""
        task = asyncio.current_task()
        for number, (source, reader) in list(self._open.items()):
            if (reader is task or reader.done()) and (items := source()) is not None:
                await self.close(items)
            self._open.pop(number, None)
        for items, reader in self._left:
            if reader.done():  # its task cannot close it any more
                await self.close(items)
        self._left = [one for one in self._left if not one[1].done()]
        await self.close_left()

    async def close_left(self) -> None:
        """Close the generators that the calling task has read and left."""
        task = asyncio.current_task()
        mine = [items for items, reader in self._left if reader is task]
        self._left = [one for one in self._left if one[1] is not task]
        for items in mine:
            await self.close(items)

    def is_over(self, items: Any) -> None:
        """Forget a source that has ended."""
        self._open.pop(id(items), None)

    async def close(self, items: Any) -> None:
        """Close a source, if that can be done, within the grace period."""
        self.is_over(items)
        close = getattr(items, "aclose", None)  # of async generators; others need none
        if close is None:
            return
        shutdown = self._stops.shutdown
        grace, caller = max(shutdown.grace, LEAST_GRACE_SECS), Leavable()
        # A run that takes all of its stage leaves the clean-up the time of the next one.
        stage = Stage.ENDS if shutdown.is_over(Stage.RUNS) else Stage.RUNS
        secs = min(grace, shutdown.until(stage) - clock.monotonic())
        # Threads and tasks of a pipeline are left behind with a warning, which is no error.
        token = close_by.set(clock.monotonic() + 0.9 * secs)
        task = asyncio.current_task()
        assert task is not None, "coroutines of a session run in tasks"
        before = task.cancelling()

        def leave() -> None:
            caller.is_left = True
            task.cancel()

        leaving = asyncio.get_running_loop().call_later(grace + INSIST_SECS, leave)
        try:
            async with shutdown.limit(stage, caller), asyncio.timeout(grace):
                try:
                    await leavable(caller, close())
                except asyncio.CancelledError:
                    # It may await a task of its own that it has cancelled: that is its normal end.
                    if not is_unrequested(before):
                        raise
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not caller.is_left:
                raise
            late = DeadlineExceededError(
                "The clean-up of the data took longer than its part of the grace period of "
                f"{grace:g} s: a `finally` or an `async with` of its generator does not end."
            )
            late.__cause__ = error
            self._failed(late)
        except Exception as error:
            self._failed(error)
        except BaseExceptionGroup as group:
            # What a TaskGroup makes of the GeneratorExit that closes a generator is no error.
            rest = group.split((GeneratorExit, asyncio.CancelledError))[1]
            if rest is not None:
                if not isinstance(rest, ExceptionGroup):
                    raise
                self._failed(rest)
        finally:
            leaving.cancel()
            close_by.reset(token)

    def _failed(self, error: Exception) -> None:
        try:
            mark(error, "clean-up", "the clean-up of the data")
        except NoEndError as fault:
            error = fault
        # The end of the session raises it, once the state is saved.
        logger.error("The clean-up of the data failed; the session ends first.", exc_info=error)
        self._stops.late_errors.append(error)
