"""Sources that are read by index: sequences and arrays.

A pipeline on such a source first selects elements by number (``shuffle``, ``repeat`` and ``take`` work
on numbers), then fetches them: a shuffle of a million images holds a million integers, and a batch of
rows is one fancy indexing for each array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from asyncmon.data.mapping import OrderedMapStage, caller_of
from asyncmon.data.stage import Chunk, Epoch, Mark, Node, Stage, StageOver, State, open_node, too_short

Arrays: TypeAlias = Any
"""One array, or a tuple, a named tuple or a mapping of :data:`Arrays`, with rows of the same number."""


def map_arrays(fn: Any, arrays: Arrays) -> Any:
    """Apply a function to each array of a structure; the result has the structure."""
    if isinstance(arrays, Mapping):
        return {key: map_arrays(fn, value) for key, value in arrays.items()}
    if isinstance(arrays, tuple):
        parts = [map_arrays(fn, value) for value in arrays]
        return type(arrays)(*parts) if hasattr(arrays, "_fields") else tuple(parts)
    return fn(arrays)


class Rows(Sequence[Any]):
    """Selected rows of arrays, read on access. Iteration returns single rows."""

    __slots__ = ("_arrays", "_index")

    def __init__(self, arrays: Arrays, index: NDArray[np.int64]) -> None:
        self._arrays = arrays
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, item: int) -> Any: ...
    @overload
    def __getitem__(self, item: slice) -> Rows: ...
    def __getitem__(self, item: int | slice) -> Any:
        if isinstance(item, slice):
            return Rows(self._arrays, self._index[item])
        row = self._index[item]
        return map_arrays(lambda array: array[row].copy(), self._arrays)

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def gather(self) -> Any:
        """Return new arrays of all rows, in the structure of the source."""
        index = self._index
        return map_arrays(lambda array: array.take(index, axis=0), self._arrays)


def joined(chunks: Sequence[Chunk]) -> Chunk:
    """Join chunks: rows of the same arrays as rows, others as a list."""
    first = chunks[0]
    if len(chunks) == 1:
        return first
    if isinstance(first, Rows):
        rows = [chunk for chunk in chunks if isinstance(chunk, Rows) and chunk._arrays is first._arrays]
        if len(rows) == len(chunks):
            return Rows(first._arrays, np.concatenate([chunk._index for chunk in rows]))
    return [element for chunk in chunks for element in chunk]


class Span(Node):
    """The numbers of the elements of a source, from 0."""

    kind = "source"

    def __init__(self, length: int) -> None:
        self.length = length

    def __repr__(self) -> str:
        return f"{self.length} elements"

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        start = 0 if state is None else int(state["next"])
        if start > self.length:
            raise too_short(f"at element {self.length} instead of {start}")
        return _SpanStage(start, self.length)


class _SpanStage(Stage):
    def __init__(self, start: int, length: int) -> None:
        self._next = start
        self._length = length

    def mark(self) -> Mark:
        position = self._next
        return lambda: {"stage": "source", "next": position}

    async def pull(self, most: int, least: int = 1) -> Chunk:
        start = self._next
        self._next = min(start + most, self._length)
        return list(range(start, self._next))

    async def skip(self, count: int) -> int:
        passed = min(count, self._length - self._next)
        self._next += passed
        return passed

    async def aclose(self) -> None:
        pass


class Fetch(Node):
    """Turns numbers into elements. Positions are those of the numbers.

    Args:
        numbers: the node of the numbers.
        words: a description of the rows, with ``{}`` for the numbers.
        stage: returns the fetching stage over the stage of the numbers.
    """

    def __init__(self, numbers: Node, words: str, stage: Callable[[Stage], Stage]) -> None:
        self.above = (numbers,)
        self._words = words
        self._stage = stage

    def __repr__(self) -> str:
        return self._words.format(repr(self.above[0]))

    def over(self, numbers: Node) -> Fetch:
        """Return a node that fetches other numbers from the same source."""
        return Fetch(numbers, self._words, self._stage)

    async def open(self, state: State | None, epoch: Epoch) -> Stage:
        return self._stage(await open_node(self.above[0], state, epoch))


def fetch_items(items: Sequence[Any], *, in_memory: bool) -> Fetch:
    """Return a node over a container in memory, or a sequence that loads its items (in a thread)."""
    get = items.__getitem__

    def stage(numbers: Stage) -> Stage:
        if in_memory:
            return _FetchStage(numbers, lambda chunk: list(map(get, chunk)))
        return OrderedMapStage(numbers, caller_of(get, 1), 1)

    return Fetch(Span(len(items)), f"from_iterable({type(items).__name__} of {{}})", stage)


def fetch_arrays(arrays: Arrays, length: int) -> Fetch:
    """Return a node over the rows of arrays; a chunk is one :class:`Rows`."""

    def read(numbers: Chunk) -> Chunk:
        return Rows(arrays, np.array(numbers, dtype=np.int64))

    return Fetch(Span(length), "from_arrays({})", lambda numbers: _FetchStage(numbers, read))


class _FetchStage(StageOver):
    def __init__(self, numbers: Stage, read: Callable[[Chunk], Chunk]) -> None:
        super().__init__(numbers)
        self._read = read

    async def pull(self, most: int, least: int = 1) -> Chunk:
        return self._read(await self._above.pull(most))

    async def skip(self, count: int) -> int:
        return await self._above.skip(count)
