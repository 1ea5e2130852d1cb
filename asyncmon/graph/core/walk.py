"""Walks over the nodes of a graph, upstream and downstream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from asyncmon.graph.core.node import Operation, Tensor

Before = Callable[[Operation], Iterable[Operation]]


def predecessors(op: Operation, fed: Collection[Tensor] = ()) -> list[Operation]:
    """Return the nodes of the inputs, except variables and fed tensors, and the control inputs."""
    refs = op.op_def.refs
    inputs = op.inputs[refs:] if refs else op.inputs
    before = [tensor.op for tensor in inputs if tensor not in fed]
    before += op.control
    return before


def ancestors(ops: Iterable[Operation], before: Before = predecessors) -> list[Operation]:
    """Return nodes of one graph and all their ancestors in topological order."""
    seen: set[Operation] = set()
    stack = list(ops)
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack += before(op)
    return sorted(seen, key=attrgetter("id"))  # a node is created after its predecessors


def descendants(
    ops: Iterable[Operation], starts: Collection[Operation], before: Before = predecessors
) -> set[Operation]:
    """Return the members of ``ops``, in topological order, that are or depend on one of ``starts``."""
    found: set[Operation] = set()
    for op in ops:
        if op in starts or not found.isdisjoint(before(op)):
            found.add(op)
    return found
