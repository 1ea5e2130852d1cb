"""What the plan around a subgraph knows of the tensors that it takes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.spec import Spec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.execution.specialise import Facts
    from asyncmon.graph.execution.values import Values


@dataclass(frozen=True, slots=True)
class OuterFacts:
    """What is known of a subgraph's parameters.

    Attributes:
        variables: those that are read from the state, with their names.
        constants: those whose value never changes.
        weaker: those of which less is known than the subgraph says.
    """

    variables: Mapping[Tensor, str]
    constants: Mapping[Tensor, Any]
    weaker: Mapping[Tensor, Spec]

    @classmethod
    def none(cls, fed: Collection[Tensor]) -> OuterFacts:
        """Return what is known of fed tensors where there is no plan around."""
        valued = [x for x in fed if x.spec.value is not None or x.spec.dims]
        return cls({}, {}, {x: Spec(x.dtype, x.spec.shape) for x in valued})

    @classmethod
    def of(
        cls,
        op: Operation,
        branch: Any,
        taken: Sequence[Tensor],
        values: Values,
        facts: Facts,
        weak: Collection[Tensor],
        fed: Collection[Tensor],
    ) -> OuterFacts:
        """Return what is known of a branch of a node.

        Args:
            op: the node.
            branch: one of its subgraphs.
            taken: the outer tensors that the branch takes in.
            values: of the outer plan.
            facts: of the outer plan.
            weak: the outer tensors of which less is known than the graph says.
            fed: to the outer plan.
        """
        variables, constants, weaker = {}, {}, {}
        own = len(branch.parameters) - len(taken)
        for parameter in branch.parameters[:own]:
            if any(x in weak for x in op.inputs):
                weaker[parameter] = Spec(parameter.dtype, None)
            elif parameter in branch.asserted:
                weaker[parameter] = Spec(parameter.dtype, parameter.op.attrs["shape"])
        for parameter, tensor in zip(branch.parameters[own:], taken, strict=True):
            if tensor in weak:
                weaker[parameter] = facts[tensor]
            elif parameter in branch.asserted:
                weaker[parameter] = tensor.spec
            if parameter in branch.variables:
                if tensor not in fed:
                    variables[parameter] = branch.variables[parameter]
            elif values.of[tensor] in values.constants:
                constants[parameter] = values.constants[values.of[tensor]]
        return cls(variables, constants, weaker)


def split_inputs(op: Operation, items: Sequence[Any]) -> list[Sequence[Any]]:
    """Split a list that is parallel to an op's inputs: its own ones, then what each branch takes in."""
    counts = [len(branch.captured) for branch in op.attrs["branches"]]
    at = len(items) - sum(counts)
    parts = [items[:at]]
    for count in counts:
        parts.append(items[at : at + count])
        at += count
    return parts
