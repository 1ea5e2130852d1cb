"""Iteration over a source of data that ends with the session, and whose position is saved with it."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asyncmon.runtime.call_scope import CallScope
from asyncmon.runtime.hook import hook_name
from asyncmon.runtime.outcome import is_end_of_data

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from asyncmon.runtime.stop_control import StopControl

T = TypeVar("T")


class DataIterator(Generic[T]):
    """The async iterator behind ``MonitoredSession.iterate``.

    A stop ends it, also while it waits for the source; an error of a background task is raised there.
    An async generator it made is closed when it ends early.
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
        """Close the source's iterator, and raise the error of a background task if there is one."""
        await self.aclose()
        self._stops.raise_pending()

    async def aclose(self) -> None:
        """Close the source's iterator, if it can be closed."""
        close = getattr(self._items, "aclose", None)
        if close is not None:
            await close()


class ResumableSource:
    """The position of a source that belongs to the session's state: after the last item that was used.

    An item counts as used once the global step has changed since the body got it. A save may be ordered
    before that, in the middle of a step for example; the saved state has not seen the item then, and
    the position must not have either. Items that the body collects for one step count together.

    Costs two numbers an item where the source can go back by one (``state_dict(unread=1)``, as
    ``am.data`` can), else a ``state_dict()`` an item.

    A recovery that lost no step leaves the source where it is: the body holds the next item, and the
    run that is repeated uses it. One that lost steps takes the source back with the state.

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
        """Note that the body waits for an item."""
        if self._is_unused():
            if self._before is None:  # another one for the same step
                self._before = self.source.state_dict(unread=1)
        else:
            self._before = None if self._supports_unread else self.source.state_dict()
        self._fetching = True

    def fetched(self, given: bool) -> None:
        """Note that the body gets it, or none."""
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


class StatefulObjects:
    """The hooks and sources of a session whose states its saver saves along, until the session ends.

    With a saver that has no ``add_stateful`` no states are saved.
    """

    def __init__(self, saver: Any) -> None:
        self._saver: Any = saver if hasattr(saver, "add_stateful") else None
        self._names: dict[str, Any] = {}

    def add_hooks(self, hooks: Iterable[Any]) -> None:
        """Add the hooks that have a state, as ``hooks/<name>``, ``hooks/<name>_1`` and so on."""
        for hook in hooks:
            if self._saver is not None and callable(getattr(hook, "state_dict", None)):
                self._add(self._free(f"hooks/{hook_name(hook)}"), hook)

    def add_source(
        self, source: Any, name: str | None, steps: Callable[[], int | None]
    ) -> ResumableSource | None:
        """Add a source of data, unless it is there. Return None where it has no state to save.

        Its name in checkpoints is by default ``data``, ``data_1`` and so on; ``steps`` returns the
        number of completed steps. Raises ``ValueError`` where another source has the name.
        """
        if self._saver is None or not callable(getattr(source, "state_dict", None)):
            return None
        for known in self._names.values():
            if isinstance(known, ResumableSource) and known.source is source:
                return known
        resumable = ResumableSource(source, steps)
        self._add(name or self._free("data"), resumable)
        return resumable

    def remove(self, hook: Any = None) -> None:
        """Remove one hook, or all objects."""
        for name, known in list(self._names.items()):
            if hook is None or known is hook:
                del self._names[name]
                self._saver.remove_stateful(name)

    def _add(self, name: str, stateful: Any) -> None:
        self._saver.add_stateful(name, stateful)
        self._names[name] = stateful

    def _free(self, name: str) -> str:
        number, free = 0, name
        while free in self._names:
            number += 1
            free = f"{name}_{number}"
        return free
