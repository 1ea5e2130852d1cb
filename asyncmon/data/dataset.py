"""The dataset: a description of elements that are made on demand, and one position in them."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Self

import numpy as np

from asyncmon.data.batching import Batch, stack
from asyncmon.data.combining import Interleave, Repeat, Take, Zip
from asyncmon.data.indexed import Arrays, Fetch, fetch_arrays, fetch_items, map_arrays
from asyncmon.data.iteration import Iteration, Position
from asyncmon.data.mapping import Map
from asyncmon.data.prefetch import Prefetch
from asyncmon.data.shuffling import Shuffle
from asyncmon.data.sources import AnyIterable, Source
from asyncmon.data.stage import Node, Stage, State
from asyncmon.errors import OutOfRangeError


class Dataset:
    """Elements that are made on demand, in an order that can be taken up again at any element.

    Each method returns a new dataset based on this one; nothing runs before the first element
    is asked for. ``async for`` walks it from its position to the end; the next walk is a new pass. A
    walk that was left early (``break``, an error, a cancellation) is gone on with by the next one, at
    the element after the last it gave. There is one walk at a time: a new one ends the earlier.

    :meth:`state_dict` is that position, :meth:`load_state_dict` sets it, also in the middle of a walk.
    For a position to mean the same elements, a source must give the same ones in the same order each
    time it is read, and functions given to :meth:`map` the same results: elements between the position
    and the last one *that was saved* may be made again.

    Nothing is made ahead of the consumer but by :meth:`prefetch` and by :meth:`map` with a concurrency
    above one, and never more than they say. Errors arrive where the element is awaited, after those
    before it.

    Made by :func:`from_iterable` and :func:`from_arrays`. TF1: ``tf.data.Dataset``.

    Example::

        data = am.data.from_arrays({"x": images, "y": labels}).shuffle(10_000, seed=1).batch(64)
        async for batch in data:
            await sess.run(train_op, {x: batch["x"], y: batch["y"]})
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._position = Position()
        self._running: weakref.ref[Iteration] | None = None
        self._own: Iteration | None = None
        self._closing: set[asyncio.Future[None]] = set()
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return repr(self._node)

    # -- construction

    def map(self, fn: Callable[[Any], Any], *, concurrency: int = 1, ordered: bool = True) -> Dataset:
        """Apply a function to each element. TF1: ``Dataset.map``.

        Args:
            fn: an ``async def`` is awaited on the loop, a plain function runs in a thread.
            concurrency: the maximum number of concurrent calls.
            ordered: give the results in the order of the elements, or each as soon as it is there.
        """
        _check_count("concurrency", concurrency)
        if not callable(fn):
            raise TypeError(f"map needs a function of one element, not {fn!r}.")
        return Dataset(Map(self._node, fn, concurrency, ordered))

    def batch(
        self,
        size: int,
        drop_remainder: bool = False,
        *,
        collate: Callable[[Sequence[Any]], Any] = stack,
    ) -> Dataset:
        """Make one element of each ``size``, arrays with a new first axis. TF1: ``Dataset.batch``.

        Args:
            size: how many elements make one.
            drop_remainder: leave out the last elements if they are fewer.
            collate: what makes one element of a list of them; see :func:`stack`.
        """
        _check_count("size", size)
        return Dataset(Batch(self._node, size, drop_remainder, collate))

    def shuffle(self, buffer: int, seed: int | None = None) -> Dataset:
        """Give the elements in random order, another one in every pass. TF1: ``Dataset.shuffle``.

        Each element is drawn from a buffer into which the next one of the input then goes. A buffer as
        large as the data makes every order equally likely; on sequences and arrays, directly after
        :func:`from_iterable` or :func:`from_arrays`, it holds numbers and not the elements.

        Args:
            buffer: how many elements to draw from.
            seed: the same one gives the same orders. None: any one, which positions remember.
        """
        _check_count("buffer", buffer)
        return self._over(lambda node: Shuffle(node, buffer, seed))

    def repeat(self, count: int | None = None) -> Dataset:
        """Go through the elements ``count`` times, or for ever. TF1: ``Dataset.repeat``."""
        if count is not None:
            _check_count("count", count)
        return self._over(lambda node: Repeat(node, count))

    def take(self, count: int) -> Dataset:
        """Give the first ``count`` elements only. TF1: ``Dataset.take``."""
        if count < 0:
            raise ValueError(f"take needs a count that is not negative, not {count!r}.")
        return self._over(lambda node: Take(node, count))

    def zip(self, *others: Dataset | AnyIterable) -> Dataset:
        """Give tuples of one element of each dataset, as long as all have one. TF1: ``Dataset.zip``."""
        return Dataset(Zip((self._node, *(from_iterable(other)._node for other in others))))

    def interleave(
        self, fn: Callable[[Any], Any], cycle_length: int = 2, block_length: int = 1
    ) -> Dataset:
        """Make a dataset of each element, give their elements in turn. TF1: ``Dataset.interleave``.

        Args:
            fn: returns a dataset or an iterable for an element; may be ``async def``. For datasets that
                exist: ``from_iterable([a, b]).interleave(lambda data: data)``.
            cycle_length: how many of them are open at once.
            block_length: how many elements to take from one before the next has its turn.
        """
        _check_count("cycle_length", cycle_length)
        _check_count("block_length", block_length)

        async def node_of(element: Any) -> Node:
            made = fn(element)
            if not isinstance(made, Dataset | Iterable | AsyncIterable) and hasattr(made, "__await__"):
                made = await made
            return from_iterable(made)._node

        return Dataset(Interleave(self._node, node_of, cycle_length, block_length))

    def prefetch(self, depth: int) -> Dataset:
        """Make up to ``depth`` elements ahead of the consumer, in a task. TF1: ``Dataset.prefetch``."""
        _check_count("depth", depth)
        return Dataset(Prefetch(self._node, depth))

    def _over(self, wrap: Callable[[Node], Node]) -> Dataset:
        """Add a step that only chooses elements: where they have numbers, it works on these."""
        node = self._node
        if isinstance(node, Fetch):
            return Dataset(node.over(wrap(node.above[0])))
        return Dataset(wrap(node))

    # -- going through it

    def __aiter__(self) -> Iteration:
        return Iteration(self)

    async def get_next(self) -> Any:
        """Return the next element; several tasks may call it. TF1: ``Iterator.get_next``.

        Raises:
            OutOfRangeError: at the end, at every call until a position is loaded.
        """
        async with self._lock:
            if self._own is None:
                self._own = Iteration(self)
            try:
                return await anext(self._own)
            except StopAsyncIteration:
                raise OutOfRangeError(f"The data is at its end: {self!r}.") from None

    async def aclose(self) -> None:
        """End the current iteration, with its tasks and threads. The position stays.

        Closes even when it is cancelled. A second call does nothing; a later iteration starts again.
        """
        self._own = None
        await self._end_walk(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _end_walk(self, next_walk: Iteration | None) -> None:
        """End the current iteration for another one, and abandoned iterations."""
        running = self._running() if self._running is not None else None
        self._running = weakref.ref(next_walk) if next_walk is not None else None
        if running is not None and running is not next_walk:
            await running.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    def _close_later(self, stage: Stage) -> None:
        """Close a stage whose walk was left early and forgotten."""
        task = asyncio.ensure_future(stage.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- where it is

    def state_dict(self, *, unread: int = 0) -> State:
        """Return the position after the element that was given last: JSON values and arrays.

        Cheap, and may be called at any time, also while the next element is awaited.

        Args:
            unread: 1 for the position before that element, as if it had not been given yet.
        """
        return self._position.state_dict(unread)

    def load_state_dict(self, state: State) -> None:
        """Set the position of the next element, also for the current iteration.

        Raises:
            ValueError: it was saved by another pipeline. Nothing has been changed.
        """
        position = Position.from_state_dict(state)
        self._node.check(state["position"])
        self._position = position


def from_iterable(source: Dataset | AnyIterable | Callable[[], AnyIterable]) -> Dataset:
    """Return a dataset of the elements of an iterable.

    Containers (list, tuple, range, dict, ...) are read in place. Other sequences (with ``len()`` and
    indexing) are read by index in a thread, other iterables one element after another in a thread,
    asynchronous ones in a task. A source may end itself by ``OutOfRangeError``. A position in a
    sequence is reached at once, in other iterables by passing over the elements before it.

    Args:
        source: the iterable, or a function that returns a new one for every pass. A generator, an
            open file or another iterator can be read once; pass a function that returns it.
    """
    if isinstance(source, Dataset):
        return source
    if isinstance(source, list | tuple | range):
        return Dataset(fetch_items(source, in_memory=True))
    if isinstance(source, np.ndarray):
        return from_arrays(source)
    if isinstance(source, str | bytes):
        raise TypeError(f"from_iterable({source!r}): a string is no data; did you mean to open a file?")
    if isinstance(source, dict | set | frozenset | deque):
        return from_iterable(list(source))
    is_indexed = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    if is_indexed and not isinstance(source, Mapping | Set):
        items: Any = source
        return Dataset(fetch_items(items, in_memory=False))
    if isinstance(source, Iterable | AsyncIterable) or callable(source):
        return Dataset(Source(source))
    raise TypeError(
        "from_iterable needs an iterable, an asynchronous iterable, or a function that returns one, "
        f"not {source!r}."
    )


def from_arrays(arrays: Arrays) -> Dataset:
    """Return a dataset of the rows of arrays. TF1: ``Dataset.from_tensor_slices``.

    Batches of it are read by fancy indexing, all rows of an array at once, into fresh arrays.

    Args:
        arrays: one array, or a mapping, tuple or named tuple of arrays with the same number of rows.
            An element has the same structure.

    Raises:
        ValueError: the arrays have different numbers of rows.
    """
    lengths: dict[str, int] = {}

    def check(array: Any) -> Any:
        array = np.asarray(array)
        if array.ndim == 0:
            raise ValueError(f"from_arrays needs arrays with rows; found the scalar {array!r}.")
        lengths[f"array {len(lengths)} of shape {array.shape}"] = len(array)
        return array

    arrays = map_arrays(check, arrays)
    if len(set(lengths.values())) != 1:
        found = ", ".join(lengths) or "no array"
        raise ValueError(f"from_arrays needs the same number of rows in every array; found {found}.")
    return Dataset(fetch_arrays(arrays, next(iter(lengths.values()))))


def _check_count(name: str, count: Any) -> None:
    if not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name} must be an integer of at least 1, not {count!r}.")
