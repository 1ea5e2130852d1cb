"""A replay buffer: the newest items of a stream, of which batches are drawn at random."""

from __future__ import annotations

import asyncio
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from asyncmon.data.item_structure import built, flatten
from asyncmon.data.sum_tree import SumTree
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import FixedArray

_SEGMENT_BYTES = 4 << 20
_MOST_SEGMENTS = 256
_INLINE_BYTES = 256 << 10  # a larger batch is gathered in a thread
_FORMAT = 1

Sampling = Literal["uniform", "prioritised"]


class Sample(NamedTuple):
    """Items drawn from a buffer."""

    batch: Any
    """The items, stacked part by part: the first axis has the length of ``indices``."""
    indices: NDArray[np.int64]
    """The number of each item in the order of addition, from 0. For :meth:`ReplayBuffer.update`."""
    weights: NDArray[np.float64]
    """The importance weights, of which the largest is 1; all are 1 with uniform sampling."""


class ReplayBuffer:
    """The newest ``capacity`` items, of which random batches are drawn with replacement.

    An item is a number, an array, or a dict or tuple of items. All have the structure, the shapes and
    the dtypes of the first one. They are stored as rows of arrays, allocated with the first item. The
    oldest item leaves when the buffer is full.

    With ``sampling="prioritised"`` an item of priority ``p`` is drawn in proportion to ``p ** alpha``
    (Schaul et al., 2016), and its weight is ``(len(buffer) * probability) ** -beta``, divided by the
    largest of the batch.

    ``sess.iterate(buffer.batches(32))`` saves the buffer in the checkpoints of the session, with its
    generator and priorities; so does ``saver.add_stateful("replay", buffer)`` where :meth:`sample` is
    called. A save writes only those parts of the data that have changed since the last one in the same
    directory: the others are neither copied nor written again.

    Methods may be called in any thread; each holds a lock for its duration. A save copies 4 MB at a
    time under this lock, in a thread.

    Args:
        capacity: the most items, 1 or more.
        sampling: ``"uniform"`` or ``"prioritised"``.
        alpha: how much priorities count, 0 or more; 0 draws uniformly.
        beta: how much of the bias weights correct, from 0 to 1. May be set later: :attr:`beta`.
        seed: of the drawing. None: a random one.

    Raises:
        ValueError: an argument has a wrong value.

    Example::

        buffer = am.data.ReplayBuffer(100_000, sampling="prioritised", seed=1)
        buffer.add({"state": state, "action": 1, "reward": 0.5})
        async for batch, indices, weights in sess.iterate(buffer.batches(32, least=1000)):
            errors = await sess.run(train, {x: batch["state"], w: weights})
            buffer.update(indices, np.abs(errors))
    """

    def __init__(
        self,
        capacity: int,
        *,
        sampling: Sampling = "uniform",
        alpha: float = 0.6,
        beta: float = 0.4,
        seed: int | None = None,
    ) -> None:
        if capacity < 1:
            raise ValueError(f"A replay buffer needs a capacity of at least 1, not {capacity!r}.")
        if sampling not in ("uniform", "prioritised"):
            raise ValueError(f"sampling is 'uniform' or 'prioritised', not {sampling!r}.")
        if alpha < 0 or not 0 <= beta <= 1:
            raise ValueError(
                f"alpha is 0 or more and beta from 0 to 1, got alpha={alpha!r}, beta={beta!r}."
            )
        self.capacity = capacity
        """The most items."""
        self.beta = beta
        """How much of the bias weights correct, from 0 to 1. Not saved."""
        self._changed = 0  # without the draws, which belong to a step
        self._drawn = 0
        self._alpha = alpha
        self._generator = np.random.default_rng(seed)
        self._tree = SumTree(capacity) if sampling == "prioritised" else None
        self._priorities = np.zeros(capacity) if self._tree is not None else np.zeros(0)
        self._highest = 1.0  # the priority of new items
        self._structure: Any = None
        self._columns: list[NDArray[Any]] = []
        #   number    of an item: the buffer has the last capacity of the _added ones
        #   slot      number % capacity: its row in each of _columns, its priority, its leaf in _tree
        #   segment   slot // _rows: saved as a file of its own. _parts has its id until its content
        #             changes; _saved has the arrays of states, which are copied before it does. One
        #             that load_state_dict has set is in _loaded until it is read or changed.
        self._rows = 1
        self._added = 0
        self._parts: dict[int, str] = {}
        self._saved: dict[int, list[weakref.ref[_Rows]]] = {}
        self._loaded: dict[int, _Rows] = {}
        self._lock = threading.RLock()
        self._waiting: dict[asyncio.Event, tuple[asyncio.AbstractEventLoop, int]] = {}
        self._batches: dict[tuple[int, int], Batches] = {}

    def __repr__(self) -> str:
        kind = "uniform" if self._tree is None else "prioritised"
        return f"ReplayBuffer({self.capacity}, {kind})"

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    @property
    def revision(self) -> int:
        """Rises with each change: see ``StatefulMembers.revision``."""
        return self._changed + self._drawn

    @property
    def added(self) -> int:
        """The number of items added so far, including removed ones."""
        return self._added

    def add(self, item: Any, priority: float | None = None) -> int:
        """Add an item, and return its number.

        Args:
            item: of the structure, shapes and dtypes of the first item.
            priority: 0 or more. Default: the highest so far, at first 1.

        Raises:
            ValueError: the item differs from the first one, or the priority is negative or not finite.
            TypeError: a part is neither a number nor an array, dict or tuple of them.
        """
        one = None if priority is None else np.array([priority], np.float64)
        return int(self._extend(item, one, stacked=False)[0])

    def extend(self, batch: Any, priorities: Any = None) -> NDArray[np.int64]:
        """Add several items, and return their numbers.

        Args:
            batch: the items, stacked part by part along a first axis of one length, as
                :func:`asyncmon.data.stack` returns them. Of more than ``capacity`` the last ones stay.
            priorities: one each, see :meth:`add`.

        Raises as :meth:`add`.
        """
        return self._extend(batch, priorities, stacked=True)

    def _extend(self, batch: Any, priorities: Any, *, stacked: bool) -> NDArray[np.int64]:
        leaves: list[tuple[str, NDArray[Any]]] = []
        structure = flatten(batch, "item", leaves)
        if not stacked:
            leaves = [(where, array[None]) for where, array in leaves]
        lengths = {len(array) if array.ndim else -1 for _, array in leaves}
        if len(lengths) != 1 or -1 in lengths:
            raise ValueError(f"extend() takes parts with a first axis of one length, got {lengths}.")
        count = lengths.pop()
        if priorities is not None:
            priorities = self._checked(priorities, count)
        with self._lock:
            self._fit(structure, leaves)
            numbers = np.arange(self._added, self._added + count)
            kept = numbers[-self.capacity :] if count else numbers
            slots = kept % self.capacity
            for segment in np.unique(slots // self._rows).tolist():
                self._changes(segment)
            for column, (_, array) in zip(self._columns, leaves, strict=True):
                column[slots] = array[count - len(kept) :]
            if self._tree is not None and count:
                new = np.full(count, self._highest) if priorities is None else priorities
                self._set_priorities(slots, new[count - len(kept) :])
            self._added += count
            self._changed += 1
            self._wake()
        return numbers

    def sample(self, size: int) -> Sample:
        """Draw items, with replacement.

        Args:
            size: how many, 1 or more.

        Raises:
            ValueError: the size is below 1, or the buffer is empty.
        """
        _check_size(size)
        with self._lock:
            count = len(self)
            if not count:
                raise ValueError("The replay buffer is empty: add items first, or use batches().")
            weights = np.ones(size)
            if self._tree is None or not self._tree.total > 0:
                slots = self._generator.integers(0, count, size)
            else:
                slots = self._tree.find(self._generator.random(size))
                odds = self._tree.values(slots) / self._tree.total
                weights = (count * odds) ** -self.beta
                weights /= weights.max()
            self._drawn += 1
            if self._loaded:
                self._fill(slots)
            columns = iter([column[slots] for column in self._columns])
            newest = (self._added - 1) % self.capacity
            numbers = self._added - 1 - (newest - slots) % self.capacity
            return Sample(built(self._structure, columns), numbers, weights)

    def update(self, indices: Any, priorities: Any) -> None:
        """Set the priorities of items. Items that have left the buffer are ignored.

        Args:
            indices: numbers of items, as :attr:`Sample.indices`. Of equal ones the last one counts.
            priorities: one each, 0 or more.

        Raises:
            ValueError: the buffer draws uniformly; or the lengths differ; or a priority is negative or
                not finite; or there was no such item.
        """
        if self._tree is None:
            raise ValueError("A buffer of uniform sampling has no priorities: 'prioritised' has.")
        numbers = np.asarray(indices, np.int64).reshape(-1)
        given = self._checked(priorities, len(numbers))
        with self._lock:
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < self._added):
                raise ValueError(f"indices are from 0 to {self._added - 1}, got {indices!r:.80}.")
            stay = numbers >= self._added - self.capacity
            self._set_priorities(numbers[stay] % self.capacity, given[stay])
            self._changed += 1

    def batches(self, size: int, *, least: int | None = None) -> Batches:
        """Return an endless source of samples for ``sess.iterate``; the same one for equal arguments.

        Args:
            size: the number of items of each sample.
            least: the number of items in the buffer that it waits for. Default: ``size``, at most the
                capacity.

        Raises:
            ValueError: the size is below 1, or ``least`` below 1 or above the capacity.
        """
        _check_size(size)
        least = min(size, self.capacity) if least is None else least
        if not 1 <= least <= self.capacity:
            raise ValueError(f"least is from 1 to the capacity, {self.capacity}, not {least!r}.")
        return self._batches.setdefault((size, least), Batches(self, size, least))

    # -- the state

    def state_dict(self) -> dict[str, Any]:
        """Return the items, their priorities and the generator. No item is copied.

        The parts of the items are :class:`~asyncmon.system.snapshot.FixedArray`.
        """
        with self._lock:
            segments = [self._segment(n) for n in range(-(-len(self) // self._rows))]
            return {
                "format": _FORMAT,
                "capacity": self.capacity,
                "rows": self._rows,
                "added": self._added,
                "structure": self._structure,
                "segments": segments,
                "parts": " ".join(self._parts[n] for n in range(len(segments))),
                "priorities": self._priorities[: len(self)].copy() if self._tree is not None else None,
                "highest": self._highest,
                "generator": self._generator.bit_generator.state,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set a state that :meth:`state_dict` returned.

        Raises:
            ValueError: it is of a buffer of another capacity or kind of sampling.
        """
        if state.get("format") != _FORMAT or state["capacity"] != self.capacity:
            raise ValueError(
                f"This is no state of a replay buffer with a capacity of {self.capacity}, but of "
                f"{state.get('capacity')!r}."
            )
        if (state["priorities"] is None) != (self._tree is None):
            raise ValueError("This is the state of a replay buffer with another kind of sampling.")
        segments: list[list[Any]] = state["segments"]
        with self._lock:
            self._saved.clear()  # these arrays change no more: _columns are new ones
            self._structure, self._rows, self._added = state["structure"], state["rows"], state["added"]
            self._columns = []
            if segments:
                self._columns = [
                    np.zeros((self.capacity, *one.shape[1:]), one.dtype) for one in segments[0]
                ]
            self._loaded = {n: _Rows(self._lock, arrays, True) for n, arrays in enumerate(segments)}
            self._parts = dict(enumerate(state["parts"].split()))
            self._highest = state["highest"]
            self._generator.bit_generator.state = state["generator"]
            if self._tree is not None:
                self._tree.clear()
                slots = np.arange(len(self))
                self._priorities[:] = 0
                self._set_priorities(slots, state["priorities"], highest=False)
            self._changed += 1
            self._wake()

    def fill(self) -> None:
        """Copy all items that :meth:`load_state_dict` has set, 4 MB at a time. Blocking.

        Otherwise items are copied when they are drawn or replaced.
        """
        for number in list(self._loaded):
            with self._lock:
                self._fill([number * self._rows])

    def _fill(self, slots: Any) -> None:
        """Copy the loaded segments of some slots."""
        for number in np.unique(np.asarray(slots) // self._rows).tolist():
            rows = self._loaded.pop(number, None)
            for column, array in zip(self._columns, rows.columns if rows else (), strict=False):
                column[number * self._rows :][: array.shape[0]] = array

    def _segment(self, number: int) -> list[FixedArray]:
        first = number * self._rows
        end = min(first + self._rows, len(self))
        part = self._parts.get(number)
        if part is None:
            part = self._parts[number] = uuid.uuid4().hex
        if number in self._loaded:
            rows = self._loaded[number]
        else:
            rows = _Rows(self._lock, [column[first:end] for column in self._columns])
        saved = [one for one in self._saved.get(number, ()) if one() is not None]
        self._saved[number] = [*saved, weakref.ref(rows)]
        return [
            FixedArray(part, column.dtype, column.shape, partial(rows.read, n))
            for n, column in enumerate(rows.columns)
        ]

    def _changes(self, segment: int) -> None:
        """Prepare the change of a segment: returned arrays keep their content."""
        if self._loaded:
            self._fill([segment * self._rows])
        self._parts.pop(segment, None)
        for one in self._saved.pop(segment, ()):
            if (rows := one()) is not None:
                rows.keep()

    # -- items

    def _fit(self, structure: Any, leaves: list[tuple[str, NDArray[Any]]]) -> None:
        """Allocate the columns for the first items; refuse others that differ from these."""
        if not self._columns:
            self._structure = structure
            nbytes = max(1, sum(array[:1].nbytes for _, array in leaves))
            least = -(-self.capacity // _MOST_SEGMENTS)
            self._rows = min(self.capacity, max(least, _SEGMENT_BYTES // nbytes, 1))
            self._columns = [
                np.zeros((self.capacity, *array.shape[1:]), array.dtype) for _, array in leaves
            ]
        if structure != self._structure:
            raise ValueError(
                f"Items have one structure: the first one was {self._structure}, this is {structure}."
            )
        for column, (where, array) in zip(self._columns, leaves, strict=True):
            if array.shape[1:] != column.shape[1:] or not np.can_cast(
                array.dtype, column.dtype, "same_kind"
            ):
                raise ValueError(
                    f"{where} has the shape {array.shape[1:]} and dtype {array.dtype}; that of the "
                    f"first item was {column.shape[1:]}, {column.dtype}."
                )

    def _checked(self, priorities: Any, count: int) -> NDArray[np.float64]:
        given = np.asarray(priorities, np.float64).reshape(-1)
        if self._tree is None:
            raise ValueError("A buffer of uniform sampling has no priorities: 'prioritised' has.")
        if len(given) != count:
            raise ValueError(f"There are {len(given)} priorities for {count} items.")
        if not (np.isfinite(given).all() and (given >= 0).all()):
            raise ValueError(f"Priorities are finite and 0 or more, got {priorities!r:.80}.")
        return given

    def _set_priorities(
        self, slots: NDArray[np.int64], priorities: NDArray[np.float64], *, highest: bool = True
    ) -> None:
        assert self._tree is not None, "checked by the callers"
        if len(slots):
            self._priorities[slots] = priorities
            self._tree.set(slots, self._priorities[slots] ** self._alpha)
            if highest:
                self._highest = max(self._highest, float(priorities.max()))

    def _wake(self) -> None:
        """Wake the iterators whose least number of items has arrived."""
        for event, (loop, least) in self._waiting.items():
            if len(self) >= least:
                loop.call_soon_threadsafe(event.set)

    def _with_generator(self, drawn: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.state_dict(), "generator": drawn}


class Batches:
    """The samples of a buffer, without end. Made by :meth:`ReplayBuffer.batches`.

    ``async for`` waits until the buffer has enough items. A cancelled wait draws nothing. Its state is
    that of the buffer, with the generator's state before the first unconsumed sample.
    """

    def __init__(self, buffer: ReplayBuffer, size: int, least: int) -> None:
        self._buffer, self._size, self._least = buffer, size, least

    def __repr__(self) -> str:
        return f"{self._buffer!r}.batches({self._size})"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sample:
        buffer = self._buffer
        while len(buffer) < self._least:
            arrived = asyncio.Event()
            with buffer._lock:
                buffer._waiting[arrived] = asyncio.get_running_loop(), self._least
            try:
                if len(buffer) < self._least:  # a thread may have added some
                    await arrived.wait()
            finally:
                with buffer._lock:
                    del buffer._waiting[arrived]
        if buffer._loaded:
            await in_thread(buffer.fill)
        nbytes = sum(column[:1].nbytes for column in buffer._columns) * self._size
        if nbytes <= _INLINE_BYTES:
            return buffer.sample(self._size)
        return await in_thread(buffer.sample, self._size)

    def mark(self) -> Callable[[], dict[str, Any]]:
        """See ``SourceMembers.mark``."""
        return partial(self._buffer._with_generator, self._buffer._generator.bit_generator.state)

    def aligned(self, state: Any, later: Any) -> Any:
        """See ``SourceMembers.aligned``."""
        return state

    @property
    def revision(self) -> int:
        """See ``StatefulMembers.revision``: items and priorities may change after the last step."""
        return self._buffer._changed

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the buffer."""
        return self._buffer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set the state of the buffer."""
        self._buffer.load_state_dict(state)


class _Rows:
    """Rows of all columns as they are now: read where they are, and copied before they change.

    Args:
        lock: of the buffer.
        columns: arrays, or :class:`FixedArray` of another state.
        is_own: whether they do not change.
    """

    def __init__(self, lock: Any, columns: list[Any], is_own: bool = False) -> None:
        self._lock = lock
        self.columns = columns
        self._is_own = is_own

    def keep(self) -> None:
        if not self._is_own:
            self.columns, self._is_own = [column.copy() for column in self.columns], True

    def read(self, number: int) -> NDArray[Any]:
        with self._lock:
            column: NDArray[Any] = np.asarray(self.columns[number])
            return column if self._is_own else column.copy()


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"A sample has 1 item or more, not {size!r}.")
