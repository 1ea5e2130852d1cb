"""From fetches and feeds to a plan: prune, order, fold constants, emit instructions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import AwaitedOpDef, ControlOpDef, OpDef, RandomOpDef, VariableOpDef
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.core.spec import Spec
from asyncmon.graph.execution.buffers import plan_buffers
from asyncmon.graph.execution.feeds import Feed, missing_feed
from asyncmon.graph.execution.folding import fold, note_value
from asyncmon.graph.execution.liveness import with_frees, without_dead_code
from asyncmon.graph.execution.ordering import Versions
from asyncmon.graph.execution.outer_facts import OuterFacts, split_inputs
from asyncmon.graph.execution.plan import Fetch, Kind, Plan, Read, Swap, Update
from asyncmon.graph.execution.pruning import needed_ops
from asyncmon.graph.execution.registers import Registers, elements
from asyncmon.graph.execution.scalars import for_scalars
from asyncmon.graph.execution.specialise import (
    Facts,
    Programs,
    ShapeChecks,
    ShapeRules,
    weaken,
)
from asyncmon.graph.execution.stages import Groups, Node, Stage
from asyncmon.graph.execution.steps import (
    awaiting_step,
    awaiting_subgraph_step,
    checked_step,
    copy_step,
    random_step,
    subgraph_step,
)
from asyncmon.graph.execution.update import group_updates

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from asyncmon.graph.execution.state import StateStore

_FREE_LIMIT = 1 << 10  # elements: a smaller value may stay in its register until the run ends
_UNKNOWN = 1 << 30  # elements: nobody knows how often a loop repeats, so its first run is in a worker
_IN_PLACE_LIMIT = 1 << 6  # elements: a smaller variable is rather replaced than updated in place


def compile_plan(
    store: StateStore,
    targets: Sequence[Tensor | Operation],
    fed: Sequence[Tensor],
    *,
    around: OuterFacts | None = None,
) -> Plan:
    """Return the plan that computes targets from fed tensors and the state.

    Args:
        store: where variables have their slots.
        targets: what is fetched; operations give None.
        fed: tensors whose values are given, in this order.
        around: of a subgraph's plan, what the plan around it knows of its inputs.

    Raises:
        InvalidArgumentError: a placeholder is needed and not fed.
    """
    return _Compiler(store, targets, frozenset(fed), around).compile(targets, fed)


class _Compiler:
    def __init__(
        self,
        store: StateStore,
        targets: Sequence[Tensor | Operation],
        given: frozenset[Tensor],
        around: OuterFacts | None,
    ) -> None:
        self.store = store
        self.given = given
        self.embedded = around is not None
        self.plan = Plan()
        self.registers = Registers(store)
        self.written: dict[tuple[Operation, str], int] = {}
        self.variables = {} if around is None else around.variables
        self.constants = {} if around is None else around.constants
        self.ops = needed_ops(targets, given)
        self.facts = Facts(
            {x: Spec(x.dtype, x.spec.shape) for x in given if x.spec.value is not None or x.spec.dims}
            if around is None
            else around.weaker
        )
        weaken(self.ops, given, self.facts)
        self.weak = frozenset(self.facts)
        self.folded: set[Tensor] = set()
        self.refs: dict[Operation, tuple[int, ...]] = {}
        """The registers of what nodes that write go on from."""
        self.looked_at = {target for target in targets if isinstance(target, Tensor)}
        """What nodes other than subgraphs use; those look at a variable only when they run."""
        taken: set[Tensor] = set()
        for op in self.ops:
            used = taken if isinstance(op.op_def, ControlOpDef) else self.looked_at
            used.update(op.inputs[op.op_def.refs :])
        self.versions = Versions(self.ops, self.looked_at | taken, all_early=self.embedded)

    def compile(self, targets: Sequence[Tensor | Operation], fed: Sequence[Tensor]) -> Plan:
        plan = self.plan
        for i, tensor in enumerate(fed):
            plan.feeds.append((Feed(tensor), self.registers.given(tensor)))
            if not is_known(self.facts[tensor].shape):
                plan.open_feeds.append(i)
        for tensor, value in self.constants.items():
            self._fold(tensor.op, (value,))
        for tensor, name in self.variables.items():
            required = tensor in self.looked_at
            self.registers.of[tensor] = self._version(None, name, required=required)
        groups = Groups(self.ops, self.given, self.versions.access)
        nodes: dict[Operation, Node] = {}
        for op in self.ops:
            start = len(plan.code)
            awaited = self._emit(op)
            if groups.of(op) != groups.LAST:
                nodes[op] = Node(plan.code[start:], awaited)
                del plan.code[start:]
        opened = [fed[i] for i in plan.open_feeds]
        rules = ShapeRules(self.ops, self.given | self.folded, opened, self.facts, self.weak)
        checks = ShapeChecks(rules.ops, self.facts, self.registers, self.refs)
        for op, node in nodes.items():
            self._complete(op, node, checks)
        plan.prelude = Stage.of([op for op in nodes if groups.of(op) == groups.PRELUDE], nodes)
        plan.stage = Stage.of([op for op in nodes if groups.of(op) == groups.MIDDLE], nodes)
        for slot, register in self.registers.base.items():
            required = slot in self.registers.required
            plan.reads.append(Read(slot, register, self.store.names[slot], required))
        self._finish(targets)
        plan.programs = Programs(plan, rules, checks)
        plan.template = self.registers.template()
        plan.iteration = self.registers.iteration
        for computing in (plan, plan.prelude, plan.stage):
            if computing is not None:
                computing.pace.weight = self.registers.weight
        return plan

    def _complete(self, op: Operation, node: Node, checks: ShapeChecks) -> None:
        """Give the node of a stage its outputs, and the checks that it needs whatever is fed."""
        unknown = [op] if not all(is_known(self.facts[x].shape) for x in op.inputs) else []
        computed = [x for x in op.outputs if x not in self.given]
        asserted = [x for x in computed if x in op.graph.asserted]
        if node.awaited is None:
            node.code = checks.insert(node.code, unknown, asserted, ())
        else:
            node.outputs = self.registers.all_of(computed)
            node.awaited = checked_step(node.awaited, *checks.around(unknown, asserted))

    # Emitting, one method a family of ops. The result is a coroutine function for awaiting nodes.

    def _emit(self, op: Operation) -> Callable[..., Any] | None:
        if op.op_def.changes:
            self.plan.changes.append(op.name)
        match op.op_def:
            case OpDef(kernel=None):
                for output in op.outputs:
                    if output not in self.given:
                        raise missing_feed(output)
            case OpDef() as pure:
                self._emit_kernel(op, pure)
            case RandomOpDef():
                self._emit_random(op)
            case VariableOpDef(changes=False) as read:
                self._emit_read(op, read)
            case VariableOpDef() as write:
                self._emit_write(op, write)
            case ControlOpDef() as control:
                return self._emit_subgraphs(op, control)
            case AwaitedOpDef():
                return self._emit_awaiting(op)
        return None

    def _emit_kernel(self, op: Operation, op_def: OpDef) -> None:
        registers = self.registers
        inputs = registers.all_of(op.inputs)
        self.plan.foreign |= op_def.foreign
        if not op_def.stateful and self.given.isdisjoint(op.outputs):
            values = fold(op, inputs, registers.constants, self.facts)
            if values is not None:
                self._fold(op, values)
                return
        function = _with_attrs(op_def.kernel, op)
        outputs = registers.outputs(op, self.given)
        if op_def.aliases:
            registers.lend(outputs, inputs)
        self._call(op, function, inputs, outputs)

    def _emit_random(self, op: Operation) -> None:
        registers = self.registers
        self.plan.random = self.plan.uses_run = True
        inputs, outputs = registers.all_of(op.inputs), registers.outputs(op, self.given)
        kernel = _with_attrs(op.op_def.kernel, op)
        step = random_step(kernel, op, inputs, outputs, registers.of_iteration())
        self._code(Kind.GENERAL, step, inputs, op=op)

    def _fold(self, op: Operation, values: Sequence[Any]) -> None:
        """Let the outputs of a node be values that never change."""
        self.registers.constant(op, values)
        for tensor, value in zip(op.outputs, values, strict=True):
            self.folded.add(tensor)
            note_value(tensor, value, self.facts)

    def _emit_read(self, op: Operation, op_def: VariableOpDef) -> None:
        output, registers = op.outputs[0], self.registers
        if output in self.given:
            return
        (name,) = self.versions.access[op].reads
        write = self.versions.seen[op, name]
        if op_def.kernel is None:
            registers.of[output] = self._version(write, name, required=output in self.looked_at)
            return
        value = self._version(write, name, required=False)
        inputs = (value, *registers.all_of(op.inputs[op_def.refs :]))
        outputs = registers.outputs(op, self.given)
        if op_def.aliases:
            registers.lend(outputs, inputs)
        self._call(op, _with_attrs(op_def.kernel, op), inputs, outputs)

    def _version(self, write: Operation | None, name: str, *, required: bool = True) -> int:
        """Return the register of a variable as it is after a write; None: before all of them."""
        if write is None:
            return self.registers.variable(self.store.slot(name), required=required)
        return self.written[write, name]

    def _emit_write(self, op: Operation, op_def: VariableOpDef) -> None:
        registers = self.registers
        names = self.versions.access[op].writes
        values = tuple(
            self._version(self.versions.before[op, name], name, required=not op_def.initializes)
            for name in names
        )
        if not op_def.initializes:
            self.refs[op] = values
        inputs = registers.all_of(op.inputs[op_def.refs :])
        size = elements(op.inputs[0])
        in_place = op_def.kernel is None or (
            op_def.update is not None and (size is None or size > _IN_PLACE_LIMIT)
        )
        function = _with_attrs(op_def.update if in_place else op_def.kernel, op)
        as_built = not any(x in self.weak and self.facts[x].shape != x.spec.shape for x in op.inputs)
        if in_place and as_built and op not in self.versions.early:
            slots = tuple(self.store.slot(name) for name in names)
            self.plan.updates.append(Update(op, function, slots, names, inputs, op_def.blockwise))
            return
        outputs = tuple(registers.new() for _ in names)
        self.written.update(((op, name), i) for name, i in zip(names, outputs, strict=True))
        if op.outputs:
            registers.of[op.outputs[0]] = outputs[0]
        if in_place:
            step = copy_step(op, function, values, inputs, outputs)
            self._code(Kind.GENERAL, step, (*values, *inputs), op=op)
            return
        if op_def.aliases:
            registers.lend(outputs, inputs)
        self._call(op, function, (*values, *inputs), outputs)

    def _emit_awaiting(self, op: Operation) -> Callable[..., Any]:
        self.plan.uses_run = True
        outputs = self.registers.outputs(op, self.given)
        for register in outputs:
            self.registers.borrowed[register] = frozenset()
        step: Callable[..., Any] = awaiting_step(op, self.registers.all_of(op.inputs), outputs)
        return step

    def _emit_subgraphs(self, op: Operation, op_def: ControlOpDef) -> Callable[..., Any] | None:
        """Emit a node that runs plans: it gets the variables they touch and gives new values."""
        registers, versions = self.registers, self.versions
        self.plan.uses_run = True
        access = versions.access.get(op)
        touched = [] if access is None else [(name, versions.seen[op, name]) for name in access.reads]
        writes = () if access is None else access.writes
        touched += [(name, versions.before[op, name]) for name in writes]
        seen = [
            (self.store.slot(name), self._version(write, name, required=False))
            for name, write in touched
        ]
        plans, fed = [], self.given - self.variables.keys()
        for branch, taken in zip(op.attrs["branches"], split_inputs(op, op.inputs)[1:], strict=True):
            known = OuterFacts.of(op, branch, taken, registers, self.facts, self.weak, fed)
            plans.append(compile_plan(self.store, branch.targets, branch.parameters, around=known))
        for plan in plans:
            self.plan.random |= plan.random
            self.plan.foreign |= plan.foreign
            self.plan.loops |= plan.loops
            self.plan.changes += plan.changes
            registers.weight += plan.pace.weight
        if op_def.loops:
            self.plan.loops = True
            registers.weight += _UNKNOWN
        inputs = registers.all_of(op.inputs)
        outputs = registers.outputs(op, self.given)
        new = []
        for name in writes:
            register = self.written[op, name] = registers.new()
            new.append((self.store.slot(name), register))
        used = (*inputs, *(register for _, register in seen))
        for register in (*outputs, *(register for _, register in new)):
            registers.borrowed[register] = frozenset()
            registers.lend((register,), used)
        make = awaiting_subgraph_step if op_def.awaits else subgraph_step
        step: Callable[..., Any] = make(op, plans, seen, inputs, outputs, new, registers.of_iteration())
        if op_def.awaits:
            return step
        self._code(Kind.GENERAL, step, used, op=op)
        return None

    def _call(
        self, op: Operation, function: Any, inputs: tuple[int, ...], outputs: tuple[int, ...]
    ) -> None:
        function = for_scalars(function, (*op.inputs, *op.outputs))
        if len(outputs) != 1:
            self._code(Kind.MULTI, function, inputs, None, outputs, op)
        elif len(inputs) == 2:
            self._code(Kind.BINARY, function, inputs[0], inputs[1], outputs[0], op)
        elif len(inputs) == 1:
            self._code(Kind.UNARY, function, inputs[0], None, outputs[0], op)
        else:
            self._code(Kind.NARY, function, inputs, None, outputs[0], op)

    def _code(
        self,
        kind: Kind,
        function: Any,
        a: Any,
        b: Any = None,
        out: Any = None,
        op: Operation | None = None,
    ) -> None:
        self.plan.code.append((int(kind), function, a, b, out, op))

    # What happens at the end of a run.

    def _finish(self, targets: Sequence[Tensor | Operation]) -> None:
        plan, registers = self.plan, self.registers
        stored: set[int] = set()
        for name, op in self.versions.last.items():
            register = self.written.get((op, name))
            if register is None:
                continue  # an update in place
            slot = self.store.slot(name)
            plan.versions[slot] = register
            if not self.embedded:
                owned = register not in registers.borrowed and register not in stored
                plan.swaps.append(_swap(op, name, slot, register, owned=owned))
                stored.add(register)
        in_place = {slot for update in plan.updates for slot in update.slots}
        plan.updates = [
            update.but_copying([i for i in update.inputs if registers.slots_in(i) & in_place])
            for update in plan.updates
        ]
        for target in targets:
            if isinstance(target, Operation):
                plan.fetches.append(None)
                continue
            register = registers.of[target]
            fresh = register not in registers.borrowed and register not in stored
            plan.fetches.append(Fetch(register, fresh))
        self._tidy(stored)

    def _tidy(self, stored: set[int]) -> None:
        """Drop what nobody uses; forget large values right after their last use."""
        plan, registers = self.plan, self.registers
        kept = stored | set(plan.versions.values())
        kept.update(fetch.register for fetch in plan.fetches if fetch is not None)
        kept.update(*(update.inputs for update in plan.updates))
        plan.code = without_dead_code(plan.code, kept)
        large = {
            register
            for tensor, register in registers.of.items()
            if (size := elements(tensor)) is None or size >= _FREE_LIMIT
        }
        large -= registers.constants.keys() | kept | set(registers.base.values())
        large.difference_update(register for _, register in plan.feeds)  # the caller has them anyway
        plan.code = with_frees(plan.code, large)
        if not self.embedded:
            plan.groups = group_updates(plan.updates, registers.new)
            plan_buffers(plan, registers, stored, self.ops)


def _swap(op: Operation, name: str, slot: int, register: int, *, owned: bool) -> Swap:
    attrs = op.graph.root.get_operation_by_name(name).attrs
    return Swap(slot, register, owned, name, attrs["dtype"].as_numpy_dtype, attrs["shape"])


def _with_attrs(function: Any, op: Operation) -> Any:
    return partial(function, **op.attrs) if op.attrs else function
