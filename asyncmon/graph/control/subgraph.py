"""Graphs inside a graph: the branches of ``cond``, the condition and body of ``while_loop``.

A subgraph has parameters, which its op feeds, and targets, which are the op's outputs. A tensor of the
outer graph that is used inside is captured: it becomes a parameter and an input of the op, so that
gradients flow through it. Each execution reads the current values of variables. A control dependency
on an operation of the outer graph becomes one of the op, whether the dependent node runs or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from asyncmon.graph.core import nest
from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_ops,
    get_default_graph,
)
from asyncmon.graph.core.gradients import gradients
from asyncmon.graph.core.graph import Graph, building, entered
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef
from asyncmon.graph.core.shape import Shape
from asyncmon.graph.execution.analysis import Uses, needed_ops
from asyncmon.graph.execution.plan import Plan, Program
from asyncmon.graph.execution.program import execute
from asyncmon.graph.execution.run import Run
from asyncmon.graph.ops.basic import constant, identity


class SubGraph(Graph):
    """The inside of a control flow op.

    Attributes:
        parameters: its inputs, the explicit ones first.
        variables: the names of the variables among ``parameters``.
        targets: its outputs.
        captured: the outer tensors for the last parameters, in their order.
        outer_control: operations of ``outer`` that its op has control dependencies on.
        captures: the outer tensor of each captured parameter and ref.
        refs: the nodes for variables themselves, by name.
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
        if op.type == "ReadVariable":  # not only the state: gradients flow to it
            self.capture(self.variable(op.inputs[0]))
        return op

    def parameter(self, like: Tensor, shape: Shape) -> Tensor:
        """Add an input of this dtype and shape."""
        op = self.add_op("Placeholder", (), {"dtype": like.dtype, "shape": shape}, _inner_name(like))
        self.parameters.append(op.outputs[0])
        return op.outputs[0]

    def capture(self, tensor: Tensor) -> Tensor:
        """Return the parameter for a tensor of an outer graph; add it if there is none."""
        found = self._inside.get(tensor)
        if found is not None:
            return found
        if tensor.graph is not self.outer:
            self._inside[tensor] = found = self.capture(self.outer.capture(tensor))
            return found
        self._inside[tensor] = found = self.parameter(tensor, tensor.spec.shape)
        if tensor.spec.value is not None:
            found.spec = tensor.spec  # static shapes may depend on the value; the plan has it, too
        self.captured.append(tensor)
        self.captures[found] = tensor
        name = tensor.op.attrs.get("variable") if tensor.op.type == "VariableV2" else None
        if isinstance(self.outer, SubGraph):
            name = name or self.outer.variables.get(tensor)
        if name is not None:
            self.variables[found] = name
        return found

    def capture_ref(self, tensor: Tensor) -> Tensor:
        """Return the node for a variable itself; add it if there is none."""
        name = tensor.op.attrs["variable"]
        if name not in self.refs:
            with entered(self._context()._replace(devices=())):
                op = self.add_op("VariableV2", (), tensor.op.attrs, _inner_name(tensor))
            op.device = tensor.op.device
            self.refs[name] = op.outputs[0]
            self.captures[op.outputs[0]] = self.variable(op.outputs[0])
        return self.refs[name]

    def move(self, outer: Graph, captured: Sequence[tuple[Tensor, Tensor]]) -> None:
        """Make this the subgraph of an op of another graph, with pairs of parameters and tensors."""
        self.outer = outer
        self.outer_control.clear()
        self._inside = {tensor: parameter for parameter, tensor in captured}
        self.captures.update(captured)
        self.captured = [tensor for _, tensor in captured]

    def used_captures(self, targets: Sequence[Tensor]) -> list[Tensor]:
        """Return the captured tensors that targets need, and all variables."""
        uses = Uses.of(targets, self.parameters)
        used = uses.used.union(uses.captured, targets, self.variables)
        taken = self.parameters[len(self.parameters) - len(self.captured) :]
        return [x for x, inside in zip(self.captured, taken, strict=True) if inside in used]

    def variable(self, ref: Tensor) -> Tensor:
        """Return the variable of the outermost graph for a ref."""
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
    build: Callable[..., Any],
    likes: Sequence[tuple[Tensor, Shape]] = (),
    graph: SubGraph | None = None,
) -> tuple[SubGraph, Any]:
    """Build a subgraph by a function; return it and the structure that the function returns.

    Args:
        build: takes the parameters and returns the targets. An operation among them becomes a tensor
            that depends on it.
        likes: for each parameter, a tensor of its dtype, and its shape.
        graph: a subgraph to add further targets to.
    """
    graph = graph or SubGraph(get_default_graph())
    context = building.get()
    assert context is not None, "set in get_default_graph"
    inside = context._replace(graph=graph, scope="", control=())
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
    """Return the outputs of an op that runs subgraphs, in its async form if a node inside is async."""
    nodes = [op for branch in branches for op in branch.get_operations()]
    kind = f"Async{type}" if any(op.op_def.awaits for op in nodes) else type
    captured = [tensor for branch in branches for tensor in branch.captured]
    with control_dependencies([op for branch in branches for op in branch.outer_control]):
        return create_ops(kind, (*inputs, *captured), {"branches": tuple(branches), **attrs})


def unwrapped(result: Any, *, keep: bool) -> Any:
    """Return a structure; unpack a list or tuple of one item unless ``keep``."""
    single = isinstance(result, list | tuple) and len(result) == 1
    return result[0] if single and not keep else result


def replayed_gradients(branch: SubGraph, inside: Sequence[Tensor], grads: Sequence[Any]) -> list[Any]:
    """Copy the nodes of a branch into the current graph; return the gradients of its parameters.

    Args:
        branch: the subgraph to copy.
        inside: the tensors for its parameters.
        grads: the gradients of its targets, or None.

    Raises:
        ValueError: the branch has side effects.
    """
    results = _replay(branch, inside)
    flowing = [
        (y, convert_to_tensor(grad)) for y, grad in zip(results, grads, strict=True) if grad is not None
    ]
    ys, grad_ys = [y for y, _ in flowing], [grad for _, grad in flowing]
    return gradients(ys, list(inside), grad_ys)


def _replay(branch: SubGraph, inside: Sequence[Tensor]) -> list[Tensor]:
    """Copy the nodes of a branch, and return the copies of its targets."""
    check_repeatable(branch)
    graph = get_default_graph()
    made = dict(zip(branch.parameters, inside, strict=True))
    for op in needed_ops(branch.targets, branch.parameters):
        if op.type == "ReadVariable":  # never written here, so the parameter has its value
            read = made[branch.capture(branch.variable(op.inputs[0]))]
            made[op.outputs[0]] = identity(read)  # a gradient for each input
            continue
        refs = op.op_def.refs
        inputs = [graph.capture_ref(branch.variable(x)) for x in op.inputs[:refs]]
        inputs += [made[x] for x in op.inputs[refs:]]
        copy = graph.add_op(op.type, inputs, op.attrs, op.name.rpartition("/")[2])
        copy.rng_key = op.rng_key
        made.update(zip(op.outputs, copy.outputs, strict=True))
    return [made[target] for target in branch.targets]


def check_repeatable(branch: SubGraph) -> None:
    """Check that a subgraph has no side effects.

    ValueError if the subgraph or one inside it has side effects.
    """
    for op in _effects(branch, lambda inner: needed_ops(inner.targets, inner.parameters)):
        raise ValueError(
            f"Operation {op.name!r} ({op.type}) in a branch or loop cannot be run a second time, "
            "which its gradient would do. Move it out of the part that is differentiated."
        )


def only_computes(branch: SubGraph) -> bool:
    """Return whether a subgraph, with those inside it, is synchronous and free of side effects."""
    return not any(True for _ in _effects(branch, SubGraph.get_operations))


def _effects(branch: SubGraph, nodes: Callable[[SubGraph], Iterable[Operation]]) -> Iterator[Operation]:
    """Yield the nodes of a subgraph, and of those inside it, that wait or have side effects."""
    for op in nodes(branch):
        if op.op_def.awaits or op.op_def.changes or op.op_def.foreign:
            yield op
        elif isinstance(op.op_def, ControlOpDef):
            for inner in op.attrs["branches"]:
                yield from _effects(inner, nodes)


class Repeated:
    """The plan of a subgraph, executed repeatedly within one run.

    Args:
        plan: the plan.
        run: the run.
        captured: the values of the last parameters, the same for all executions.
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
        """Execute a plan without async nodes.

        Args:
            values: the values of the first parameters.
            state: the values of the variables that the plan accesses, by slot.
            iteration: the number of the iteration.

        Returns:
            The targets of the subgraph, and the state after it.
        """
        program, registers = self._begin(values, state, iteration)
        run = self._run
        execute(run.watched(program.code, registers), registers, run)
        return self._end(registers, state)

    async def wait(self, values: Sequence[Any], state: Any, iteration: int) -> tuple[list[Any], Any]:
        """Execute a plan with async nodes. Arguments and result as of a call."""
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
            if not plan.open_feeds:  # all values have the same shapes
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
