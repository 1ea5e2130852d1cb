"""Many small updates done as one: the variables of a pack lie side by side in one array.

A call of numpy costs about as much as a thousand elements, and an optimizer makes a dozen for each
variable. So variables that are updated by the same op with the same scalars get their values moved into
common arrays, one for each of their refs (the variable and its slots), and their gradients into
another. To everybody else they remain what they were: an array for each, which happens to be a view.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.registers import elements
from asyncmon.graph.state import uninitialized

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from asyncmon.graph.plan import Update
    from asyncmon.graph.state import StateStore

__all__ = ["Pack", "packed"]

_LARGEST = 1 << 14  # elements: what a larger variable costs is not the calls


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

    def arrays(self, store: StateStore, new: list[tuple[int, Any]]) -> list[Any]:
        """Return the common arrays of the variables and their slots, to be written to.

        Where the values do not lie in them, or somebody else looks at them, new ones are made and the
        values to store instead are added to ``new``.
        """
        home = store.homes.get(self._slots)
        values = store.values
        if home is not None:
            flats, views = home
            for slot, view in zip(self._slots, views, strict=True):
                if values[slot] is not view:
                    break
            else:
                if not store.pinned or not any(map(store.is_pinned, self._slots, views)):
                    return flats
        for slot, name in zip(self._slots, self._names, strict=True):
            if values[slot] is None:
                raise uninitialized(name)
        flats = [np.empty(self.size, self.dtype) for _ in range(self._refs)]
        views = list(chain(*zip(*map(self.views, flats), strict=True)))
        for slot, view in zip(self._slots, views, strict=True):
            view[...] = values[slot]
        store.homes[self._slots] = flats, views
        new.extend(zip(self._slots, views, strict=True))
        return flats

    def inputs(self, registers: list[Any]) -> list[Any]:
        """Return the other inputs of the update, those of the variables' shape joined."""
        inputs = [registers[i] for i in self.updates[0].inputs]
        for at, home in zip(self.joined, self.homes, strict=True):
            flat, views = registers[home] or self.home(np.empty(self.size, self.dtype))
            for update, view in zip(self.updates, views, strict=True):
                value = registers[update.inputs[at]]
                if value is not view:
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
        if len(group) > 1:
            joined = [i for i, register in enumerate(key[-1]) if register is None]
            packs.append(Pack(group, joined, [new_register() for _ in joined]))
        else:
            left += group
    return packs, left


def _key(update: Update) -> Any:
    """Return what updates of one pack have in common; None for one that is done by itself."""
    op = update.op
    shape = op.inputs[0].spec.shape
    size = elements(op.inputs[0])
    if not update.blockwise or update.copied or not shape or size is None or size > _LARGEST:
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
