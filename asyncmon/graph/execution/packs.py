"""Many small updates done as one: the variables of a pack lie side by side in one array.

A call of numpy costs about as much as a thousand elements, and an optimizer makes a dozen for each
variable. So variables that are updated by the same op with the same scalars get their values moved into
common arrays, one for each of their refs (the variable and its slots), and their gradients into
another. To everybody else they remain what they were: an array for each, which happens to be a view.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.execution.registers import elements
from asyncmon.graph.execution.state import uninitialized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from asyncmon.graph.execution.applying import Copy
    from asyncmon.graph.execution.plan import Update
    from asyncmon.graph.execution.state import StateStore

__all__ = ["LARGEST", "Pack", "packed"]

LARGEST = 1 << 17  # elements: what a larger variable costs is not the calls
_FULL = 1 << 18  # elements of a pack: all of it is copied where one of its variables is looked at


class Pack:
    """Updates of small variables that are done as one.

    Attributes:
        updates: which.
        joined: positions of the inputs that have the shape of the variables.
        homes: for each of these, the register with the array they lie in, and its parts.
        size: elements of such an array.
    """

    def __init__(self, updates: Sequence[Update], joined: Sequence[int], homes: Sequence[int]) -> None:
        self.updates = tuple(updates)
        self.joined = tuple(joined)
        self.homes = tuple(homes)
        self._slots = tuple(slot for update in updates for slot in update.slots)
        self._names = tuple(name for update in updates for name in update.names)
        self._refs = len(updates[0].slots)
        self._parts: list[tuple[slice, tuple[int, ...]]] = []
        start = 0
        for update in updates:
            size, shape = _shape_of(update)
            self._parts.append((slice(start, start + size), shape))
            start += size
        self.size = start

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the variables."""
        return self.updates[0].op.inputs[0].spec.dtype.as_numpy_dtype

    @property
    def nbytes(self) -> int:
        """How long such an array is."""
        return self.size * self.dtype.itemsize

    def views(self, flat: Any) -> list[Any]:
        """Return the part of each variable in such an array, in its shape."""
        return [flat[part].reshape(shape) for part, shape in self._parts]

    def arrays(self, store: StateStore, new: list[tuple[int, Any]]) -> tuple[list[Any], Sequence[Copy]]:
        """Return the common arrays of the variables and their slots, to be written to.

        Where the values do not lie in them, they are copied there; where somebody else looks at them,
        the arrays are other ones. The values to store instead are added to ``new``.

        Returns:
            The arrays, and those of them that are to be filled first, with what they are filled from.
        """
        flats, views = store.homes.get(self._slots) or ([], [])
        values = store.values
        at_home = bool(flats) and all(map(is_, map(values.__getitem__, self._slots), views))
        if at_home and not store.pinned:
            return flats, ()
        if not flats:
            flats = [np.empty(self.size, self.dtype) for _ in range(self._refs)]
            views = self._views_of(flats)
        elif store.pinned and any(map(store.is_pinned, self._slots, views)):
            old, flats = flats, [store.spares.like(flat) for flat in flats]
            views = self._views_of(flats)
            if at_home:
                store.homes[self._slots] = flats, views
                new.extend(zip(self._slots, views, strict=True))
                return flats, list(zip(flats, old, strict=True))
        for i, (slot, view) in enumerate(zip(self._slots, views, strict=True)):
            value = values[slot]
            if value is not view:
                if value is None:
                    raise uninitialized(self._names[i])
                view[...] = value
                new.append((slot, view))
        store.homes[self._slots] = flats, views
        return flats, ()

    def _views_of(self, flats: Sequence[Any]) -> list[Any]:
        return list(chain(*zip(*map(self.views, flats), strict=True)))

    def inputs(self, registers: list[Any]) -> list[Any]:
        """Return the other inputs of the update, those of the variables' shape joined."""
        inputs = [registers[i] for i in self.updates[0].inputs]
        for at, home in zip(self.joined, self.homes, strict=True):
            flat, views = registers[home] or self.home(np.empty(self.size, self.dtype))
            for update, view in zip(self.updates, views, strict=True):
                value = registers[update.inputs[at]]
                if value is not view:
                    if value.shape != view.shape:
                        update.check([view] * self._refs, registers)
                    view[...] = value
            inputs[at] = flat
        return inputs

    def home(self, flat: Any) -> tuple[Any, list[Any]]:
        """Return what to put into a register of ``homes``: such an array, and its parts."""
        return flat, self.views(flat)


def packed(
    updates: Sequence[Update], new_register: Callable[[], int]
) -> tuple[list[Pack], list[Update]]:
    """Find the updates that can be done as one, and those that are left."""
    alike: dict[Any, list[Update]] = defaultdict(list)
    left = []
    for update in updates:
        key = _key(update)
        if key is None:
            left.append(update)
        else:
            alike[key].append(update)
    packs = []
    for key, group in alike.items():
        joined = [i for i, register in enumerate(key[-1]) if register is None]
        for members in _filled(group):
            if len(members) > 1:
                packs.append(Pack(members, joined, [new_register() for _ in joined]))
            else:
                left += members
    return packs, left


def _filled(group: Sequence[Update]) -> Iterator[list[Update]]:
    """Yield parts of a group that are not too large for one pack, the largest variables first.

    So these begin where a cache line does.
    """
    members: list[Update] = []
    size = 0
    for update in sorted(group, key=lambda update: -_shape_of(update)[0]):
        added = _shape_of(update)[0]
        if size + added > _FULL:
            yield members
            members, size = [], 0
        members.append(update)
        size += added
    yield members


def _key(update: Update) -> Any:
    """Return what updates of one pack have in common; None for one that is done by itself."""
    op = update.op
    shape = op.inputs[0].spec.shape
    size = elements(op.inputs[0])
    if not update.blockwise or update.copied:
        return None
    if not shape or size is None or size > LARGEST:
        return None
    others = op.inputs[op.op_def.refs :]
    common = tuple(
        None if tensor.spec.shape == shape else register
        for tensor, register in zip(others, update.inputs, strict=True)
    )
    scalars = [x for x, register in zip(others, common, strict=True) if register is not None]
    joined = [x for x in op.inputs if x not in scalars]
    if any(x.spec.shape != () for x in scalars) or any(x.spec.shape != shape for x in joined):
        return None
    if len({x.spec.dtype for x in joined}) > 1:
        return None
    return op.type, op.inputs[0].spec.dtype, _frozen(op.attrs), common


def _frozen(attrs: Mapping[str, Any]) -> Any:
    return tuple(sorted((name, repr(value)) for name, value in attrs.items()))


def _shape_of(update: Update) -> tuple[int, tuple[int, ...]]:
    tensor = update.op.inputs[0]
    shape = tensor.spec.shape
    assert shape is not None
    return elements(tensor) or 0, tuple(d or 0 for d in shape)
