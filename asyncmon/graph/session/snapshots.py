"""Snapshots of a session: which variables they hold, and when they are taken."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.op import Spec
from asyncmon.graph.core.shape import as_shape
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.state import RANDOM_STATE, Pin, StateStore
from asyncmon.graph.variables.global_step import step_counter
from asyncmon.system.snapshot import Snapshot


def order_snapshot(store: StateStore, graph: Graph) -> Awaitable[Snapshot]:
    """Take a snapshot now, or right after the commit that is being applied in place."""
    return store.pinned(partial(_snapshot, store, graph))


def order_reads(store: StateStore, plan: Plan, least: int) -> Awaitable[Snapshot] | None:
    """Order what a plan fetches by position, not copied, where that is nothing but variables.

    None for another plan, and for values of fewer than ``least`` bytes.
    """
    if plan.code or plan.waits or plan.changes:
        return None
    slots = {read.register: read.slot for read in plan.reads}
    fetched = [None if fetch is None else slots.get(fetch.register) for fetch in plan.fetches]
    if None in fetched:
        return None
    values = [store.values[slot] for slot in slots.values()]
    if any(value is None for value in values) or sum(value.nbytes for value in values) < least:
        return None

    def taken(pin: Pin) -> Snapshot:
        found = {str(i): pin.values[slot] for i, slot in enumerate(fetched) if slot is not None}
        return Snapshot(found, None, partial(store.unpin, pin))

    return store.pinned(taken, slots.values())


def saved_spec(graph: Graph) -> dict[str, Spec]:
    """Return dtype and shape of all that a snapshot holds once everything is initialised, by name."""
    spec: dict[str, Spec] = {}
    for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
        attrs = variable.op.attrs
        spec[variable.op.name] = Spec(attrs["dtype"], as_shape(attrs["shape"]))
    if graph.random_ops:
        spec[RANDOM_STATE] = Spec(dtypes.uint64, (None,))
    return spec


def _snapshot(store: StateStore, graph: Graph, pin: Pin) -> Snapshot:
    names = [variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)]
    if graph.random_ops:
        names.append(RANDOM_STATE)
    values = {name: value for name in names if (value := pin.values.get(store.slot(name))) is not None}
    counter = step_counter(graph)
    step = None if counter is None else pin.values.get(store.slot(counter.op.name))
    return Snapshot(values, None if step is None else step.item(), partial(store.unpin, pin))
