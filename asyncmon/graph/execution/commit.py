"""The end of a run: what it computed becomes the state, all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.errors import InternalError
from asyncmon.graph.execution.randomness import advanced
from asyncmon.graph.execution.update import write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncmon.graph.execution.plan import Plan
    from asyncmon.graph.execution.run_state import Run
    from asyncmon.graph.execution.state import Block, Slots, StateStore
    from asyncmon.graph.execution.update import UpdateGroup


def commit(plan: Plan, store: StateStore, registers: list[Any], run: Run | None = None) -> None:
    """Store what a run computed. The caller has turned floating point warnings off.

    Whatever can fail comes before the first write to an array of the present version: an error leaves
    the state as it was. Where the state is read often beside steps, elementwise updates are written to
    other memory, and no reader waits for them. What updates single rows is written in place.
    """
    values = store.values
    new: list[tuple[int, Any]] = []
    for swap in plan.swaps:
        value = registers[swap.register]
        if value is not values[swap.slot]:
            new.append((swap.slot, swap.value(value)))
    if plan.random:
        new.append((0, advanced(values[0])))
    replaced: list[tuple[Slots, Block]] = []
    groups: Sequence[UpdateGroup] = plan.groups
    if groups and store.read_often:
        elsewhere = [group for group in groups if group.blockwise]
        groups = [group for group in groups if not group.blockwise]
        write(
            [group.prepare(store, registers, new, replaced, elsewhere=True) for group in elsewhere], run
        )
    if groups:
        store.begin_apply()
    try:
        writes = [group.prepare(store, registers, new, replaced) for group in groups]
    except BaseException:
        store.publish()
        raise
    try:
        write(writes, run)
        store.publish(new, replaced)
    except BaseException as error:
        store.broken = InternalError(
            f"A commit failed while it was being applied: {error!r}. "
            "The state of this session is no longer consistent; restore it into a new one."
        )
        store.publish()
        if not isinstance(error, Exception):  # Ctrl-C, which must not be hidden
            raise
        raise store.broken from error
