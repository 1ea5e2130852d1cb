"""Graphs inside a graph: the branches of ``cond``, the test and body of ``while_loop``.

A subgraph has parameters, which its op feeds, and targets, which are the op's outputs. A tensor of the
outer graph that is used inside becomes a parameter by itself, and so an input of the op, so that
gradients flow through it; a variable is read anew each time the subgraph runs. An outer operation that
something inside is to come after is done before the op, once, whether that part runs or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation
from asyncmon.graph.core.op import ControlOpDef
from asyncmon.graph.execution.analysis import needed_ops
from asyncmon.graph.execution.program import execute, watched
from asyncmon.graph.ops.basic import identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from asyncmon.graph.core.node import Tensor
    from asyncmon.graph.execution.plan import Plan
    from asyncmon.graph.execution.run import Run


class SubGraph(Graph):
    """The inside of a control flow op.

    Attributes:
        parameters: its inputs, the explicit ones first.
        variables: those of ``parameters`` that are variables, with their names.
        targets: its outputs.
        captured: the outer tensors among its inputs, the last ones, in the order of their parameters.
        outer_control: operations of ``outer`` that its op is ordered after.
    """

    outer: Graph

    def __init__(self, outer: Graph) -> None:
        super().__init__()
        self.outer = outer
        self._collections = outer._collections
        self.extras = outer.extras
        self.parameters: list[Tensor] = []
        self.variables: dict[Tensor, str] = {}
        self.targets: list[Tensor] = []
        self.captured: list[Tensor] = []
        self.outer_control: dict[Operation, None] = {}
        self._inside: dict[Tensor, Tensor] = {}
        self.stand_ins: dict[Tensor, Tensor] = {}
        self._refs: dict[str, Tensor] = {}

    def add_op(self, *args: Any, **kwargs: Any) -> Operation:
        """Add a node, unless the outermost graph is finalized. A variable read becomes an input."""
        self.root._check_not_finalized()
        op = super().add_op(*args, **kwargs)
        if op.type == "ReadVariable":  # not only the state it is part of: gradients may be asked for
            self.take_in(self._variable(op.inputs[0]))
        return op

    def parameter(self, like: Tensor, shape: Any = ...) -> Tensor:
        """Add an input of this dtype and shape."""
        dims = like.spec.shape if shape is ... else shape
        op = self.add_op("Placeholder", (), {"dtype": like.dtype, "shape": dims}, _inner_name(like))
        self.parameters.append(op.outputs[0])
        return op.outputs[0]

    def take_in(self, tensor: Tensor) -> Tensor:
        """Return the input that stands here for a tensor of an outer graph."""
        found = self._inside.get(tensor)
        if found is not None:
            return found
        if tensor.graph is not self.outer:
            self._inside[tensor] = found = self.take_in(self.outer.take_in(tensor))
            return found
        self._inside[tensor] = found = self.parameter(tensor)
        if tensor.spec.value is not None:
            found.spec = tensor.spec  # which shapes inside may depend on; the plan is told the value
        self.captured.append(tensor)
        self.stand_ins[found] = tensor
        name = tensor.op.attrs.get("variable") if tensor.op.type == "VariableV2" else None
        if isinstance(self.outer, SubGraph):
            name = name or self.outer.variables.get(tensor)
        if name is not None:
            self.variables[found] = name
        return found

    def take_in_ref(self, tensor: Tensor) -> Tensor:
        """Return a node that stands here for a variable itself."""
        name = tensor.op.attrs["variable"]
        if name not in self._refs:
            op = self.add_op("VariableV2", (), tensor.op.attrs, _inner_name(tensor))
            self._refs[name] = op.outputs[0]
            self.stand_ins[op.outputs[0]] = self._variable(op.outputs[0])
        return self._refs[name]

    def _variable(self, ref: Tensor) -> Tensor:
        """Return the variable, of the outermost graph, that a ref stands for."""
        return self.root.get_operation_by_name(ref.op.attrs["variable"]).outputs[0]

    def _ordered_after(self, item: Any) -> Operation | None:
        op = getattr(getattr(item, "_as_graph_element", lambda: item)(), "op", None)
        inner: Graph = self
        while isinstance(inner, SubGraph):
            if isinstance(op, Operation) and op.graph is inner.outer:
                inner.outer_control[op] = None
                return None
            inner = inner.outer
        return super()._ordered_after(item)


def _inner_name(tensor: Tensor) -> str:
    return tensor.op.name.rpartition("/")[2]


def around(*branches: SubGraph) -> tuple[list[Tensor], AbstractContextManager[None]]:
    """Return what subgraphs take in, and what puts their op after what they are ordered after."""
    taken = [tensor for branch in branches for tensor in branch.captured]
    return taken, control_dependencies([op for branch in branches for op in branch.outer_control])


def awaits(graphs: Iterable[SubGraph]) -> bool:
    """Return true when something inside has to be awaited."""
    return any(op.op_def.awaits for graph in graphs for op in graph.get_operations())


def replay(branch: SubGraph, given: Mapping[Tensor, Tensor], graph: Graph) -> list[Tensor]:
    """Build the nodes of a branch a second time, in another graph, and return what its targets became.

    Args:
        branch: what to repeat.
        given: what stands for its parameters.
        graph: where to build; a branch that is being built.

    Raises:
        ValueError: it does something that must not be done twice.
    """
    made = dict(given)
    for op in needed_ops(branch.targets, branch.parameters):
        if _happens_once(op):
            raise ValueError(
                f"Operation {op.name!r} ({op.type}) in a branch or loop cannot be run a second time, "
                "which its gradient would do. Move it out of the part that is differentiated."
            )
        if op.type == "ReadVariable":  # nothing here writes it, so it is what the parameter reads
            read = made[branch.take_in(branch._variable(op.inputs[0]))]
            made[op.outputs[0]] = identity(read)  # for each input its own gradient
            continue
        refs = op.op_def.refs
        inputs = [graph.take_in_ref(branch._variable(x)) for x in op.inputs[:refs]]
        inputs += [made[x] for x in op.inputs[refs:]]
        copy = graph.add_op(op.type, inputs, op.attrs, op.name.rpartition("/")[2])
        copy.rng_key = op.rng_key
        made.update(zip(op.outputs, copy.outputs, strict=True))
    return [made[target] for target in branch.targets]


def _happens_once(op: Operation) -> bool:
    """Return whether an op, or one of its branches, does more than compute."""
    op_def = op.op_def
    if isinstance(op_def, ControlOpDef) and any(
        _happens_once(inner)
        for graph in op.attrs["branches"]
        for inner in needed_ops(graph.targets, graph.parameters)
    ):
        return True
    return op_def.awaits or op_def.changes or op_def.foreign


def holds(condition: Any) -> bool:
    """Return whether what a cond or a loop looks at is true; refuse what is no scalar."""
    if getattr(condition, "ndim", 0):
        raise InvalidArgumentError(f"A condition must be a scalar, but it has shape {condition.shape}")
    return bool(condition)


async def run_subplan(
    op: Operation, plan: Plan, run: Run, fed: Sequence[Any], state: dict[int, Any], iteration: int
) -> tuple[list[Any], Any]:
    """Execute the plan of a subgraph on a state.

    Args:
        op: the op whose subgraph it is. If it is no awaited one, this never waits.
        plan: the plan.
        run: that it is part of.
        fed: values of its parameters.
        state: values of the variables that the op accesses, by slot.
        iteration: of the loop around.

    Returns:
        The targets of the subgraph, and the state after it.
    """
    code = plan.for_shapes(fed).code
    registers = plan.start(fed)
    plan.load(registers, state)
    if plan.iteration is not None:
        registers[plan.iteration] = iteration
    if not op.op_def.awaits:
        execute(watched(code, registers, run), registers, run)
    else:
        for stage in (plan.inputs, plan.stage):
            if stage is not None:
                await stage.run(run, registers)
        if code:
            await run.compute(plan.cost, code, registers, run)
    results = [registers[fetch.register] for fetch in plan.fetches if fetch is not None]
    if not plan.versions:
        return results, state
    return results, state | {slot: registers[i] for slot, i in plan.versions.items()}
