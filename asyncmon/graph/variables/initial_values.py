"""Initial values that depend on other variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.core.build import create_op

if TYPE_CHECKING:
    from asyncmon.graph.core.node import Operation, Tensor

__all__ = ["guarded_initial_value"]

_READS = frozenset({"VariableV2", "ReadVariable"})


def guarded_initial_value(initial: Tensor) -> Tensor:
    """Return an initial value whose reads of variables fall back to those variables' initial values.

    So one run can initialise variables that depend on each other, whatever their order. The nodes
    between those reads and the value are built a second time; without such reads the value comes back
    as it is.
    """
    between = _ops_after_reads(initial.op)
    if not between:
        return initial
    copies: dict[Tensor, Tensor] = {}
    for op in between:
        if op.type in _READS:
            ref = op.inputs[0] if op.inputs else op.outputs[0]
            copies[op.outputs[0]] = _initialized(ref)
            continue
        copy = op.graph.add_op(
            op.type,
            [copies.get(tensor, tensor) for tensor in op.inputs],
            op.attrs if op.rng_key is None else {**op.attrs, "seed": op.rng_key[1]},
            f"{op.name.rpartition('/')[2]}_guarded",
        )
        copy.rng_key = op.rng_key
        copies.update(zip(op.outputs, copy.outputs, strict=True))
    return copies[initial]


def _initialized(ref: Tensor) -> Tensor:
    initializer = ref.graph.get_operation_by_name(f"{ref.op.name}/Assign")
    return create_op("InitializedValue", (ref, initializer.inputs[1]))


def _ops_after_reads(last: Operation) -> list[Operation]:
    """Return the ancestors of an op, itself included, that depend on a read, oldest first."""
    seen: dict[Operation, None] = {}
    stack = [last]
    while stack:
        op = stack.pop()
        if op not in seen:
            seen[op] = None
            stack.extend(tensor.op for tensor in op.inputs if op.type not in _READS)
    found: dict[Operation, None] = {}
    for op in sorted(seen, key=lambda op: op.id):
        if op.type in _READS or (
            not op.op_def.refs and any(tensor.op in found for tensor in op.inputs)
        ):
            found[op] = None
    return list(found) if last in found else []
