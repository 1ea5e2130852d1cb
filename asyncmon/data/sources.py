"""Iterables as sources: plain ones are read in a thread, asynchronous ones in a task."""

from __future__ import annotations

import asyncio
import inspect
from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from asyncmon.data.loaders import (
    LoaderPosition,
    default_generator_kept,
    fresh_state,
    is_loader,
    of_this_split,
    split_of,
)
from asyncmon.data.stage import (
    Chunk,
    Epoch,
    Mark,
    Node,
    Stage,
    State,
    Waiter,
    close_secs,
    end_tasks,
    logger,
    too_short,
)
from asyncmon.errors import OutOfRangeError
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.loop_budget import LoopBudget

AnyIterable: TypeAlias = Iterable[Any] | AsyncIterable[Any]


class Source(Node):
    """An iterable, or a function that returns a new one for every pass.

    An iterator (a generator, an open file) can be read once.
    """

    kind = "source"

    def __init__(self, source: AnyIterable | Callable[[], AnyIterable]) -> None:
        self._source = source
        self._spent = False
        self._live: State | None = None  # the position at the start of a pass that the loader is at
        self._given: State | None = None

    def __repr__(self) -> str:
        return f"from_iterable({getattr(self._source, '__qualname__', type(self._source).__name__)})"

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        state, self._given = state or self._given, None
        live, self._live = self._live, None
        if state is live:
            state = None
        start = 0 if state is None else int(state["next"])
        executor = DaemonExecutor(f"reader of {self!r}")
        try:
            iterable = await self._make(executor)
        except BaseException:
            executor.shutdown()
            raise
        if isinstance(iterable, AsyncIterable):
            executor.shutdown()
            return _AsyncStage(repr(self), iterable, start)
        if is_loader(iterable):
            return _LoaderStage(repr(self), LoaderPosition(iterable, state, live), executor)
        return _ThreadStage(repr(self), iterable, start, executor)

    def is_of_other_shards(self, state: State | None) -> bool:
        if state is not None and "skip" in state:
            return self.is_of_other_shards(state["from"])
        split = None if state is None else state.get("split")
        return split is not None and is_loader(self._source) and split != split_of(self._source)

    def _resharded(self, state: State, skip: int) -> State:
        return of_this_split(self._source, state, skip)

    def fresh(self) -> State | None:
        if not is_loader(self._source):
            return None
        self._live = fresh_state(self._source)
        return self._live

    def begin_at(self, state: State) -> None:
        self._given = state

    async def _make(self, executor: DaemonExecutor) -> AnyIterable:
        source = self._source
        if isinstance(source, Iterable | AsyncIterable):
            if isinstance(source, Iterator | AsyncIterator):
                if self._spent:
                    raise ValueError(
                        f"{source!r} can be read once, and it was. To read it again (another epoch, a "
                        "position loaded, a loop left and taken up again) pass a function that returns "
                        "a new iterator: from_iterable(lambda: ...)."
                    )
                self._spent = True
            return source
        made = source() if inspect.isasyncgenfunction(source) else await executor.call(source)
        if not isinstance(made, Iterable | AsyncIterable):
            raise TypeError(
                f"{source!r} was expected to return an iterable or an asynchronous one, not {made!r}."
            )
        return made


class SourceStage(Stage):
    """Elements that a reader appends to ``_items``, on request or up to a depth.

    With a depth, the last pulled elements count as held until the next pull.
    """

    def __init__(self, start: int) -> None:
        self._next = start
        self._start = start
        self._items: list[Any] = []
        self._depth = 0  # the number to read ahead of the consumer
        self._requested = 0  # elements that the reader still has to read
        self._ended = False
        self._error: BaseException | None = None
        self._least = 1  # the number of elements that the consumer waits for
        self._arrival = Waiter()

    def prefetch(self, depth: int) -> None:
        """Read ahead of the consumer, from the first pull on."""
        self._depth = depth
        self.read_ahead = max(1, depth // 4)

    def mark(self) -> Mark:
        position = self._next
        return lambda: {"stage": "source", "next": position}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        if self._depth:
            most = min(most, self.read_ahead)
            self._ask(self._depth)
        self._least = min(least, most)
        while len(self._items) < self._least and not self._ended:
            self._ask(self._depth or most)
            await self._wait_for_items()
        if not self._items:
            if self._error is not None:
                raise self._error
            return []
        chunk = self._items[:most]
        del self._items[: len(chunk)]
        self._next += len(chunk)
        return chunk

    def _ask(self, total: int) -> None:
        """Start reading up to a total of elements, unless too few are missing."""
        missing = total - len(self._items) - self._requested
        if missing >= self.read_ahead or not self._items:
            self._read_more(missing)

    @abstractmethod
    def _read_more(self, count: int) -> None:
        """Start reading more elements if the count is positive."""

    @abstractmethod
    async def _wait_for_items(self) -> None:
        """Wait for ``_least`` elements or the end."""


class _ThreadStage(SourceStage):
    """Reads an iterable in a thread, one job at a time; elements are available during the job."""

    def __init__(
        self, name: str, iterable: Iterable[Any], start: int, executor: DaemonExecutor
    ) -> None:
        super().__init__(start)
        self._name = name
        self._iterable = iterable
        self._iterator: Iterator[Any] | None = None
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._job: asyncio.Future[tuple[bool, Exception | None]] | None = None
        self._hungry = False
        self._closing = False

    def _read_more(self, count: int) -> None:
        if self._job is None and count > 0:
            self._requested = count
            self._job = self._executor.start(self._read, count)
            self._job.add_done_callback(self._job_done)

    async def _wait_for_items(self) -> None:
        # The thread appends, then reads the flag; here the flag is set, then the list is read.
        self._hungry = True
        if len(self._items) < self._least and not self._ended:
            await self._arrival.wait()
        self._hungry = False

    def _begin(self) -> Iterator[Any]:
        """Return the iterator of the elements. Called in the thread."""
        return _at(iter(self._iterable), self._start)

    def _read(self, most: int) -> tuple[bool, Exception | None]:
        """In the thread: append up to ``most`` elements; return whether they end, and an error."""
        count = 0
        try:
            if self._iterator is None:
                self._iterator = self._begin()
            append = self._items.append
            for item in islice(self._iterator, most):
                append(item)
                count += 1
                self._requested = most - count
                if self._hungry and len(self._items) >= self._least:
                    self._hungry = False
                    self._loop.call_soon_threadsafe(self._arrival.wake)
                if self._closing:
                    break
        except OutOfRangeError:
            return True, None
        except Exception as error:  # raised where the elements are awaited
            return True, error
        return count < most and not self._closing, None

    def _job_done(self, job: asyncio.Future[tuple[bool, Exception | None]]) -> None:
        self._job = None
        self._requested = 0
        if not job.cancelled():
            if (failure := job.exception()) is not None:  # a BaseException, SystemExit say
                self._ended, self._error = True, failure
            else:
                self._ended, self._error = job.result()
        self._arrival.wake()

    async def aclose(self) -> None:
        self._closing = True
        closing = self._executor.start(self._close_iterator)
        self._executor.shutdown()
        secs = close_secs()
        _, stuck = await asyncio.wait([closing], timeout=secs)
        if stuck:
            logger.warning(
                "%s is still busy in its thread %.3g s after it was closed; it is left behind.",
                self._name,
                secs,
            )
        else:
            closing.result()

    def _close_iterator(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            close()


class _LoaderStage(_ThreadStage):
    """Reads a loader of torch."""

    def __init__(self, name: str, position: LoaderPosition, executor: DaemonExecutor) -> None:
        super().__init__(name, (), position.start, executor)
        self._position = position

    def mark(self) -> Mark:
        return self._position.mark(self._next)

    async def pull(self, most: int, least: int = 1) -> Chunk:
        chunk = await super().pull(most, least)
        self._position.took(chunk)
        return chunk

    async def skip(self, count: int) -> int:
        with default_generator_kept():  # from which the elements may draw
            return await super().skip(count)

    def _begin(self) -> Iterator[Any]:
        return self._position.begin()


class _AsyncStage(SourceStage):
    """Reads an asynchronous iterable in a task of its own, which also closes it."""

    def __init__(self, name: str, iterable: AsyncIterable[Any], start: int) -> None:
        super().__init__(start)
        self._name = name
        self._iterable = iterable
        self._demand = Waiter()
        self._task = asyncio.create_task(self._read(), name=f"reader of {name}")

    def _read_more(self, count: int) -> None:
        if count > 0:
            self._requested += count
            self._demand.wake()

    async def _wait_for_items(self) -> None:
        await self._arrival.wait()

    async def _read(self) -> None:
        budget = LoopBudget.of_running_loop()
        to_skip = self._start
        iterator = aiter(self._iterable)
        try:
            while self._requested <= 0:
                await self._demand.wait()
            async for item in iterator:
                if to_skip:
                    to_skip -= 1
                else:
                    self._items.append(item)
                    self._requested -= 1
                    if len(self._items) >= self._least:
                        self._arrival.wake()
                    while self._requested <= 0:
                        await self._demand.wait()
                if budget.spent():
                    await budget.pause()
            if to_skip:
                self._error = too_short(f"{to_skip} elements were missing")
        except OutOfRangeError:
            pass
        except Exception as error:  # raised where the elements are awaited
            self._error = error
        except asyncio.CancelledError:  # not the end of the data while a consumer waits for it
            self._error = RuntimeError(f"The task that reads {self._name} was cancelled.")
            raise
        finally:
            self._ended = True
            self._arrival.wake()
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()

    async def aclose(self) -> None:
        await end_tasks(self._task)


def _at(iterator: Iterator[Any], start: int) -> Iterator[Any]:
    """Skip elements that were consumed before."""
    passed = sum(1 for _ in islice(iterator, start))
    if passed < start:
        raise too_short(f"at element {passed} instead of {start}")
    return iterator
