"""The apply phase: what a run computed becomes the state, all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.errors import InternalError
from asyncmon.graph.execution.applying import Call, Copy, apply_all
from asyncmon.graph.execution.randomness import advanced
from asyncmon.graph.execution.state import uninitialized

if TYPE_CHECKING:
    from asyncmon.graph.execution.packs import Pack
    from asyncmon.graph.execution.plan import Plan, Update
    from asyncmon.graph.execution.run_state import Run
    from asyncmon.graph.execution.state import StateStore

__all__ = ["commit"]


def commit(plan: Plan, store: StateStore, registers: list[Any], run: Run | None = None) -> None:
    """Store what a run computed.

    First everything that can fail: copies are made, shapes checked; an error leaves the state as it
    was. Then the writes.
    """
    values = store.values
    new: list[tuple[int, Any]] = []
    for swap in plan.swaps:
        value = registers[swap.register]
        if value is not values[swap.slot]:
            new.append((swap.slot, swap.value(value)))
    if plan.random:
        new.append((0, advanced(values[0])))
    calls: list[Call] = []
    if plan.updates:
        calls += [_joined(pack, store, registers, new) for pack in plan.packs]
        calls += [_prepared(update, store, registers, new) for update in plan.singles]
    try:
        for slot, value in new:
            values[slot] = value
        if calls:
            apply_all(calls, run)
    except BaseException as error:
        store.broken = InternalError(
            f"A commit failed while it was being applied: {error!r}. "
            "The state of this session is no longer consistent; restore it into a new one."
        )
        if not isinstance(error, Exception):  # Ctrl-C, which must not be hidden
            raise
        raise store.broken from error


def _joined(pack: Pack, store: StateStore, registers: list[Any], new: list[tuple[int, Any]]) -> Call:
    arrays, copies = pack.arrays(store, new)
    return Call(pack.updates, arrays, pack.inputs(registers), copies)


def _prepared(
    update: Update, store: StateStore, registers: list[Any], new: list[tuple[int, Any]]
) -> Call:
    """Return an update with its arrays, others where somebody else looks at those of the state."""
    arrays: list[Any] = []
    copies: list[Copy] = []
    for slot, name in zip(update.slots, update.names, strict=True):
        array = store.values[slot]
        if array is None:
            raise uninitialized(name)
        if not isinstance(array, np.ndarray):
            array = np.array(array)
            new.append((slot, array))
        elif store.pinned and store.is_pinned(slot, array):
            old, array = array, store.spares.like(array)
            new.append((slot, array))
            copies.append((array, old))
        arrays.append(array)
    update.check(arrays, registers)
    inputs = [registers[i] for i in update.inputs]
    for at, i in enumerate(update.inputs) if update.copied else ():
        if i in update.copied:
            inputs[at] = np.array(inputs[at])
    if update.blockwise:
        shape = arrays[0].shape
        if not shape:  # of 0-d arrays ufuncs make scalars, which cannot be written into
            shape, inputs = (1,), [np.reshape(x, 1) for x in inputs]
        inputs = [
            np.ascontiguousarray(x).reshape(-1) if x.__class__ is np.ndarray and x.shape == shape else x
            for x in inputs
        ]
        arrays = [array.reshape(-1) for array in arrays]
        copies = [(new.reshape(-1), old.reshape(-1)) for new, old in copies]
    return Call((update,), arrays, inputs, copies)
