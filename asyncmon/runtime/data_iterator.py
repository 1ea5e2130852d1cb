"""Iteration over a source of data, ended by the session's stop, with a position in checkpoints."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Generic, Self, TypeVar

from asyncmon.checkpoint.stateful import StatefulObjects, has_state
from asyncmon.runtime.shutdown.call_scope import CallScope
from asyncmon.runtime.shutdown.outcome import is_end_of_data
from asyncmon.runtime.shutdown.stop_control import StopControl

T = TypeVar("T")


class DataIterator(Generic[T]):
    """The async iterator behind ``MonitoredSession.iterate``.

    A stop ends it, also while it waits for the source. It raises an error of a background task. If it
    ends early, it closes the source's iterator.
    """

    def __init__(
        self,
        source: AsyncIterable[T] | Iterable[T],
        should_stop: Callable[[], bool],
        stops: StopControl,
        resumable: ResumableSource | None = None,
    ) -> None:
        self._items: AsyncIterator[T] | Iterator[T]
        if isinstance(source, AsyncIterable):
            self._items = aiter(source)
        elif isinstance(source, Iterable):
            self._items = iter(source)
        else:
            raise TypeError(f"iterate() takes an iterable or an async iterable, got {source!r}.")
        self._should_stop = should_stop
        self._stops = stops
        self._resumable = resumable

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._should_stop():
            await self._end()
            raise StopAsyncIteration
        resumable, given = self._resumable, False
        if resumable is not None:
            resumable.fetching()
        try:
            item = await self._next()
            given = True
        except Exception as error:
            if is_end_of_data(error):
                raise StopAsyncIteration from error
            raise
        finally:
            if resumable is not None:
                resumable.fetched(given)
        return item

    async def _next(self) -> T:
        if isinstance(self._items, Iterator):
            return next(self._items)
        try:
            with CallScope(self._stops.scopes, "data"):
                return await anext(self._items)
        except StopAsyncIteration:
            if self._should_stop():
                await self._end()
            raise

    async def _end(self) -> None:
        """Close the source's iterator, and raise the error of a background task, if any."""
        await self.aclose()
        self._stops.raise_pending()

    async def aclose(self) -> None:
        """Close the source's iterator, if it can be closed."""
        close = getattr(self._items, "aclose", None)  # of async generators; iterators need none
        if close is not None:
            await close()


class ResumableSource:
    """The position of a source after the last item that was used, as the session's state has it.

    An item counts as used once the global step has changed since the body received it. A save that is
    ordered earlier, for example during the step, has a state without the item, and therefore the
    position before it. Items that the body collects for one step count together.

    Each item costs two numbers if the source can step back by one (``state_dict(unread=1)``, as in
    ``am.data``), else a ``state_dict()``.

    A recovery that lost no step does not move the source: the body holds the next item, which the
    repeated run uses. A recovery that lost steps restores the position that belongs to the state.

    Args:
        source: has ``state_dict()`` and ``load_state_dict(state)``.
        steps: returns the number of completed steps.
    """

    def __init__(self, source: Any, steps: Callable[[], int | None]) -> None:
        self.source = source
        self._steps = steps
        self._supports_unread = "unread" in inspect.signature(source.state_dict).parameters
        self._given_at: int | None = None  # the steps done when the body got its last item
        self._before: Any = None  # the position before the items that no step has used yet, if known
        self._fetching = False

    def fetching(self) -> None:
        """Record the position before an item that the body waits for."""
        if self._is_unused():
            if self._before is None:  # another one for the same step
                self._before = self.source.state_dict(unread=1)
        else:
            self._before = None if self._supports_unread else self.source.state_dict()
        self._fetching = True

    def fetched(self, given: bool) -> None:
        """Record whether the body received the item."""
        self._fetching = False
        if given:
            self._given_at = self._steps()

    def _is_unused(self) -> bool:
        return self._given_at is not None and self._steps() == self._given_at

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the step that it belongs to."""
        if self._before is not None and (self._fetching or self._is_unused()):
            position = self._before
        elif self._is_unused():
            position = self.source.state_dict(unread=1)
        else:
            position = self.source.state_dict()
        return {"step": self._steps(), "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the position of the source."""
        if self._given_at is not None and state["step"] == self._given_at:
            return  # the body holds the item for the step after this one
        self._given_at = self._before = None
        self.source.load_state_dict(state["position"])


def resumable_source(
    stateful: StatefulObjects, source: Any, name: str | None, steps: Callable[[], int | None]
) -> ResumableSource | None:
    """Register the position of a source with the session; return None for a source without a state.

    The default name in checkpoints is ``data``, ``data_1`` and so on. ``steps`` returns the number of
    completed steps. A name that another source has is a ``ValueError``.
    """
    if not has_state(source):
        return None
    for known in stateful.objects.values():
        if isinstance(known, ResumableSource) and known.source is source:
            return known
    resumable = ResumableSource(source, steps)
    if name is None:
        stateful.add_numbered("data", resumable)
    else:
        stateful.add(name, resumable)
    return resumable
