"""What the plan around a subgraph knows of what goes in: constants, variables, what is fed instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence, Set

    from asyncmon.graph.control.subgraph import SubGraph
    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.execution.registers import Registers

__all__ = ["Surroundings", "overruled", "split"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a subgraph's plan is told by the plan around it, to which it hands what it writes.

    Attributes:
        variables: the inputs that are read from the state, with their names.
        constants: the inputs whose value never changes.
        overruled: whether the static value of something that the others come from is not its value.
    """

    variables: Mapping[Tensor, str]
    constants: Mapping[Tensor, Any]
    overruled: bool

    @classmethod
    def of(
        cls,
        branch: SubGraph,
        taken: Sequence[Tensor],
        registers: Registers,
        fed: Collection[Tensor],
        overruled: bool,
    ) -> Surroundings:
        """Return what is known of a branch that takes in these tensors, some of which may be fed."""
        variables, constants = {}, {}
        inside = branch.parameters[len(branch.parameters) - len(taken) :]
        for parameter, tensor in zip(inside, taken, strict=True):
            if parameter in branch.variables:
                if tensor not in fed:
                    variables[parameter] = branch.variables[parameter]
            elif registers.of[tensor] in registers.constants:
                constants[parameter] = registers.constants[registers.of[tensor]]
        return cls(variables, constants, overruled)


def split(op: Operation, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Split a list that is parallel to an op's inputs: its own ones, then what each branch takes in."""
    counts = [len(branch.captured) for branch in op.attrs["branches"]]
    at = len(items) - sum(counts)
    parts = [items[:at]]
    for count in counts:
        parts.append(items[at : at + count])
        at += count
    return parts


def overruled(
    ops: Collection[Operation], given: Collection[Tensor], around: Surroundings | None
) -> Set[Operation]:
    """Return the ops of whose results less is known than their specs say.

    A spec takes constants, and sizes of known shapes, for what they are; one may be fed another value.
    Shapes come from integers, and from the ends of a range.
    """
    if around is None:
        other = {x for x in given if x.spec.value is not None or x.spec.dims is not None}
        if other and not any(op.type == "Range" for op in ops):
            other = {x for x in other if x.dtype.is_integer}
    else:
        other = set(given) - around.constants.keys() if around.overruled else set()
    found: set[Operation] = set()
    if other:
        for op in ops:
            if any(x in other or x.op in found for x in op.inputs):
                found.add(op)
    return found
