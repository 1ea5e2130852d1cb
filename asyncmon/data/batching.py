"""``batch``: combine elements into batches, with arrays stacked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from asyncmon.data.indexed import Rows, joined
from asyncmon.data.stage import (
    CHUNK,
    Backlog,
    Chunk,
    Epoch,
    Mark,
    Node,
    Stage,
    StageOver,
    State,
    open_node,
)
from asyncmon.system.files import in_thread
from asyncmon.system.loop_budget import LoopBudget

_INLINE_SECONDS = 0.0003  # stacking that takes longer, by its own average, is done in a thread


def stack(elements: Sequence[Any]) -> Any:
    """Return one batch of elements, by the kind of the first one.

    Numbers become an array, arrays are stacked along a new first axis; mappings, tuples and named
    tuples keep their type and keys, with each part stacked; strings and bytes become
    an object array. Anything else is returned as a list.

    Raises:
        ValueError: arrays of different shapes, or mappings of different keys.
    """
    first = elements[0]
    if isinstance(first, str | bytes):
        return np.array(elements, dtype=object)
    if isinstance(first, bool | int | float | complex | np.generic):
        return np.array(elements)
    if isinstance(first, np.ndarray):
        return np.stack(elements)
    if isinstance(first, Mapping):
        if odd := next((element for element in elements if element.keys() != first.keys()), None):
            raise ValueError(
                f"Mappings in one batch need the same keys: found {list(first)} and {list(odd)}."
            )
        return {key: stack([element[key] for element in elements]) for key in first}
    if isinstance(first, tuple):
        parts = [stack(part) for part in zip(*elements, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    return list(elements)


class Batch(Node):
    """Batches of the elements of the node above; the last one may be smaller."""

    kind = "batch"

    def __init__(
        self, above: Node, size: int, drop_remainder: bool, collate: Callable[[Sequence[Any]], Any]
    ) -> None:
        self.above = (above,)
        self.size = size
        self.drop_remainder = drop_remainder
        self.collate = collate

    def __repr__(self) -> str:
        return f"{self.above[0]!r}.batch({self.size})"

    def signature(self) -> State:
        return {"stage": self.kind, "size": self.size}

    def _aligned(
        self, state: State | None, later: State | None, passed: int, later_passed: int
    ) -> State | None:
        inner, later_inner = state and state["from"], later and later["from"]
        size = self.size
        above = self.above[0].aligned(inner, later_inner, passed * size, later_passed * size)
        return {**self.signature(), "from": above}

    def _resharded(self, state: State, skip: int) -> State:
        above = self.above[0].resharded(state["from"], skip * state["size"])
        return {**self.signature(), "from": above}

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        above = await open_node(self.above[0], state and state["from"], epoch)
        return _BatchStage(self, above)


class _BatchStage(StageOver):
    def __init__(self, node: Batch, above: Stage) -> None:
        self._node = node
        super().__init__(above)
        self._size = node.size
        self._seconds: float | None = None  # average time of a batch; the first one is made in a thread
        self._backlog = Backlog()

    def mark(self) -> Mark:
        inner = self._backlog.mark() or self._above.mark()
        return lambda: {**self._node.signature(), "from": inner()}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        budget = LoopBudget.of_running_loop()
        batches: list[Any] = []
        while len(batches) < most and not (batches and budget.spent()):
            if len(self._backlog) < self._size and (batches or not await self._fill(most)):
                break
            chunks = self._backlog.first(self._size)
            if self._seconds is not None and self._seconds < _INLINE_SECONDS:
                batches.append(self._make(chunks))
            elif not batches:  # its elements leave only when it is done: a cancelled pull loses none
                batches.append(await in_thread(self._make, chunks))
            else:
                break
            self._backlog.drop(min(self._size, len(self._backlog)))
        return batches

    async def skip(self, count: int) -> int:
        passed = await self._above.skip(count * self._size)
        return passed // self._size if self._node.drop_remainder else -(-passed // self._size)

    async def _fill(self, most: int) -> bool:
        """Wait for the elements of a batch, and take further available ones. False at the end."""
        wanted = max(min(most * self._size, CHUNK), self._size)
        while len(self._backlog) < self._size:
            mark = self._above.mark()
            missing = self._size - len(self._backlog)
            chunk = await self._above.pull(min(wanted - len(self._backlog), CHUNK), missing)
            if not chunk:
                return len(self._backlog) > 0 and not self._node.drop_remainder
            self._backlog.add(mark, chunk)
        return True

    def _make(self, chunks: Sequence[Chunk]) -> Any:
        start = time.perf_counter()
        elements = joined(chunks)
        if self._node.collate is stack and isinstance(elements, Rows):
            batch = elements.gather()
        else:
            batch = self._node.collate(list(elements))
        took = time.perf_counter() - start
        self._seconds = took if self._seconds is None else self._seconds + (took - self._seconds) / 4
        return batch
