"""Updates in place: grouped by kind, written in blocks that stay in the cache, on several cores.

A call of numpy costs about as much as a thousand elements, and an optimizer makes a dozen for each
variable. So small variables that are updated by one op with the same scalars lie side by side in one
flat array, and so do their slots and their gradients: one call updates them all. Everything else sees
an array for each, which happens to be a view. A large variable is a group of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain
from math import prod
from operator import is_
from time import perf_counter
from typing import Any

import numpy as np

from asyncmon.graph.core.shape import num_elements
from asyncmon.graph.execution.records import Update
from asyncmon.graph.execution.run import Run
from asyncmon.graph.execution.state import FlatArray, Slots, StateStore
from asyncmon.graph.numerics.parallel import CORES, parallel_for

_SMALL = 1 << 17  # elements: what a larger variable costs is not the calls
_GROUP = 1 << 18  # elements of a group: all of it is copied where one of its variables is pinned
_BLOCK = 1 << 18  # elements: large enough that threads seldom meet at the interpreter's lock
_PARALLEL = 1 << 18  # elements: with fewer, other threads are not worth waking

Copy = tuple[Any, Any]
"""An array, and the one of the same shape that is copied into it."""


class UpdateGroup:
    """Updates that one call of their function does: many of small variables, or a single one.

    Attributes:
        updates: which.
        refs: for the variables, and for each kind of slot, the slots of all updates.
        is_flat: whether these lie in flat arrays.
        per_variable: of flat ones, the positions of the inputs that have the shape of the variable.
        flat_inputs: for each of these, the register of a flat array.
    """

    def __init__(self, updates: Sequence[Update], new_register: Callable[[], int]) -> None:
        self.updates = tuple(updates)
        self.refs: tuple[Slots, ...] = tuple(zip(*(update.slots for update in updates), strict=True))
        self._slots = frozenset(chain(*self.refs))
        self.is_flat = len(updates) > 1
        self.per_variable: tuple[int, ...] = ()
        if self.is_flat:
            registers = enumerate(_scalar_inputs(updates[0]))
            self.per_variable = tuple(i for i, register in registers if register is None)
        self.flat_inputs = tuple(new_register() for _ in self.per_variable)
        shapes = [update.op.inputs[0].spec.shape or () for update in updates]
        self._shapes = [tuple(d or 0 for d in shape) for shape in shapes]
        self._size = sum(map(prod, self._shapes))

    @property
    def blockwise(self) -> bool:
        """Whether elements are updated one by one."""
        return self.updates[0].blockwise

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the variables."""
        return self.updates[0].op.inputs[0].spec.dtype.numpy

    @property
    def nbytes(self) -> int:
        """How long a flat array is."""
        return self._size * self.dtype.itemsize

    def flat(self, array: Any) -> FlatArray:
        """Return a flat array with the part of each update."""
        parts, start = [], 0
        for shape in self._shapes:
            end = start + prod(shape)
            parts.append(array[start:end].reshape(shape))
            start = end
        return FlatArray(array, parts)

    def written_in_place(self, read: AbstractSet[int]) -> frozenset[int]:
        """Return the slots that are, if they are not pinned."""
        if read.isdisjoint(self._slots):
            return self._slots
        return frozenset(chain(*(slots for slots in self.refs if not self._moves(slots, read))))

    def _moves(self, slots: Slots, read: AbstractSet[int]) -> bool:
        """Return whether values are written to other memory because some of them are read often."""
        return self.blockwise and not read.isdisjoint(slots)

    def prepare(
        self,
        store: StateStore,
        registers: list[Any],
        read: AbstractSet[int],
        new: list[tuple[int, Any]],
        replaced: list[tuple[Slots, FlatArray]],
    ) -> GroupWrite:
        """Return what is to be written, and where. Everything that can fail does so here.

        Args:
            store: has the present version.
            registers: of the run.
            read: the slots that are read often.
            new: gets the slots whose values lie in other memory afterwards.
            replaced: gets the memory that they lay in.
        """
        flats: list[FlatArray] = []
        copies: list[Copy] = []
        has_readers = store.has_pins or not read.isdisjoint(self._slots)
        for slots in self.refs:
            values = [store.values[slot] for slot in slots]
            flat = store.flat_arrays.get(slots) if self.is_flat else _alone(values[0])
            is_whole = flat is not None and all(map(is_, values, flat.parts))
            if flat is None or (
                has_readers and (self._moves(slots, read) or store.is_pinned(slots, flat.parts))
            ):
                other = store.recycled(slots, values) or self._new(values)
                if flat is not None:
                    replaced.append((slots, flat))
                if flat is not None and is_whole:
                    new += zip(slots, other.parts, strict=True)
                    copies.append((other.array, flat.array))
                flat = other
                if self.is_flat:
                    store.flat_arrays[slots] = flat
            if not is_whole:  # some were assigned
                for slot, part, value in zip(slots, flat.parts, values, strict=True):
                    if part is not value:
                        new.append((slot, part))
                        part[...] = value
            flats.append(flat)
        inputs = (
            self._joined_inputs(registers)
            if self.is_flat
            else _inputs(self.updates[0], flats, registers)
        )
        arrays = [flat.array if self.blockwise else flat.parts[0] for flat in flats]
        return GroupWrite(self.updates, arrays, inputs, copies)

    def _new(self, values: Sequence[Any]) -> FlatArray:
        if self.is_flat:
            return self.flat(np.empty(self._size, self.dtype))
        return _alone(np.empty(values[0].shape, values[0].dtype))

    def _joined_inputs(self, registers: list[Any]) -> list[Any]:
        """Return the inputs of all updates, those of the variables' shape in flat arrays."""
        inputs = [registers[i] for i in self.updates[0].inputs]
        for at, register in zip(self.per_variable, self.flat_inputs, strict=True):
            flat = registers[register] or self.flat(np.empty(self._size, self.dtype))
            for update, part in zip(self.updates, flat.parts, strict=True):
                value = registers[update.inputs[at]]
                if value is not part:
                    part[...] = value
            inputs[at] = flat.array
        return inputs


def _alone(value: Any) -> FlatArray:
    """Return a variable that is updated by itself, flat."""
    part = value if isinstance(value, np.ndarray) else np.array(value)
    return FlatArray(part.reshape(-1), [part])


def _inputs(update: Update, flats: Sequence[FlatArray], registers: list[Any]) -> list[Any]:
    """Return the inputs of one update, flat like its variables where they have their shape."""
    inputs = [np.array(registers[i]) if i in update.copied else registers[i] for i in update.inputs]
    if not update.blockwise:
        return inputs
    shape = flats[0].parts[0].shape
    return [np.ascontiguousarray(x).reshape(-1) if np.shape(x) == shape else x for x in inputs]


# --- which updates are done together ----------------------------------------------------------------


def group_updates(updates: Iterable[Update], new_register: Callable[[], int]) -> list[UpdateGroup]:
    """Return groups of updates that one call can do."""
    alike: dict[Any, list[Update]] = defaultdict(list)
    for update in updates:
        alike[_kind(update) or update.slots].append(update)
    return [
        UpdateGroup(members, new_register) for group in alike.values() for members in _limited(group)
    ]


def _kind(update: Update) -> Any:
    """Return what updates of one group have in common; None for one that is done by itself."""
    op, variable = update.op, update.op.inputs[0].spec
    if not update.blockwise or update.copied or not variable.shape or _size(update) > _SMALL:
        return None
    for spec in [tensor.spec for tensor in op.inputs]:
        if spec.shape not in ((), variable.shape):
            return None
        if spec.shape == variable.shape and spec.dtype is not variable.dtype:
            return None
    attrs = tuple(sorted((name, repr(value)) for name, value in op.attrs.items()))
    return op.type, variable.dtype, attrs, _scalar_inputs(update)


def _scalar_inputs(update: Update) -> tuple[int | None, ...]:
    """Return the registers of inputs, None for one that has the shape of the variable."""
    tensors = update.op.inputs[len(update.slots) :]
    return tuple(
        register if tensor.spec.shape == () else None
        for tensor, register in zip(tensors, update.inputs, strict=True)
    )


def _size(update: Update) -> int:
    """Return the number of elements; where it is not known, a large one."""
    return num_elements(update.op.inputs[0].spec.shape) or (_SMALL + 1)


def _limited(group: Sequence[Update]) -> Iterator[list[Update]]:
    """Yield parts of a group, large variables first: these begin where a cache line does."""
    members: list[Update] = []
    for update in sorted(group, key=_size, reverse=True):
        if members and sum(map(_size, members)) + _size(update) > _GROUP:
            yield members
            members = []
        members.append(update)
    yield members


# --- writing ----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class GroupWrite:
    """A call of an update's function, ready to be made.

    Attributes:
        updates: that it does.
        arrays: what they write.
        inputs: what else their function takes.
        copies: what is copied into the arrays first.
    """

    updates: tuple[Update, ...]
    arrays: list[Any]
    inputs: list[Any]
    copies: Sequence[Copy] = ()

    def __call__(self) -> None:
        """Write."""
        for array, old in self.copies:
            np.copyto(array, old)
        self.updates[0].function(*self.arrays, *self.inputs)

    def blocks(self) -> Sequence[GroupWrite]:
        """Return a call for each block. Inputs of the arrays' shape are cut like these."""
        size, shape = self.arrays[0].size, self.arrays[0].shape
        if size <= _BLOCK // 2 or not self.updates[0].blockwise:
            return (self,)
        count = -(-size // _BLOCK)
        step = -(-size // (-(-count // CORES) * CORES))  # as many for each core, all of one size
        step = max(step, _BLOCK // 4)
        cut = [isinstance(x, np.ndarray) and x.shape == shape for x in self.inputs]
        return [
            GroupWrite(
                self.updates,
                [array[block] for array in self.arrays],
                [x[block] if is_cut else x for x, is_cut in zip(self.inputs, cut, strict=True)],
                [(array[block], old[block]) for array, old in self.copies],
            )
            for block in [slice(start, start + step) for start in range(0, size, step)]
        ]


def write(writes: Sequence[GroupWrite], run: Run | None) -> None:
    """Make calls, large ones first. The caller has turned floating point warnings off.

    Args:
        writes: the calls.
        run: gets its trace, if it wants one.
    """
    if run is not None and run.trace is not None:
        for call in writes:
            before = perf_counter()
            parallel_for(call.blocks())
            run.note(call.updates[0].op, before, call.arrays)
            for update in call.updates[1:]:  # done along with the first
                run.note(update.op, perf_counter(), ())
        return
    if sum([call.arrays[0].size for call in writes]) <= _PARALLEL:
        for call in writes:
            call()
        return
    blocks = [block for call in writes for block in call.blocks()]
    blocks.sort(key=lambda block: block.arrays[0].size, reverse=True)
    parallel_for(blocks)
