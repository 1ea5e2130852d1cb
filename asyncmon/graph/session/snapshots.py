"""Snapshots of a session: which variables they hold, and when they are taken."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.op import Spec
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.execution.state import RANDOM_STATE
from asyncmon.graph.variables.global_step import get_global_step
from asyncmon.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from asyncmon.graph.core.graph import Graph
    from asyncmon.graph.execution.state import Pin, StateStore

__all__ = ["order_snapshot", "saved_spec"]

T = TypeVar("T")


def order_snapshot(store: StateStore, graph: Graph) -> Awaitable[Snapshot]:
    """Take a snapshot now, or right after the commit that is being applied in a worker thread."""
    pin = store.pin_nowait()
    if pin is not None:
        return _Ready(_snapshot(store, graph, pin))
    loop = asyncio.get_running_loop()
    ordered: asyncio.Future[Snapshot] = loop.create_future()

    def deliver(pin: Pin) -> None:
        if ordered.cancelled():
            store.unpin(pin)
        else:
            ordered.set_result(_snapshot(store, graph, pin))

    def receive(pin: Pin) -> None:
        loop.call_soon_threadsafe(deliver, pin)

    store.pin_soon(receive)
    return ordered


def saved_spec(graph: Graph) -> dict[str, Spec]:
    """Return dtype and shape of all that a snapshot holds once everything is initialised, by name."""
    spec: dict[str, Spec] = {}
    for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
        attrs = variable.op.attrs
        spec[variable.op.name] = Spec(attrs["dtype"], TensorShape(attrs["shape"]).dims)
    if graph.random_ops:
        spec[RANDOM_STATE] = Spec(dtypes.uint64, (2,))
    return spec


def _snapshot(store: StateStore, graph: Graph, pin: Pin) -> Snapshot:
    names = [variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)]
    if graph.random_ops:
        names.append(RANDOM_STATE)
    values = {name: value for name in names if (value := _value(store, pin, name)) is not None}
    counter = get_global_step(graph)
    step = None if counter is None else _value(store, pin, counter.op.name)
    return Snapshot(values, None if step is None else int(step), partial(store.unpin, pin))


def _value(store: StateStore, pin: Pin, name: str) -> Any:
    slot = store.slot(name)
    return pin.values[slot] if slot < len(pin.values) else None


class _Ready(Generic[T]):
    """An awaitable that has its result already."""

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._result
