"""Walks over the nodes of a graph, against and along the direction in which values flow."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from asyncmon.graph.core.node import Operation, Tensor

    Before = Callable[[Operation], Iterable[Operation]]


def predecessors(op: Operation, fed: Collection[Tensor] = ()) -> list[Operation]:
    """Return the nodes that a node runs after: its inputs, without variables, and control inputs.

    Args:
        op: the node.
        fed: tensors that no node has to compute.
    """
    refs = op.op_def.refs
    inputs = op.inputs[refs:] if refs else op.inputs
    before = [tensor.op for tensor in inputs if tensor not in fed]
    before += op.control_inputs
    return before


def ancestors(ops: Iterable[Operation], before: Before = predecessors) -> list[Operation]:
    """Return nodes and all that they run after, each after its predecessors.

    Args:
        ops: nodes of one graph.
        before: returns the predecessors that count.
    """
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
    """Return those of some nodes that are among ``starts`` or run after one of them.

    Args:
        ops: nodes, each after its predecessors.
        starts: see above.
        before: returns the predecessors that count.
    """
    found: set[Operation] = set()
    for op in ops:
        if op in starts or not found.isdisjoint(before(op)):
            found.add(op)
    return found
