"""The commit of a run, and its updates in place.

Updates are grouped by kind and written in blocks that stay in the cache, on several cores.
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

from asyncmon.errors import InternalError
from asyncmon.graph.core.shape import num_elements
from asyncmon.graph.execution.randomness import advanced
from asyncmon.graph.execution.records import Swap, Update
from asyncmon.graph.execution.run import Run
from asyncmon.graph.execution.state import FlatArray, Slots, StateStore
from asyncmon.graph.numerics.parallel import CORES, parallel_for

# A call of numpy costs about as much as a thousand elements, and an optimizer makes a dozen for each
# variable. So small variables that are updated by one op with the same scalars are contiguous in one
# flat array, and so are their slots and their gradients: one call updates them all. Other code sees one
# array for each, which is a view. A large variable is a group of its own.
_SMALL = 1 << 17  # elements: for larger variables the overhead of calls is small
_GROUP = 1 << 18  # elements of a group: a pin of one variable copies the whole group
_BLOCK = 1 << 18  # elements: large enough to keep contention for the interpreter lock low
_PARALLEL = 1 << 18  # elements: with fewer, waking other threads costs more than it gains

Copy = tuple[Any, Any]
"""A target array, and an array of the same shape to copy into it."""


class UpdateGroup:
    """Updates applied by one call: many of small variables, or a single one.

    Attributes:
        updates: the updates.
        refs: for the variables and each kind of optimizer slot, the state slots of all updates.
        is_flat: whether these are in flat arrays.
        per_variable: for flat groups, the positions of the inputs of the variable's shape.
        flat_inputs: for each of these inputs, the register of a flat array.
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
        """The length of a flat array."""
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
        """Return the slots written in place, if they are not pinned."""
        if read.isdisjoint(self._slots):
            return self._slots
        return frozenset(chain(*(slots for slots in self.refs if not self._moves(slots, read))))

    def _moves(self, slots: Slots, read: AbstractSet[int]) -> bool:
        """Return whether to write to other memory because some values are often read."""
        return self.blockwise and not read.isdisjoint(slots)

    def prepare(
        self,
        store: StateStore,
        registers: list[Any],
        read: AbstractSet[int],
        new: list[tuple[int, Any]],
        replaced: list[tuple[Slots, FlatArray]],
    ) -> GroupWrite:
        """Return the writes and their targets. Everything that can fail happens here.

        Args:
            store: the store with the current version.
            registers: the registers of the run.
            read: the slots that are often read.
            new: collects the slots whose values move to other memory.
            replaced: collects their previous memory.
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
        """Return the inputs of all updates; inputs of the variables' shape are in flat arrays."""
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
    """Return a flat view of a single variable."""
    part = value if isinstance(value, np.ndarray) else np.array(value)
    return FlatArray(part.reshape(-1), [part])


def _inputs(update: Update, flats: Sequence[FlatArray], registers: list[Any]) -> list[Any]:
    """Return the inputs of one update; inputs of the variable's shape are flat."""
    inputs = [np.array(registers[i]) if i in update.copied else registers[i] for i in update.inputs]
    if not update.blockwise:
        return inputs
    shape = flats[0].parts[0].shape
    return [np.ascontiguousarray(x).reshape(-1) if np.shape(x) == shape else x for x in inputs]


# --- grouping ---------------------------------------------------------------------------------------


def group_updates(updates: Iterable[Update], new_register: Callable[[], int]) -> list[UpdateGroup]:
    """Return groups of updates for one call each."""
    alike: dict[Any, list[Update]] = defaultdict(list)
    for update in updates:
        alike[_kind(update) or update.slots].append(update)
    return [
        UpdateGroup(members, new_register) for group in alike.values() for members in _limited(group)
    ]


def _kind(update: Update) -> Any:
    """Return the key of an update's group; None for a group of its own."""
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
    """Return the registers of inputs, None for inputs of the variable's shape."""
    tensors = update.op.inputs[len(update.slots) :]
    return tuple(
        register if tensor.spec.shape == () else None
        for tensor, register in zip(tensors, update.inputs, strict=True)
    )


def _size(update: Update) -> int:
    """Return the number of elements, a large number if unknown."""
    return num_elements(update.op.inputs[0].spec.shape) or (_SMALL + 1)


def _limited(group: Sequence[Update]) -> Iterator[list[Update]]:
    """Yield parts of a group, large variables first, aligned to cache lines."""
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
    """A prepared call of an update's function.

    Attributes:
        updates: the updates that it applies.
        arrays: the arrays to write.
        inputs: the other arguments.
        copies: copies into the arrays before the call.
    """

    updates: tuple[Update, ...]
    arrays: list[Any]
    inputs: list[Any]
    copies: Sequence[Copy] = ()

    def __call__(self) -> None:
        """Apply the copies and call the function."""
        for array, old in self.copies:
            np.copyto(array, old)
        self.updates[0].function(*self.arrays, *self.inputs)

    def blocks(self) -> Sequence[GroupWrite]:
        """Return a call for each block. Inputs of the arrays' shape are split likewise."""
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
    """Make calls, large ones first. The caller has disabled floating point warnings.

    Args:
        writes: the calls.
        run: the run, for its trace.
    """
    if run is not None and run.trace is not None:
        for call in writes:
            before = perf_counter()
            parallel_for(call.blocks())
            run.note(call.updates[0].op, before, call.arrays)
            for update in call.updates[1:]:  # applied along with the first
                run.note(update.op, perf_counter(), ())
        return
    if sum([call.arrays[0].size for call in writes]) <= _PARALLEL:
        for call in writes:
            call()
        return
    blocks = [block for call in writes for block in call.blocks()]
    blocks.sort(key=lambda block: block.arrays[0].size, reverse=True)
    parallel_for(blocks)


# --- commit ------------------------------------------------------------------------------------------


def commit(
    swaps: Sequence[Swap],
    groups: Sequence[UpdateGroup],
    drew: bool,
    store: StateStore,
    registers: list[Any],
    run: Run | None,
) -> None:
    """Store the writes of a run and its random state. The caller has disabled floating point warnings.

    Everything that can fail precedes the first write to an array of the current version, so that an
    error leaves the state unchanged. Variables that are often read beside steps are written to other
    memory, so that their readers do not wait.
    """
    values = store.values
    new: list[tuple[int, Any]] = []
    for swap in swaps:
        value = registers[swap.register]
        if value is not values[swap.slot]:
            new.append((swap.slot, swap.value(value)))
    if drew and run is not None and run.drew:
        new.append((0, advanced(values[0], run.drew)))
    if groups or len(new) > 1:
        _apply(groups, store, registers, new, run)
    else:
        store.publish(new)


def _apply(
    groups: Sequence[UpdateGroup],
    store: StateStore,
    registers: list[Any],
    new: list[tuple[int, Any]],
    run: Run | None,
) -> None:
    replaced: list[tuple[Slots, FlatArray]] = []
    between = not groups  # whether an error leaves the state between two versions
    try:
        if groups:
            read = store.read_often()
            in_place = frozenset[int]().union(*[group.written_in_place(read) for group in groups])
            store.begin_apply(in_place)
            writes = [group.prepare(store, registers, read, new, replaced) for group in groups]
            between = bool(in_place)
            write(writes, run)
            between = True
        store.publish(new)
    except BaseException as error:
        replaced.clear()
        if not between:
            raise
        store.broken = InternalError(
            f"A commit failed while it was being applied: {error!r}. "
            "The state of this session is no longer consistent; restore it into a new one."
        )
        if not isinstance(error, Exception):  # Ctrl-C, which must not be hidden
            raise
        raise store.broken from error
    finally:
        if groups:
            store.end_apply(replaced)
