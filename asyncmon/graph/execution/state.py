"""The state of a session: the values of its variables, and pinned versions of them.

One run at a time commits, on the loop's thread or in a worker. A reader of one version pins the slots
that it reads. Pinned arrays are not written: a commit writes to other memory, and replaces the
references at its end. It does the same with slots that are often read beside steps, so that their
readers do not wait. Other slots are written in place, and cannot be pinned during that time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation
from asyncmon.graph.core.shape import Shape, TensorShape, as_shape

T = TypeVar("T")
Slots = tuple[int, ...]

RANDOM_STATE = "__random_state__"
"""The generator's state in snapshots, a reserved name: see :mod:`.randomness`."""

_READ_OFTEN = 1.0  # seconds between reads beside steps: commits write to other memory
_MOVED_OFTEN = 5.0  # seconds between such commits: memory of earlier versions is kept
_KEPT = 2  # earlier versions: the last one, and one that is pinned


class FlatArray(NamedTuple):
    """An array, and the views of it that are variables."""

    array: Any
    parts: list[Any]


@dataclass(eq=False)
class Pin:
    """The values of some slots in one version, protected from writes."""

    values: dict[int, Any]


class _Often:
    """Detects events that occur at least once per interval in seconds."""

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._last = self._until = -secs

    def note(self) -> None:
        """Record an event."""
        now = perf_counter()
        if now - self._last < self._secs:
            self._until = now + self._secs
        self._last = now

    @property
    def is_recent(self) -> bool:
        """Whether the last two events are within the interval of now."""
        return perf_counter() - self._last < self._secs

    def __bool__(self) -> bool:
        return perf_counter() < self._until


class StateStore:
    """The values of a session's variables, by slot. None: not initialised."""

    #   container, name --_slots--> slot --> values: the current version
    #                                        flat_arrays[slots].parts: the same arrays, as views of one
    #                                        free_arrays[slots]: memory of earlier versions
    #   a commit:    begin_apply ---------- publish ----------- end_apply
    #                _writing: slots that   values of other     pins in _waiting follow: all have the
    #                cannot be pinned       slots, at once      new version

    def __init__(self, seed: int) -> None:
        self.values: list[Any] = [np.array([seed, 0], np.uint64)]
        self.names: list[str] = [RANDOM_STATE]
        self.flat_arrays: dict[Slots, FlatArray] = {}
        """The flat arrays of variables that are updated together, unless assigned separately since."""
        self.broken: Exception | None = None
        self._slots: dict[tuple[str, str], int] = {("", RANDOM_STATE): 0}  # by container and name
        self._declared: dict[int, tuple[DType, Shape]] = {}  # by slot, from the first use
        self._mutex = threading.Lock()
        self._writing: frozenset[int] = frozenset()
        self._waiting: list[tuple[Callable[[Pin], object], Collection[int] | None]] = []
        self._pins: set[Pin] = set()
        self._moved_often = _Often(_MOVED_OFTEN)
        self._reads: dict[Slots, _Often] = {}  # beside steps, by slots
        self.free_arrays: dict[Slots, list[FlatArray]] = {}

    def slot(self, variable: Operation) -> int:
        """Return the slot of a variable, a new one at the first call. Thread-safe.

        Raises:
            InvalidArgumentError: another graph has used the name with another dtype or shape.
        """
        attrs = variable.attrs
        key = attrs.get("container", ""), attrs["variable"]
        slot, declared = self._slots.get(key), (attrs["dtype"], attrs["shape"])
        if slot is not None and self._declared[slot] == declared:
            return slot
        declared = attrs["dtype"], as_shape(attrs["shape"])
        if slot is None:
            with self._mutex:
                slot = self._slots.get(key)
                if slot is None:
                    slot = len(self.values)
                    self.names.append(key[1])
                    self.values.append(None)
                    self._declared[slot] = declared
                    self._slots[key] = slot
        found = self._declared[slot]
        if found != declared:
            raise InvalidArgumentError(
                f"Variable {key[1]!r} is {_described(*declared)} in this graph, and "
                f"{_described(*found)} in the state that its session shares. Rename it, put it into "
                "another container(), or end the old state by Session.reset()."
            )
        return slot

    def without(self, containers: Collection[str], seed: int) -> StateStore:
        """Return a new store with copies of the initialised variables of the other containers.

        Snapshots of this store may still share its arrays.
        """
        kept = StateStore(seed)
        for (container, name), slot in self._slots.items():
            if slot and container not in containers and self.values[slot] is not None:
                kept._slots[container, name] = len(kept.values)
                kept._declared[len(kept.values)] = self._declared[slot]
                kept.names.append(name)
                kept.values.append(self.values[slot].copy())
        return kept

    # Reading one version.

    def pinned(
        self, use: Callable[[Pin], T], slots: Collection[int] | None = None
    ) -> asyncio.Future[T]:
        """Pin the current version, or the next one if a commit is writing these slots in place.

        Args:
            use: makes the result from the pin.
            slots: the slots to protect; None for all.

        Returns:
            A future, already done if no wait is needed. If it is cancelled, nothing is pinned. It
            fails if a commit fails half-way.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(pin: Pin) -> None:
            if future.cancelled():
                self.unpin(pin)
            elif self.broken is not None:
                self.unpin(pin)
                future.set_exception(self.broken)
            else:
                future.set_result(use(pin))

        with self._mutex:
            if self._writing and (slots is None or not self._writing.isdisjoint(slots)):
                self._waiting.append((lambda pin: loop.call_soon_threadsafe(deliver, pin), slots))
                return future
            pin = self._pin(slots)
        deliver(pin)
        return future

    def unpin(self, pin: Pin) -> None:
        """Release a pin. Thread-safe; a second call does nothing."""
        self._pins.discard(pin)

    @property
    def has_pins(self) -> bool:
        """Whether anything is pinned."""
        return bool(self._pins)

    def is_pinned(self, slots: Sequence[int], arrays: Iterable[Any]) -> bool:
        """Return whether a pin has one of these arrays at its slot."""
        return any(
            pin.values.get(slot) is array
            for pin in tuple(self._pins)
            for slot, array in zip(slots, arrays, strict=True)
        )

    def note_read(self, slots: Slots) -> None:
        """Record a read of slots beside a step."""
        with self._mutex:
            self._reads.setdefault(slots, _Often(_READ_OFTEN)).note()

    def read_often(self) -> set[int]:
        """Return the slots that are often read beside steps."""
        if not self._reads:
            return set()
        with self._mutex:
            self._reads = {slots: often for slots, often in self._reads.items() if often.is_recent}
            return {slot for slots, often in self._reads.items() if often for slot in slots}

    def _pin(self, slots: Collection[int] | None) -> Pin:
        self._drop_unused()
        values = self.values
        wanted = range(len(values)) if slots is None else slots
        pin = Pin({slot: values[slot] for slot in wanted})
        self._pins.add(pin)
        return pin

    # Committing the next version, one run at a time.

    def begin_apply(self, slots: frozenset[int]) -> None:
        """Block pins of these slots until :meth:`end_apply`: they are written in place."""
        with self._mutex:
            self._writing = slots

    def publish(self, new: Sequence[tuple[int, Any]]) -> None:
        """Publish the next version, given its changed slots and values."""
        values = self.values
        if len(new) == 1:  # the lock costs a tenth of the smallest step
            ((slot, value),) = new
            values[slot] = value
            return
        with self._mutex:
            for slot, value in new:
                values[slot] = value

    def end_apply(self, replaced: Sequence[tuple[Slots, FlatArray]]) -> None:
        """Complete the pending pins.

        Args:
            replaced: slots of update groups, and their previous memory.
        """
        with self._mutex:
            served = [(receive, self._pin(slots)) for receive, slots in self._waiting]
            self._writing, self._waiting = frozenset(), []
        for receive, pin in served:
            receive(pin)
        if replaced:
            self._moved_often.note()
        for slots, flat in replaced:
            self.free_arrays[slots] = [flat, *self.free_arrays.get(slots, ())][:_KEPT]
        self._drop_unused()

    def recycled(self, slots: Slots, values: Sequence[Any]) -> FlatArray | None:
        """Return unpinned memory of an earlier version of these shapes, if any is kept."""
        kept = self.free_arrays.get(slots, [])
        for i, flat in enumerate(kept):
            fits = all(x.shape == y.shape for x, y in zip(flat.parts, values, strict=True))
            if fits and not self.is_pinned(slots, flat.parts):
                return kept.pop(i)
        return None

    def _drop_unused(self) -> None:
        """Free memory of earlier versions that no commit will use soon."""
        if self.free_arrays and not self._moved_often:
            self.free_arrays = {}


def checked_values(store: StateStore, graph: Graph, values: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """Return slots and copied arrays for values by name. Thread-safe.

    Raises:
        InvalidArgumentError: values do not fit; the error lists all of them.
    """
    found: list[tuple[int, Any]] = []
    problems: list[str] = []
    operations = {op.name: op for op in graph.get_operations() if op.type == "VariableV2"}
    for name, value in values.items():
        dtype: DType
        if name == RANDOM_STATE:
            dtype, shape = dtypes.uint64, TensorShape((max(2, np.size(value)),))
        elif name in operations:
            attrs = operations[name].attrs
            dtype, shape = attrs["dtype"], TensorShape(attrs["shape"])
        else:
            problems.append(f"{name!r} is not a variable of this graph")
            continue
        try:
            array = dtypes.as_strings(value) if dtype is dtypes.string else np.asarray(value)
        except TypeError as error:
            problems.append(f"{name!r} has dtype string: {error}")
            continue
        if array.dtype != dtype.numpy:
            problems.append(f"{name!r} has dtype {dtype.name}, the value {array.dtype}")
        elif not shape.is_compatible_with(array.shape):
            problems.append(f"{name!r} has shape {shape}, the value {array.shape}")
        else:
            slot = 0 if name == RANDOM_STATE else store.slot(operations[name])
            found.append((slot, np.array(array, order="C")))
    if problems:
        raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
    return found


def _described(dtype: DType, shape: Shape) -> str:
    return f"{dtype.name} of shape {TensorShape(shape)}"
