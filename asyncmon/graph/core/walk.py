"""Walks over the nodes of a graph, against and along the direction in which values flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from asyncmon.graph.core.node import Operation, Tensor

Before = Callable[[Operation], Iterable[Operation]]


def predecessors(op: Operation, fed: Collection[Tensor] = ()) -> list[Operation]:
    """Return what a node runs after: its inputs, without variables and fed ones, and control inputs."""
    refs = op.op_def.refs
    inputs = op.inputs[refs:] if refs else op.inputs
    before = [tensor.op for tensor in inputs if tensor not in fed]
    before += op.control
    return before


def ancestors(ops: Iterable[Operation], before: Before = predecessors) -> list[Operation]:
    """Return nodes of one graph and all that they run after, each after its predecessors."""
    seen: set[Operation] = set()
    stack = list(ops)
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack += before(op)
    return sorted(seen, key=attrgetter("id"))  # a node is built after its predecessors


def descendants(
    ops: Iterable[Operation], starts: Collection[Operation], before: Before = predecessors
) -> set[Operation]:
    """Return those of ``ops``, in the order of a run, that are in ``starts`` or run after one."""
    found: set[Operation] = set()
    for op in ops:
        if op in starts or not found.isdisjoint(before(op)):
            found.add(op)
    return found
