"""Graphs inside a graph: the branches of ``cond``, the test and body of ``while_loop``.

A subgraph has parameters, which its op feeds, and targets, which are the op's outputs. A tensor of the
outer graph that is used inside becomes a parameter by itself, and so an input of the op, so that
gradients flow through it; a variable is read anew each time the subgraph runs. An outer operation that
something inside is to come after is done before the op, once, whether that part runs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from asyncmon.graph.core import nest
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_ops,
    get_default_graph,
)
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.graph import BuildContext, Graph, building, entered
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef
from asyncmon.graph.core.shape import Shape
from asyncmon.graph.execution.analysis import needed_ops
from asyncmon.graph.execution.plan import Plan, Program
from asyncmon.graph.execution.program import execute
from asyncmon.graph.execution.run import Run
from asyncmon.graph.ops.basic import constant, identity


class SubGraph(Graph):
    """The inside of a control flow op.

    Attributes:
        parameters: its inputs, the explicit ones first.
        variables: those of ``parameters`` that are variables, with their names.
        targets: its outputs.
        captured: the outer tensors among its inputs, the last ones, in the order of their parameters.
        outer_control: operations of ``outer`` that its op is ordered after.
        refs: what stands for variables themselves, by name.
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
        self.captures: dict[Tensor, Tensor] = {}
        self.refs: dict[str, Tensor] = {}

    def add_op(self, *args: Any, **kwargs: Any) -> Operation:
        """Add a node, unless the outermost graph is finalized. A variable read becomes an input."""
        self.root._check_not_finalized()
        op = super().add_op(*args, **kwargs)
        if op.type == "ReadVariable":  # not only the state it is part of: gradients may be asked for
            self.capture(self.variable(op.inputs[0]))
        return op

    def parameter(self, like: Tensor, shape: Shape) -> Tensor:
        """Add an input of this dtype and shape."""
        op = self.add_op("Placeholder", (), {"dtype": like.dtype, "shape": shape}, _inner_name(like))
        self.parameters.append(op.outputs[0])
        return op.outputs[0]

    def capture(self, tensor: Tensor) -> Tensor:
        """Return the input that stands here for a tensor of an outer graph."""
        found = self._inside.get(tensor)
        if found is not None:
            return found
        if tensor.graph is not self.outer:
            self._inside[tensor] = found = self.capture(self.outer.capture(tensor))
            return found
        self._inside[tensor] = found = self.parameter(tensor, tensor.spec.shape)
        if tensor.spec.value is not None:
            found.spec = tensor.spec  # which shapes inside may depend on; the plan is told the value
        self.captured.append(tensor)
        self.captures[found] = tensor
        name = tensor.op.attrs.get("variable") if tensor.op.type == "VariableV2" else None
        if isinstance(self.outer, SubGraph):
            name = name or self.outer.variables.get(tensor)
        if name is not None:
            self.variables[found] = name
        return found

    def capture_ref(self, tensor: Tensor) -> Tensor:
        """Return a node that stands here for a variable itself."""
        name = tensor.op.attrs["variable"]
        if name not in self.refs:
            with entered(self._context()._replace(devices=())):
                op = self.add_op("VariableV2", (), tensor.op.attrs, _inner_name(tensor))
            op.device = tensor.op.device
            self.refs[name] = op.outputs[0]
            self.captures[op.outputs[0]] = self.variable(op.outputs[0])
        return self.refs[name]

    def move(self, outer: Graph, captured: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Become the inside of an op of another graph: parameters, with what they are given."""
        self.outer = outer
        self.outer_control.clear()
        self._inside = {tensor: parameter for parameter, tensor in captured}
        self.captures.update(captured)
        self.captured = [tensor for _, tensor in captured]

    def variable(self, ref: Tensor) -> Tensor:
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


def traced(
    build: Callable[..., Any], likes: Sequence[tuple[Tensor, Shape]] = ()
) -> tuple[SubGraph, Any]:
    """Return a subgraph, and the structure that a function returns whose leaves are its targets.

    Args:
        build: takes the parameters. Operations among its results become targets that are there once
            they are done.
        likes: a tensor for each parameter, and its shape.
    """
    graph = SubGraph(get_default_graph())
    context = building.get()
    assert context is not None, "set in get_default_graph"
    inside = BuildContext(graph, devices=context.devices, variable_scope=context.variable_scope)
    with entered(inside):
        result = build(*[graph.parameter(tensor, shape) for tensor, shape in likes])
        graph.targets += map(_target, nest.flatten(result))
    return graph, result


def _target(leaf: Any) -> Tensor:
    if isinstance(leaf, Operation):
        with control_dependencies([leaf]):
            return identity(constant(True))
    return identity(leaf)


def subgraph_op(
    type: str, inputs: Sequence[Tensor], branches: Sequence[SubGraph], **attrs: Any
) -> tuple[Tensor, ...]:
    """Return the outputs of an op that runs subgraphs: its awaited form where a node inside waits."""
    nodes = [op for branch in branches for op in branch.get_operations()]
    kind = f"Async{type}" if any(op.op_def.awaits for op in nodes) else type
    captured = [tensor for branch in branches for tensor in branch.captured]
    with control_dependencies([op for branch in branches for op in branch.outer_control]):
        return create_ops(kind, (*inputs, *captured), {"branches": tuple(branches), **attrs})


def unwrapped(result: Any, *, keep: bool) -> Any:
    """Return a structure; of one that has a single item, this item, unless it is to be kept."""
    single = isinstance(result, list | tuple) and len(result) == 1
    return result[0] if single and not keep else result


def replayed_gradients(
    branch: SubGraph, inside: Sequence[Tensor], grads: Sequence[Any], wanted: Iterable[int]
) -> list[Any]:
    """Build the nodes of a branch again in the one that is being built; return its gradients.

    Args:
        branch: what to repeat.
        inside: what stands for its parameters.
        grads: the gradients of its targets, None where nothing flows.
        wanted: the parameters, by number, to return the gradients of.

    Raises:
        ValueError: it does something that must not be done twice.
    """
    results = _replay(branch, inside)
    flowing = [
        (y, convert_to_tensor(grad)) for y, grad in zip(results, grads, strict=True) if grad is not None
    ]
    ys, grad_ys = [y for y, _ in flowing], [grad for _, grad in flowing]
    return gradients(ys, [inside[i] for i in wanted], grad_ys, unconnected_gradients="zero")


def _replay(branch: SubGraph, inside: Sequence[Tensor]) -> list[Tensor]:
    """Build the nodes of a branch again, and return what its targets became."""
    check_repeatable(branch)
    graph = get_default_graph()
    made = dict(zip(branch.parameters, inside, strict=True))
    for op in needed_ops(branch.targets, branch.parameters):
        if op.type == "ReadVariable":  # nothing here writes it, so it is what the parameter reads
            read = made[branch.capture(branch.variable(op.inputs[0]))]
            made[op.outputs[0]] = identity(read)  # for each input its own gradient
            continue
        refs = op.op_def.refs
        inputs = [graph.capture_ref(branch.variable(x)) for x in op.inputs[:refs]]
        inputs += [made[x] for x in op.inputs[refs:]]
        copy = graph.add_op(op.type, inputs, op.attrs, op.name.rpartition("/")[2])
        copy.rng_key = op.rng_key
        made.update(zip(op.outputs, copy.outputs, strict=True))
    return [made[target] for target in branch.targets]


def check_repeatable(branch: SubGraph) -> None:
    """Refuse a subgraph that does more than compute.

    Raises:
        ValueError: it, or one inside, does something that must not be done twice.
    """
    for op in needed_ops(branch.targets, branch.parameters):
        if op.op_def.awaits or op.op_def.changes or op.op_def.foreign:
            raise ValueError(
                f"Operation {op.name!r} ({op.type}) in a branch or loop cannot be run a second time, "
                "which its gradient would do. Move it out of the part that is differentiated."
            )
        for inner in op.attrs["branches"] if isinstance(op.op_def, ControlOpDef) else ():
            check_repeatable(inner)


def only_computes(branch: SubGraph) -> bool:
    """Return whether a subgraph, and what is inside, neither waits, nor changes or calls anything."""
    for op in branch.get_operations():
        if op.op_def.awaits or op.op_def.changes or op.op_def.foreign:
            return False
        if isinstance(op.op_def, ControlOpDef) and not all(map(only_computes, op.attrs["branches"])):
            return False
    return True


class Repeated:
    """The plan of a subgraph, to be run with values that change and values that stay.

    Args:
        plan: the plan.
        run: that it is part of.
        captured: values of the last parameters, which stay.
    """

    __slots__ = ("_captured", "_fetched", "_own", "_plan", "_program", "_registers", "_run")

    def __init__(self, plan: Plan, run: Run, captured: Sequence[Any]) -> None:
        self._plan, self._run = plan, run
        self._captured = captured
        self._program: Program | None = None
        at = len(plan.feeds) - len(captured)
        self._own = [register for _, register in plan.feeds[:at]]
        self._registers = plan.template.copy()
        for (_, register), value in zip(plan.feeds[at:], captured, strict=True):
            self._registers[register] = value
        self._fetched = [fetch.register for fetch in plan.fetches if fetch is not None]

    def __call__(self, values: Sequence[Any], state: Any, iteration: int) -> tuple[list[Any], Any]:
        """Run the plan, of which no node waits.

        Args:
            values: of the first parameters.
            state: values of the variables that the plan accesses, by slot.
            iteration: of the loop around.

        Returns:
            The targets of the subgraph, and the state after it.
        """
        program, registers = self._begin(values, state, iteration)
        run = self._run
        execute(run.watched(program.code, registers), registers, run)
        return self._end(registers, state)

    async def wait(self, values: Sequence[Any], state: Any, iteration: int) -> tuple[list[Any], Any]:
        """Run the plan as a call does; nodes may wait."""
        program, registers = self._begin(values, state, iteration)
        plan, run = self._plan, self._run
        for stage in (plan.inputs, plan.stage):
            if stage is not None:
                await stage.run(run, registers)
        if program.code:
            await run.compute(plan.cost, program.code, registers, run)
        return self._end(registers, state)

    def _begin(self, values: Sequence[Any], state: Any, iteration: int) -> tuple[Program, list[Any]]:
        plan, registers = self._plan, self._registers.copy()
        program = self._program
        if program is None:
            program = plan.for_shapes((*values, *self._captured))
            if not plan.open_feeds:  # it is the same for all values
                self._program = program
        for register, value in zip(self._own, values, strict=True):
            registers[register] = value
        for register, value in program.constants:
            registers[register] = value
        if plan.reads:
            plan.load(registers, state)
        if plan.iteration is not None:
            registers[plan.iteration] = iteration
        return program, registers

    def _end(self, registers: list[Any], state: Any) -> tuple[list[Any], Any]:
        results = [registers[i] for i in self._fetched]
        if not self._plan.versions:
            return results, state
        return results, state | {slot: registers[i] for slot, i in self._plan.versions.items()}
