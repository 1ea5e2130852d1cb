"""Iteration over a source of data, ended by the session's stop, with a position in checkpoints."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, NoReturn, Self, TypeVar

from asyncmon.checkpoint.stateful import StatefulObjects, has_state
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.recoverable import Recoverable
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.interrupt import CallScope
from asyncmon.runtime.stop.origin import is_end_of_data, mark

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
        resumable: ResumableSource | None = None,
    ) -> None:
        self._items: AsyncIterator[T] | Iterator[T]
        if isinstance(source, AsyncIterable):
            self._items = aiter(source)
        elif isinstance(source, Iterable):
            self._items = iter(source)
        else:
            raise TypeError(
                f"iterate() takes an iterable or an async iterable, got {source!r}."
                f"{' Call it.' * callable(source)}"
            )
        self._should_stop = should_stop
        self._stops = stops
        self._resumable = resumable
        self._sources = sources
        self._is_begun = isinstance(self._items, Iterator)

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> NoReturn:
        raise TypeError("Data of a session is awaited: write `async for`, not `for`.")

    async def __anext__(self) -> T:
        if not self._is_begun:
            await self._sources.close_left()
        if self._should_stop():
            await self.end()
            raise StopAsyncIteration
        try:
            if self._resumable is None:
                return await self._next()
            while True:  # without items that were used ahead of their place
                self._resumable.fetching()
                given = False
                try:
                    item = await self._next()
                    given = True
                finally:
                    is_next = self._resumable.fetched(given)
                if is_next:
                    return item
        except Exception as error:
            mark(error, "data", "the data")
            if is_end_of_data(error):
                raise StopAsyncIteration from error
            raise

    async def _next(self) -> T:
        if isinstance(self._items, Iterator):
            return next(self._items)
        scope = CallScope(self._stops.scopes, "data")
        try:
            with scope:
                is_first, self._is_begun = not self._is_begun, True
                coming = self._sources.begin(self._items) if is_first else anext(self._items)
                item: T = await scope.leavable(coming)
            return item
        except StopAsyncIteration:
            if scope.is_left:  # it ignores its cancellation, and cannot be closed
                self._sources.is_over(self._items)
                self._items = iter(())
            if self._should_stop():
                await self.end()
            self._sources.is_over(self._items)
            raise

    async def end(self) -> None:
        """Close the source's iterator, and raise the error of a background task, if any."""
        await self.aclose()
        self._stops.raise_pending()

    async def skip_pass(self) -> None:
        """Close the iterator of a dataset, and leave out the rest of its present pass."""
        await self.aclose()
        assert self._resumable is not None, "a dataset has a position"
        self._resumable.skip_pass()

    async def aclose(self) -> None:
        """Close the source's iterator, if it can be closed. See :meth:`OpenSources.close`."""
        await self._sources.close(self._items)


class ResumableSource:
    """The position of a source after the last item that was used, as the session's state has it.

    An item counts as used once the global step has changed since the body received it. A save that is
    ordered earlier, for example during the step, has a state without the item, and therefore the
    position before it. Items that the body collects for one step count together.

    Each item costs two numbers if the source can step back by one (``state_dict(unread=1)``, as in
    ``am.data``), else a ``state_dict()``.

    A recovery that lost steps restores the position that belongs to the state. The body then holds
    items of the interrupted run, which is repeated: they are used ahead of their place, and left out
    when the source comes to them. A recovery that lost no step does not move the source. If runs are
    not repeated, the source always moves to the position of the state, and no item is left out.

    Args:
        source: has ``state_dict()`` and ``load_state_dict(state)``.
        steps: returns the number of completed steps; while a recovery restores a state, that before the
            interrupted run.
        recoveries: has the number of recoveries, and whether interrupted runs are repeated.
    """

    def __init__(self, source: Any, steps: Callable[[], int | None], recoveries: Recoverable) -> None:
        self.source = source
        self._steps = steps
        self._recoveries = recoveries
        self._supports_unread = "unread" in inspect.signature(source.state_dict).parameters
        self._count = 0  # the number of items up to the position of the source
        self._given_at: int | None = None  # the steps done when the body got its last item
        self._given: list[int] = []  # the numbers of the items that it got at that step
        self._ahead: list[tuple[int, int | None]] = []  # items used, and the step after which they were
        self._before: Any = None  # the position before the items that no step has used yet, if known
        self._fetching = False
        self._fetched_number: int | None = None  # of an item that is fetched while the source moves
        self._recovery = 0  # the number of the last recovery that restored a state
        self._held: list[int] = []  # the items that the body held when that recovery began
        first = {"step": steps(), "position": source.state_dict(), "count": 0, "ahead": ()}
        self._first: dict[str, Any] = first

    def fetching(self) -> None:
        """Record the position before an item that the body waits for."""
        if self._is_unused():
            if self._before is None:  # another one for the same step
                self._before = self.source.state_dict(unread=1)
        else:
            self._before = None if self._supports_unread else self.source.state_dict()
        self._fetching = True

    def fetched(self, given: bool) -> bool:
        """Record the end of a fetch. Return whether the body is to receive the item."""
        self._fetching = False
        number, self._fetched_number = self._fetched_number, None
        if not given:
            return False
        if number is not None:  # it comes from before the move
            self._ahead.append((number, self._steps()))
            return True
        number, self._count = self._count, self._count + 1
        if any(number == ahead for ahead, _ in self._ahead):
            return False
        if not self._is_unused():
            self._given_at, self._given = self._steps(), []
        self._given.append(number)
        return True

    def _is_unused(self) -> bool:
        return self._given_at is not None and self._steps() == self._given_at

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the step that it belongs to."""
        step, is_unused = self._steps(), self._is_unused()
        if self._before is not None and (self._fetching or is_unused):
            position = self._before
        elif is_unused:
            position = self.source.state_dict(unread=1)
        else:
            position = self.source.state_dict()
        count = self._given[0] if is_unused else self._count
        ahead = [number for number, unused_at in self._ahead if number >= count and unused_at != step]
        return {"step": step, "position": position, "count": count, "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the position of the source."""
        recoveries, step, is_unused = self._recoveries, self._steps(), self._is_unused()
        if self._recovery != recoveries.number:  # else a further attempt
            self._recovery = recoveries.number
            self._held = [number for number, unused_at in self._ahead if unused_at == step]
            self._held += self._given if is_unused else []
        if recoveries.policy.repeat_runs and is_unused and state["step"] == self._given_at:
            return  # the body holds the items for the step after this one
        if self._fetching and self._fetched_number is None:
            self._fetched_number = self._count
        self._given_at = self._before = None
        self.source.load_state_dict(state["position"])
        self._count = state["count"]
        self._ahead = [(number, None) for number in state["ahead"]]
        if recoveries.policy.repeat_runs:
            self._ahead += [(number, state["step"]) for number in self._held if number >= self._count]

    def skip_pass(self) -> None:
        """Leave out the rest of a pass, and the items that the body has received and not used."""
        self._given_at = self._before = None
        self.source.skip_pass()

    def restart(self, step: int | None) -> None:
        """Set the first position if it belongs to this step, that of a state initialised again."""
        if step is not None and step == self._first["step"] != self._steps():
            self.load_state_dict(self._first)


def resumable_source(
    stateful: StatefulObjects,
    source: Any,
    name: str | None,
    steps: Callable[[], int | None],
    recoveries: Recoverable,
) -> ResumableSource | None:
    """Register the position of a source with the session; return None for a source without a state.

    The default name in checkpoints is ``data``, ``data_1`` and so on. A name that another source has is
    a ``ValueError``. ``steps`` and ``recoveries``: see :class:`ResumableSource`.
    """
    if not has_state(source):
        return None
    for known in stateful.objects.values():
        if isinstance(known, ResumableSource) and known.source is source:
            return known
    resumable = ResumableSource(source, steps, recoveries)
    if name is None:
        stateful.add_numbered("data", resumable)
    else:
        stateful.add(name, resumable)
    return resumable
