"""Passes over a dataset that are counted in checkpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, NoReturn, Self, TypeVar

from asyncmon.data import Dataset, from_iterable
from asyncmon.data.loaders import is_loader
from asyncmon.runtime.data_iterator import DataIterator

T = TypeVar("T")


class Epoch(Generic[T]):
    """A pass over a dataset, or after a restart the rest of one: an async iterator of its elements.

    Attributes:
        number: the number of passes before it.
        count: the number of passes in all, or None.

    Example::

        async for epoch in sess.epochs(data, 3):
            async for batch in epoch:
                await sess.run(train_op, {x: batch})
    """

    def __init__(self, number: int, count: int | None, elements: DataIterator[T]) -> None:
        self.number = number
        self.count = count
        self._elements = elements
        self._has_ended = False

    def __repr__(self) -> str:
        return f"epoch {self.number + 1}" + ("" if self.count is None else f" of {self.count}")

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> NoReturn:
        raise TypeError("Epochs are awaited: write `async for`, not `for`.")

    def __anext__(self) -> Awaitable[T]:
        return self._next(anext(self._elements))  # called here: the element belongs to the caller

    async def _next(self, element: Awaitable[T]) -> T:
        try:
            return await element
        except StopAsyncIteration:
            self._has_ended = True
            raise

    async def leave(self) -> None:
        """Skip the elements that the body did not ask for."""
        if not self._has_ended:
            await self._elements.skip_pass()


class Epochs:
    """The async iterator behind ``MonitoredSession.epochs``.

    The dataset counts its passes, as a part of its position: a recovery or a restart that goes back to
    an earlier pass repeats it.
    """

    def __init__(
        self,
        source: Dataset,
        count: int | None,
        elements: Callable[[], DataIterator[Any]],
        should_stop: Callable[[], bool],
        ended: Callable[[int], Awaitable[None]],
    ) -> None:
        self._source = source
        self._count = count
        self._elements = elements
        self._should_stop = should_stop
        self._ended = ended
        self._epoch: Epoch[Any] | None = None

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> NoReturn:
        raise TypeError("Epochs are awaited: write `async for`, not `for`.")

    async def __anext__(self) -> Epoch[Any]:
        elements = self._elements()
        if self._should_stop():
            await elements.end()
            raise StopAsyncIteration
        if self._epoch is not None:
            await self._epoch.leave()
            await self._ended(self._epoch.number + 1)
        number = self._source.passes
        if self._count is not None and number >= self._count:
            raise StopAsyncIteration
        self._epoch = Epoch(number, self._count, elements)
        return self._epoch


def dataset_of(source: Any) -> Dataset:
    """Return the dataset of an argument of ``epochs``.

    Raises:
        TypeError: the source can be read only once.
    """
    if isinstance(source, Dataset):
        return source
    if is_loader(source):
        return from_iterable(source)
    if hasattr(source, "state_dict") or isinstance(source, Iterator | AsyncIterator):
        raise TypeError(
            "epochs() takes a dataset of am.data, a sequence, or a function that returns an iterable "
            f"for each pass, got {source!r}. Pass am.data.from_iterable(lambda: ...)."
        )
    return from_iterable(source)
