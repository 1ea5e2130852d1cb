"""``map``: a function applied to each element, several at a time, in the order of the input or not."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from asyncmon.data.stage import (
    CHUNK,
    Chunk,
    Epoch,
    Mark,
    Node,
    Stage,
    StageOver,
    State,
    Waiter,
    end_tasks,
    mark_before,
    open_node,
)
from asyncmon.system.daemon_executor import DaemonExecutor, no_stop_iteration
from asyncmon.system.functions import is_coroutine_function

_UNORDERED = "map(ordered=False)"
# In order, positions are those of the input. Otherwise a position has the numbers of the returned
# results, so that none is repeated or lost: `first`, the first element of the pass whose result is not
# returned, and relative to it `left`, those returned before the position, and `order`, those after it.
_START: State = {"first": 0, "left": [], "order": [], "from": None}
_JOB_SECONDS = 0.001  # results done by then are returned before the rest


class Map(Node):
    """Results in the order of the input, or as they complete."""

    def __init__(self, above: Node, fn: Callable[[Any], Any], concurrency: int, ordered: bool) -> None:
        self.above = (above,)
        self.kind = None if ordered else _UNORDERED
        self._fn = fn
        self._concurrency = concurrency

    def __repr__(self) -> str:
        order = "" if self.kind is None else ", ordered=False"
        return f"{self.above[0]!r}.map({name_of(self._fn)}{order})"

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        concurrency, caller = self._concurrency, caller_of(self._fn, self._concurrency)
        if self.kind is None:
            return OrderedMapStage(await open_node(self.above[0], state, epoch), caller, concurrency)
        state = state or _START
        above = await open_node(self.above[0], state["from"], epoch)
        return UnorderedMapStage(
            above, caller, concurrency, state["first"], state["left"], state["order"]
        )

    @property
    def is_unordered(self) -> bool:
        return self.kind is not None or super().is_unordered

    def _aligned(
        self, state: State | None, later: State | None, passed: int, later_passed: int
    ) -> State | None:
        if self.kind is None:
            return super()._aligned(state, later, passed, later_passed)
        if self.above[0].is_unordered:
            raise ValueError(f"{self!r} is the second map(ordered=False) of its pipeline.")
        state, later = state or _START, later or _START
        shift = later["first"] - state["first"]  # numbers count from `first`, an element of the pass
        if shift < 0 or passed > len(state["order"]) or later_passed > len(later["order"]):
            raise ValueError(f"The order of {self!r} is not known that far.")
        order = list(map(int, state["order"]))
        following = [int(number) + shift for number in later["order"]]
        known = {*map(int, state["left"]), *order}
        returned = {*range(shift), *(int(number) + shift for number in later["left"])}
        returned.update(following[:later_passed])
        # Up to the save the order is known. The elements between it and the later position are made
        # again in any order: the places of all that follow depend only on their number.
        order += sorted(returned - known)
        known |= returned
        order += [number for number in following[later_passed:] if number not in known]
        return {**state, "stage": self.kind, "order": order}


class MapStage(StageOver):
    """Workers take elements in order and store results; subclasses choose the order of results."""

    #   number   0                  _passed                    _taken                _limit
    #            | as many returned | _working, or in _results | _input, in reverse  | next pull
    #
    #   _marks has the positions of the chunks of the input, by the numbers at which they began.
    #   An _error takes the place of the result of its number.

    def __init__(self, above: Stage, caller: Caller, concurrency: int) -> None:
        super().__init__(above)
        self._caller = caller
        self._concurrency = concurrency
        # With several workers, a slow element does not stop the others at once.
        self._window = 2 * concurrency if concurrency > 1 else 0
        self._workers: list[asyncio.Task[None]] = []
        self._taking = asyncio.Lock()  # numbers follow the order of the input
        self._input: list[Any] = []
        self._marks: deque[tuple[int, Mark]] = deque()
        self._taken = 0
        self._limit = 0
        self._passed = 0
        self._working = 0
        self._ended = False
        self._error: tuple[int, BaseException] | None = None
        self._results: dict[int, Any] = {}  # by number, in the order of completion
        self._room = Waiter()
        self._arrival = Waiter()

    @abstractmethod
    def _leaving(self, most: int) -> list[Any]:
        """Return the results that are due."""

    @abstractmethod
    def _error_is_due(self, number: int) -> bool:
        """Return true if all results before the error of an element are returned."""

    def _may_take(self, number: int) -> bool:
        return number < self._limit

    def _was_returned(self, number: int) -> bool:
        """Return true for an element whose result was returned before the position was saved."""
        return False

    async def pull(self, most: int, least: int = 1) -> Chunk:
        if not self._workers:
            self._workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
        while not (results := self._leaving(most)):
            if self._error is not None and self._error_is_due(self._error[0]):
                raise self._error[1]
            if self._ended and not self._working:
                return []
            self._limit = self._passed + max(most, self._window)
            self._room.wake()
            await self._arrival.wait()
        return results

    async def _work(self) -> None:
        number = self._taken
        elements: list[Any] = []
        try:
            while True:
                async with self._taking:
                    number, elements = await self._take()
                if not elements:
                    return
                while elements:
                    results, error = await self._caller.call(elements)
                    self._results.update(enumerate(results, number))
                    number += len(results)
                    self._working -= len(results)
                    del elements[: len(results)]
                    self._arrival.wake()
                    if error is not None:
                        self._fail(number, error)
                        return
        except asyncio.CancelledError:  # by user code or aclose: the waiter must not wait for ever
            self._fail(number, RuntimeError("A function given to map, or its worker, was cancelled."))
            raise
        except BaseException as error:
            self._fail(number, error)
        finally:
            self._working -= len(elements)

    async def _take(self) -> tuple[int, list[Any]]:
        """Return the next elements for a worker and the number of the first; none at the end."""
        while not self._ended and self._error is None:
            if not self._may_take(self._taken):
                await self._room.wait()
            elif not self._input:
                await self._refill()
            elif self._was_returned(self._taken):
                self._input.pop()
                self._taken += 1
                self._passed += 1
            else:
                return self._taken, self._take_some()
        return self._taken, []

    def _take_some(self) -> list[Any]:
        share = -(-(self._limit - self._taken) // self._concurrency)
        some = min(max(share, 1), self._caller.grain, len(self._input))
        elements: list[Any] = []
        while len(elements) < some and not self._was_returned(self._taken):
            elements.append(self._input.pop())
            self._taken += 1
        self._working += len(elements)
        return elements

    async def _refill(self) -> None:
        mark = self._above.mark()
        try:
            chunk = await self._above.pull(min(max(self._limit - self._taken, 1), CHUNK))
        except Exception as error:  # raised after the results of earlier elements
            self._fail(self._taken, error)
            return
        if not chunk:
            self._ended = True
            self._arrival.wake()
            return
        self._marks.append((self._taken, mark))
        self._input = list(chunk)
        self._input.reverse()

    def _fail(self, number: int, error: BaseException) -> None:
        if self._error is None or number < self._error[0]:
            self._error = (number, error)
        self._room.wake()
        self._arrival.wake()

    async def aclose(self) -> None:
        self._caller.close()
        await end_tasks(*self._workers)
        await super().aclose()


class OrderedMapStage(MapStage):
    """Returns results in the order of the input."""

    def _leaving(self, most: int) -> list[Any]:
        leaving: list[Any] = []
        while len(leaving) < most and self._passed in self._results:
            leaving.append(self._results.pop(self._passed))
            self._passed += 1
        return leaving

    def _error_is_due(self, number: int) -> bool:
        return self._passed >= number

    def mark(self) -> Mark:
        return mark_before(self._passed, self._marks, self._above)

    async def skip(self, count: int) -> int:
        return await self._above.skip(count)


class _Returned:
    """A returned result, linked to the next one; a mark follows the links from its own result."""

    __slots__ = ("next", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.next: _Returned | None = None


class UnorderedMapStage(MapStage):
    """Results are returned as they complete; after resuming, first the earlier ones in their order."""

    def __init__(
        self,
        above: Stage,
        caller: Caller,
        concurrency: int,
        start: int,
        left: Sequence[int],
        order: Sequence[int],
    ) -> None:
        super().__init__(above, caller, concurrency)
        self._start = start  # the elements of the pass before the first of this stage
        self._returned_before = frozenset(map(int, left))
        self._order = deque(map(int, order))
        self._left = set(self._returned_before)  # numbers above _first of returned results
        self._first = 0  # the first element whose result is not returned
        self._last_returned = _Returned(-1)

    def _may_take(self, number: int) -> bool:
        # The next result in a resumed order may be further ahead than the limit. Elements beyond it
        # wait: their results would be kept until all earlier ones have left.
        return number < self._limit or (len(self._order) > 0 and number <= self._order[0])

    def _was_returned(self, number: int) -> bool:
        return number in self._returned_before

    def _leaving(self, most: int) -> list[Any]:
        leaving: list[Any] = []
        while len(leaving) < most and self._results:
            number = self._order[0] if self._order else next(iter(self._results))
            if number not in self._results:
                break
            if self._order:
                self._order.popleft()
            leaving.append(self._results.pop(number))
            self._record(number)
        return leaving

    def _record(self, number: int) -> None:
        self._passed += 1
        self._last_returned.next = _Returned(number)
        self._last_returned = self._last_returned.next
        self._left.add(number)
        while self._first in self._left:
            self._left.discard(self._first)
            self._first += 1

    def _error_is_due(self, number: int) -> bool:
        return not self._working

    def mark(self) -> Mark:
        first, last, start = self._first, self._last_returned, self._start
        position = mark_before(first, self._marks, self._above)
        left = [number - first for number in self._left]

        def resolve() -> State:
            order = []
            following = last.next
            while following is not None:
                order.append(following.number - first)
                following = following.next
            order += [number - first for number in self._order]
            fixed = {"stage": _UNORDERED, "first": start + first, "left": left, "order": order}
            return {**fixed, "from": position()}

        return resolve


# --- calls of the function ---------------------------------------------------------------------------
# ``async def`` is awaited on the loop, a plain function runs in threads.


class Caller(ABC):
    """Applies a function to elements."""

    grain = 1
    """The number of elements of one call."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    @abstractmethod
    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        """Return results of the first elements, at least one, or the error of the next one."""

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """Let idle threads end. Running calls are abandoned."""


def caller_of(fn: Callable[[Any], Any], threads: int) -> Caller:
    """Return a caller: on the loop for a coroutine function, else in ``threads`` threads."""
    return _Awaited(fn) if is_coroutine_function(fn) else _InThreads(fn, threads)


def name_of(fn: Callable[..., Any]) -> str:
    """Return the name of a function for messages."""
    if isinstance(fn, functools.partial):
        return name_of(fn.func)
    return str(getattr(fn, "__qualname__", type(fn).__name__))


class _Awaited(Caller):
    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        try:
            return [await self._fn(elements[0])], None
        except Exception as error:
            return [], error


class _InThreads(Caller):
    """Jobs of about a millisecond: many elements of a fast function, or one of a slow one."""

    def __init__(self, fn: Callable[[Any], Any], threads: int) -> None:
        super().__init__(fn)
        self._executor = DaemonExecutor(f"map({name_of(fn)})", threads)

    async def call(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        results, error = await self._executor.call(self._job, elements)
        if results and inspect.isawaitable(results[-1]):
            try:
                results[-1] = await results[-1]
            except Exception as failure:
                results.pop()
                error = failure
        return results, error

    def close(self) -> None:
        self._executor.shutdown()

    def _job(self, elements: list[Any]) -> tuple[list[Any], Exception | None]:
        results: list[Any] = []
        fn, clock = self._fn, time.perf_counter
        start = clock()
        try:
            for element in elements:
                result = fn(element)
                results.append(result)
                if clock() - start > _JOB_SECONDS or inspect.isawaitable(result):
                    self.grain = max(1, len(results))
                    return results, None
        except StopIteration as error:
            return results, no_stop_iteration(fn, error)
        except Exception as error:  # raised where the element is awaited
            return results, error
        if len(results) == self.grain:
            self.grain = min(2 * self.grain, CHUNK)
        return results, None
