"""Where new nodes go: graph, name scope, control dependencies, devices; one context variable."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from asyncmon.graph.core.node import NodeGraph, Operation


class BuildContext(NamedTuple):
    """What applies to the next node. Changed by entering another one, never in place."""

    graph: NodeGraph
    scope: str = ""
    control: tuple[Operation, ...] = ()
    devices: tuple[Any, ...] = ()
    variable_scope: Any = None

    def but(self, **changes: Any) -> BuildContext:
        """Return this context with some fields changed."""
        return self._replace(**changes)


building: ContextVar[BuildContext | None] = ContextVar("asyncmon_building", default=None)


@contextmanager
def entered(context: BuildContext) -> Iterator[BuildContext]:
    """Make a context the current one inside ``with``."""
    before = building.get()
    building.set(context)
    try:
        yield context
    finally:
        building.set(before)  # not reset(token): an async generator may leave in another context
