"""Datasets: a description of a pipeline, its position, and iteration over its elements."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from typing import Any, Self

import numpy as np

from asyncmon.data.batching import Batch, stack
from asyncmon.data.combining import Interleave, Repeat, Take, Zip
from asyncmon.data.indexed import Arrays, Fetch, fetch_arrays, fetch_items, map_arrays
from asyncmon.data.mapping import Map
from asyncmon.data.prefetch import Prefetch
from asyncmon.data.sharding import Shard
from asyncmon.data.shuffling import Shuffle
from asyncmon.data.sources import AnyIterable, Source
from asyncmon.data.stage import Mark, Node, Stage, State, open_node, skipped
from asyncmon.errors import OutOfRangeError
from asyncmon.system.cancellation import running_loop, shielded
from asyncmon.system.loop_budget import LoopBudget

_FORMAT = 1


class Dataset:
    """Elements that are made on demand, with a position that can be saved and restored.

    Each method returns a new dataset based on this one; nothing runs before the first element is
    awaited. ``async for`` iterates from the position to the end; the next iteration is a new pass.
    After an early exit (``break``, an error, a cancellation), the next iteration continues with the
    next element. There is one iteration at a time: a new one ends the earlier one.

    :meth:`state_dict` returns the position, and :meth:`load_state_dict` sets it, also during an
    iteration. A source must return the same elements in the same order each time it is read, and
    functions given to :meth:`map` the same results: elements before a restored position may be
    computed again.

    Only :meth:`prefetch`, and :meth:`map` with a concurrency above one, work ahead of the consumer, up
    to their limits. An error is raised in place of its element, after the elements before it.

    Created by :func:`from_iterable` and :func:`from_arrays`. TF1: ``tf.data.Dataset``.

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
            ordered: return results in the order of the elements, or else as they complete.
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
        """Combine ``size`` elements into one, stacking arrays. TF1: ``Dataset.batch``.

        Args:
            size: the number of elements of a batch.
            drop_remainder: drop a last batch that is smaller.
            collate: a function of a list of elements that returns a batch; see :func:`stack`.
        """
        _check_count("size", size)
        return Dataset(Batch(self._node, size, drop_remainder, collate))

    def shuffle(self, buffer: int, seed: int | None = None) -> Dataset:
        """Shuffle the elements, with another order in every pass. TF1: ``Dataset.shuffle``.

        Each element is drawn from a buffer, and the next one of the input replaces it. With a buffer
        as large as the data, all orders are equally likely. Directly after :func:`from_iterable` on a
        sequence, or :func:`from_arrays`, the buffer holds indices instead of elements.

        Args:
            buffer: the size of the buffer.
            seed: the seed of the orders. None is a random one, which positions contain.
        """
        _check_count("buffer", buffer)
        return self._over(lambda node: Shuffle(node, buffer, seed))

    def repeat(self, count: int | None = None) -> Dataset:
        """Repeat the elements ``count`` times, or for ever. TF1: ``Dataset.repeat``."""
        if count is not None:
            _check_count("count", count)
        return self._over(lambda node: Repeat(node, count))

    def shard(self, count: int, index: int) -> Dataset:
        """Take the elements ``index``, ``index + count`` and so on. TF1: ``Dataset.shard``.

        For ``count`` processes that train together. All get the same number of elements: those of an
        incomplete last round are dropped. A position counts the elements of all processes, so another
        number of processes continues at the same element, also with another size of ``batch``.

        Raises:
            ValueError: ``index`` is not one from 0 to ``count - 1``, or a shuffle has no seed.
        """
        _check_count("count", count)
        return self._over(lambda node: Shard(node, count, index))

    def take(self, count: int) -> Dataset:
        """Take the first ``count`` elements. TF1: ``Dataset.take``."""
        if count < 0:
            raise ValueError(f"take needs a count that is not negative, not {count!r}.")
        return self._over(lambda node: Take(node, count))

    def zip(self, *others: Dataset | AnyIterable) -> Dataset:
        """Make tuples of elements of several datasets, up to the shortest. TF1: ``Dataset.zip``."""
        return Dataset(Zip((self._node, *(from_iterable(other)._node for other in others))))

    def interleave(
        self, fn: Callable[[Any], Any], cycle_length: int = 2, block_length: int = 1
    ) -> Dataset:
        """Map each element to a dataset, and interleave these. TF1: ``Dataset.interleave``.

        Args:
            fn: returns a dataset or an iterable for an element; may be ``async def``. For existing
                datasets: ``from_iterable([a, b]).interleave(lambda data: data)``.
            cycle_length: the number of datasets that are open at once.
            block_length: the number of consecutive elements of one dataset.
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
        """Read up to ``depth`` elements ahead of the consumer, in a task. TF1: ``Dataset.prefetch``."""
        _check_count("depth", depth)
        return Dataset(Prefetch(self._node, depth))

    def _over(self, wrap: Callable[[Node], Node]) -> Dataset:
        """Add a step that only selects elements; on an indexed source it works on the indices."""
        node = self._node
        if isinstance(node, Fetch):
            return Dataset(node.over(wrap(node.above[0])))
        return Dataset(wrap(node))

    # -- iteration

    def __aiter__(self) -> Iteration:
        return Iteration(self)

    async def get_next(self) -> Any:
        """Return the next element; several tasks may call it. TF1: ``Iterator.get_next``.

        Raises:
            OutOfRangeError: at the end, in every call until a position is loaded.
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
        await self._end_iteration(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def _end_iteration(self, following: Iteration | None) -> None:
        """End the current iteration for another one, and abandoned iterations."""
        running = self._running() if self._running is not None else None
        self._running = weakref.ref(following) if following is not None else None
        if running is not None and running is not following:
            await running.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    def _close_later(self, stage: Stage) -> None:
        """Close the stage of an abandoned iteration."""
        task = asyncio.ensure_future(stage.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    # -- position

    @property
    def passes(self) -> int:
        """The number of passes that have ended. It is a part of the position."""
        return self._position.passes

    def skip_pass(self) -> None:
        """Leave out the rest of the present pass: the next element is the first one of the next."""
        self._position = self._next_pass()

    def _next_pass(self) -> Position:
        return Position(self.passes + 1, self._node.fresh())

    def mark(self) -> Mark:
        """Return the position of the next element as a function that returns its state.

        Takes much less time than :meth:`state_dict`. A mark stays valid: the function may be called
        later, when the dataset has advanced or is gone.
        """
        position = self._position
        return partial(_state_at, position.passes, position.mark, position.offset)

    def state_dict(self) -> State:
        """Return the position after the last element: JSON values and arrays.

        Cheap. May be called at any time, also during an ``anext``.
        """
        return self.mark()()

    def load_state_dict(self, state: State) -> None:
        """Set the position of the next element, also for the current iteration.

        Raises:
            ValueError: another pipeline saved it. The position is unchanged.
        """
        position = Position.from_state_dict(state)
        if self._node.is_of_other_shards(state["position"]):
            position.mark = Unopened(self._node.resharded(state["position"]))
        self._node.check(position.mark())
        self._position = position

    def aligned(self, state: State, later: State) -> State:
        """Return a position from which the elements at and after a later one have the same places.

        ``map(ordered=False)`` returns the elements after a saved position in another order when they
        are made again. The consumer still has elements from ``later`` on, and identifies them by their
        number: in the returned position they have it again.

        Raises:
            ValueError: the order cannot be repeated, as after a shuffle of an unordered map.
        """
        if not self._node.is_unordered:
            return state
        if state["passes"] != later["passes"]:
            raise ValueError("The two positions are in different passes.")
        return {**state, "position": self._node.aligned(state["position"], later["position"], 0, 0)}


class Position:
    """The position of the next element: a number of elements after a mark, in a pass."""

    __slots__ = ("mark", "offset", "passes")

    def __init__(self, passes: int = 0, state: State | None = None) -> None:
        self.passes = passes
        self.mark: Callable[[], Any] = Unopened(state)
        self.offset = 0

    @classmethod
    def from_state_dict(cls, state: Any) -> Position:
        """Return the position of a state.

        Raises:
            ValueError: the state is not one of a dataset, or of a newer asyncmon.
        """
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ValueError(f"Expected a state that Dataset.state_dict() returned, found {state!r}.")
        return cls(int(state["passes"]), state["position"])


class Unopened:
    """The mark of a loaded position, or of the start of a pass; later that of the opened pipeline.

    The state of a mark has the order in which ``map(ordered=False)`` returned later results. A mark
    that is taken before the pipeline is opened there must have it, too.
    """

    __slots__ = ("_state", "opened")

    def __init__(self, state: State | None) -> None:
        self.opened: Mark | None = None
        self._state = state

    def __call__(self) -> State | None:
        return self._state if self.opened is None else self.opened()


def _state_at(passes: int, mark: Callable[[], Any], offset: int) -> State:
    state = skipped(mark, offset)()
    return {"format": _FORMAT, "passes": passes, "position": state}


class Iteration:
    """The iterator of ``async for``. Follows the dataset when a position is loaded during it.

    A cancelled ``anext`` loses no element. Leaving the loop early closes the iteration as soon as
    nothing refers to it; :meth:`aclose` does so at once and waits.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._position: Position | None = None
        self._stage: Stage | None = None
        self._chunk: list[Any] = []
        self._at = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._budget: LoopBudget | None = None
        self._busy = False
        self._closed = False
        self._over: BaseException | None = None  # raised by every further call

    def __aiter__(self) -> Iteration:
        return self

    async def __anext__(self) -> Any:
        if self._busy:
            raise RuntimeError(
                "Another task is waiting for an element; tasks share a dataset by get_next()."
            )
        self._busy = True
        position = self._dataset._position  # one that is loaded during this call is for the next one
        try:
            if self._position is not position or self._at == len(self._chunk):
                await self._advance(position)
            elif self._budget is not None and self._budget.spent():
                await self._budget.pause()
        finally:
            self._busy = False
        element = self._chunk[self._at]
        self._chunk[self._at] = None
        self._at += 1
        position.offset = self._at
        return element

    async def aclose(self) -> None:
        """End the tasks and threads of the iteration; the position stays. Idempotent."""
        self._closed = True
        await self._close_stage()

    async def _advance(self, position: Position) -> None:
        """Get the next chunk; reopen the pipeline if the position of the dataset changed."""
        if self._closed:
            raise StopAsyncIteration
        if self._position is not position:
            await self._open(position)
        elif self._over is not None:
            raise self._over
        stage = self._stage
        assert stage is not None
        if self._budget is not None and self._budget.spent():
            await self._budget.pause()
        mark = stage.mark()
        try:
            chunk = await stage.pull(stage.read_ahead)
        except Exception as error:
            self._over = error
            await self._close_stage()
            raise
        if not chunk:
            self._over = StopAsyncIteration()
            if self._dataset._position is position and not self._closed:
                self._position = self._dataset._position = self._dataset._next_pass()
            await self._close_stage()
            raise StopAsyncIteration
        position.mark, position.offset = mark, 0
        self._chunk, self._at = list(chunk), 0

    async def _open(self, position: Position) -> None:
        await self._dataset._end_iteration(self)
        await self._close_stage()
        self._loop = asyncio.get_running_loop()
        self._budget = LoopBudget.of_running_loop()
        state = skipped(position.mark, position.offset)()
        self._stage = await open_node(self._dataset._node, state, (position.passes,))
        mark = self._stage.mark()
        if isinstance(position.mark, Unopened):
            position.mark.opened = mark
        position.mark, position.offset = mark, 0
        self._position = position
        self._over = None
        self._chunk, self._at = [], 0

    async def _close_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            await shielded(stage.aclose, name="asyncmon.data closing")

    def __del__(self) -> None:
        stage, loop = self._stage, self._loop
        if stage is None or loop is None or loop.is_closed():
            return
        if running_loop() is loop:
            self._dataset._close_later(stage)
        else:
            loop.call_soon_threadsafe(self._dataset._close_later, stage)


def from_iterable(source: Dataset | AnyIterable | Callable[[], AnyIterable]) -> Dataset:
    """Return a dataset of the elements of an iterable.

    Containers (list, tuple, range, dict, ...) are read in place. Other sequences (with ``len()`` and
    indexing) are read by index in a thread, other iterables one element after another in a thread,
    asynchronous ones in a task. ``OutOfRangeError`` ends a source. A sequence resumes at its position
    at once, other iterables skip the elements before it. A ``DataLoader`` of torch reads them again,
    with the states that its generators had before the pass. A ``StatefulDataLoader`` resumes at once.

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

    Batches are new arrays, read by fancy indexing of all rows of an array at once.

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
