"""Go through a source of data until it is at its end or the session stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from asyncmon.runtime.endings import is_end_of_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from asyncmon.runtime.interrupts import Interrupts
    from asyncmon.runtime.travelling import TravellingSource

__all__ = ["Batches"]

T = TypeVar("T")


class Batches(Generic[T]):
    """The async iterator behind ``MonitoredSession.iterate``.

    A stop ends it, also while it waits for the source; an error beside the steps is raised there. An
    async generator it made is closed when it ends early.

    Args:
        source: an async or a plain iterable.
        should_stop: asked before each item.
        raise_pending: raises what failed beside the steps, if anything did.
        waits: woken by a stop.
        travelling: told of each item, where the source has a position that is saved.
    """

    def __init__(
        self,
        source: AsyncIterable[T] | Iterable[T],
        should_stop: Callable[[], bool],
        raise_pending: Callable[[], None],
        waits: Interrupts,
        travelling: TravellingSource | None = None,
    ) -> None:
        self._items: AsyncIterator[T] | Iterator[T]
        if isinstance(source, AsyncIterable):
            self._items = aiter(source)
        elif isinstance(source, Iterable):
            self._items = iter(source)
        else:
            raise TypeError(f"iterate() takes an iterable or an async iterable, got {source!r}.")
        self._should_stop = should_stop
        self._raise_pending = raise_pending
        self._waits = waits
        self._travelling = travelling

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._should_stop():
            await self.aclose()
            self._raise_pending()
            raise StopAsyncIteration
        travelling, given = self._travelling, False
        if travelling is not None:
            travelling.fetching()
        try:
            item = await self._next()
            given = True
        except Exception as error:
            if is_end_of_data(error):
                raise StopAsyncIteration from error
            raise
        finally:
            if travelling is not None:
                travelling.fetched(given)
        return item

    async def _next(self) -> T:
        if isinstance(self._items, Iterator):
            return next(self._items)
        task = asyncio.current_task()
        assert task is not None, "coroutines of a session run in tasks"
        base = self._waits.enter(task)
        if base is None:  # the source of a source
            return await anext(self._items)
        try:
            item = await anext(self._items)
        except BaseException as error:
            reason = self._waits.leave(task, base, error)
            if reason is None:
                raise
        else:
            self._waits.leave(task, base)
            return item
        await self.aclose()
        self._raise_pending()
        raise reason

    async def aclose(self) -> None:
        """Close the source's iterator, if it can be closed."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()
