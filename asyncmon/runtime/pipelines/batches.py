"""The iterators of a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, Self

from asyncmon.runtime.frontier_batch import Task
from asyncmon.runtime.pipelines.item import Item


class Batches:
    """The async iterator of :meth:`Pipeline.batches`. Several may be used, from several tasks."""

    def __init__(
        self,
        ask: Callable[[Task | None], None],
        take: Callable[[Task | None], Awaitable[list[Item]]],
    ) -> None:
        self._ask = ask
        self._take = take

    def __aiter__(self) -> Self:
        return self

    def __iter__(self) -> NoReturn:
        raise TypeError("Batches of a pipeline are awaited: write `async for`, not `for`.")

    def __anext__(self) -> Awaitable[list[Item]]:
        # The batch belongs to the caller, also of create_task(anext(...)), which begins later.
        task = asyncio.current_task()
        self._ask(task)
        return self._take(task)


class Items:
    """The async iterator over single items."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[Item]:
        return _only(anext(self._batches))


async def _only(batch: Awaitable[list[Item]]) -> Item:
    [item] = await batch
    return item
