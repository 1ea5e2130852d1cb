"""Iteration over a source of data, ended by the session's stop, with a position in checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Generic, NoReturn, Self, TypeVar

from asyncmon.errors import OutOfRangeError
from asyncmon.runtime.frontier import Frontier, marks_of
from asyncmon.runtime.frontier_batch import Task
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import is_end_of_data
from asyncmon.runtime.stop.origin import mark as mark_error

T = TypeVar("T")


class DataIterator(Generic[T]):
    """The async iterator behind ``MonitoredSession.iterate``.

    A stop ends it, also while it waits for the source. It raises an error of a background task. If it
    ends early, it closes the source's iterator; after a ``break`` the end of the session does.
    """

    def __init__(
        self,
        source: AsyncIterable[T] | Iterable[T],
        should_stop: Callable[[], bool],
        stops: StopControl,
        sources: OpenSources,
        frontier: Frontier | None = None,
    ) -> None:
        self._frontier: Frontier | None = None
        self._source = source
        self._should_stop = should_stop
        self._stops = stops
        self._sources = sources
        self._items: AsyncIterator[T] | Iterator[T]
        self._open()
        self._moves = 0
        if frontier is not None:
            frontier.begin_reading()
            self._moves = frontier.moves
            self._mark = marks_of(source)
            self._frontier = frontier

    def _open(self) -> None:
        source = self._source
        if isinstance(source, AsyncIterable):
            self._items = aiter(source)
        elif isinstance(source, Iterable):
            self._items = iter(source)
        else:
            raise TypeError(
                f"iterate() takes an iterable or an async iterable, got {source!r}."
                f"{' Call it.' * callable(source)}"
            )
        self._is_begun = isinstance(self._items, Iterator)

    def __del__(self) -> None:
        if self._frontier is not None:
            self._frontier.end_reading()

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> NoReturn:
        raise TypeError("Data of a session is awaited: write `async for`, not `for`.")

    def __anext__(self) -> Awaitable[T]:
        # The element belongs to the caller, also of create_task(anext(...)), which begins later.
        task = asyncio.current_task()
        frontier = self._frontier
        if frontier is not None and not frontier.reads_ahead:
            frontier.ask(task)
        return self._fetch(task)

    async def _fetch(self, task: Task | None) -> T:
        if not self._is_begun:
            await self._sources.close_left()
        if self._should_stop():
            await self.end()
            raise StopAsyncIteration
        try:
            frontier = self._frontier
            if frontier is None:
                return await self._next()
            while True:  # without elements that are consumed already
                while frontier.moves != self._moves:
                    await self._follow(frontier)
                mark, moves = self._mark(), frontier.moves
                ahead = frontier.fetch(task, mark)
                try:
                    item = await self._next()
                except BaseException as error:
                    frontier.not_fetched()
                    if is_end_of_data(error) and not self._should_stop():
                        await frontier.outlast_run(task, mark)
                    is_overtaken = frontier.moves != moves and not self._should_stop()
                    if not (is_overtaken and is_end_of_data(error) and frontier.reads_again()):
                        raise
                else:
                    if frontier.moves != moves and frontier.reads_again():
                        continue
                    if frontier.fetched(task, mark, ahead):
                        return item
        except Exception as error:
            mark_error(error, "data", "the data")
            if is_end_of_data(error):
                raise StopAsyncIteration from error
            raise

    async def _follow(self, frontier: Frontier) -> None:
        """Continue where the source was moved to."""
        self._moves = frontier.moves
        if not frontier.follows:
            items = self._items
            self._open()
            if items is not self._items and items is not self._source:
                await self._sources.close(items)

    async def _next(self) -> T:
        if isinstance(self._items, Iterator):
            try:
                return next(self._items)
            except StopIteration:
                self._end_pass()
                raise
        scope = CallScope(self._stops.scopes, "data")
        try:
            with scope:
                is_first, self._is_begun = not self._is_begun, True
                coming = self._sources.begin(self._items) if is_first else anext(self._items)
                try:
                    item: T = await scope.leavable(coming)
                except (StopAsyncIteration, OutOfRangeError):
                    self._end_pass()  # not by a stop, which raises at the end of the scope
                    raise
            return item
        except StopAsyncIteration:
            if scope.is_left:  # it ignores its cancellation, and cannot be closed
                self._sources.is_over(self._items)
                self._items = iter(())
            if self._should_stop():
                await self.end()
            self._sources.is_over(self._items)
            self._is_begun = False  # it is read again if a move has overtaken its end
            raise

    def _end_pass(self) -> None:
        if self._frontier is not None:
            self._frontier.end_pass()

    async def end(self) -> None:
        """Close the source's iterator, and raise the error of a background task, if any."""
        await self.aclose()
        self._stops.raise_pending()

    async def skip_pass(self) -> None:
        """Close the iterator of a dataset, and leave out the rest of its present pass."""
        await self.aclose()
        assert self._frontier is not None, "a dataset has a position"
        self._frontier.skip_pass()

    async def aclose(self) -> None:
        """Close the source's iterator, if it can be closed. See :meth:`OpenSources.close`."""
        await self._sources.close(self._items)
