"""The commit of a run: all of its writes become the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncmon.errors import InternalError
from asyncmon.graph.execution.randomness import advanced
from asyncmon.graph.execution.records import Swap
from asyncmon.graph.execution.run import Run
from asyncmon.graph.execution.state import FlatArray, Slots, StateStore
from asyncmon.graph.execution.update import UpdateGroup, write


class LateReads:
    """Copies of variables written in place, for results. Allocations, which may fail, come first.

    Args:
        late: positions of results, and slots.
        store: the variables.
    """

    def __init__(self, late: Sequence[tuple[int, int]], store: StateStore) -> None:
        self._values = store.values
        self._arrays = [(i, slot, np.empty_like(store.values[slot])) for i, slot in late]

    def fill(self, results: list[Any]) -> None:
        """Copy the current version into the results."""
        for i, slot, array in self._arrays:
            np.copyto(array, self._values[slot])
            results[i] = array if array.ndim else array[()]


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
