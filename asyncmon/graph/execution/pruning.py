"""Which operations fetches need: the others are no part of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncmon.graph.core.node import Operation, Tensor

__all__ = ["needed_ops"]


def needed_ops(targets: Sequence[Tensor | Operation], fed: Collection[Tensor]) -> list[Operation]:
    """Return the operations that targets need, in the order in which they were built."""
    stack = [target.op for target in targets if target not in fed]
    seen: set[Operation] = set()
    while stack:
        op = stack.pop()
        if op in seen:
            continue
        seen.add(op)
        refs = op.op_def.refs
        inputs = op.inputs[refs:] if refs else op.inputs
        stack.extend([tensor.op for tensor in inputs if tensor not in fed])
        stack.extend(op.control_inputs)
    return sorted(seen, key=_op_id)


def _op_id(op: Operation) -> int:
    return op.id
