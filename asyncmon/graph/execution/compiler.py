"""From fetches and feeds to a plan: prune, order, fold constants, emit instructions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import AwaitedOpDef, ControlOpDef, OpDef, RandomOpDef, VariableOpDef
from asyncmon.graph.core.shape import is_known, num_elements
from asyncmon.graph.execution.analysis import Uses, Versions, with_frees, without_dead_code
from asyncmon.graph.execution.awaits import COMPUTE, Node, Stage, side_by_side, stages_of
from asyncmon.graph.execution.facts import Facts, OuterFacts, fold, kernel_of, split_inputs
from asyncmon.graph.execution.feeds import Feed, missing_feed
from asyncmon.graph.execution.memory import Flat, MemoryPlan, plan_memory
from asyncmon.graph.execution.plan import Plan
from asyncmon.graph.execution.program import AwaitedStep, Kind
from asyncmon.graph.execution.records import Fetch, Read, Swap, Update
from asyncmon.graph.execution.specialise import ShapeRules
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.execution.steps import (
    awaited_step,
    copy_step,
    located_step,
    missing_step,
    not_waiting,
    of_scalars,
    random_step,
    subgraph_step,
    threaded_step,
)
from asyncmon.graph.execution.update import group_updates
from asyncmon.graph.execution.values import Values

_IN_PLACE_LIMIT = 1 << 6  # elements: a smaller variable is replaced, not updated in place


def compile_plan(
    store: StateStore,
    targets: Sequence[Tensor | Operation],
    fed: Sequence[Tensor],
    *,
    done: Collection[Operation] = (),
    outer: OuterFacts | None = None,
) -> Plan:
    """Return the plan that computes targets from fed tensors and the state.

    Args:
        store: the store with the slots of variables.
        targets: the fetches; operations give None.
        fed: tensors whose values are given, in this order.
        done: control dependencies that another plan executes.
        outer: for the plan of a subgraph, the facts of the outer plan about its inputs.

    Raises:
        InvalidArgumentError: a placeholder is needed and not fed, or a variable has another dtype or
            shape in the state.
    """
    return _Compiler(store, targets, frozenset(fed), frozenset(done), outer).compile(targets, fed)


class _Compiler:
    def __init__(
        self,
        store: StateStore,
        targets: Sequence[Tensor | Operation],
        fed: frozenset[Tensor],
        done: frozenset[Operation],
        outer: OuterFacts | None,
    ) -> None:
        self.store = store
        self.fed = fed
        self.embedded = outer is not None
        self.outer = outer or OuterFacts.none(fed)
        self.plan = Plan()
        self.values = Values()
        self.written: dict[tuple[Operation, str], int] = {}
        self.updates: list[Update] = []
        self._slots: dict[str, int] = {}
        self.ops, self.used, captured, self.live = Uses.of(targets, fed, done)
        """Tensors that are fetched, or used by nodes other than those with subgraphs."""
        self.threaded = frozenset[Operation]() if self.embedded else side_by_side(self.ops, fed)
        self.facts = Facts(self.outer.weaker)
        self.facts.disprove(self.ops, fed)
        self.folded: set[Tensor] = set()
        self._outputs: dict[Operation, tuple[int, ...]] = {}  # the registers that awaited nodes set
        self.refs: dict[Operation, tuple[int, ...]] = {}
        """The registers of written variables with their values before the run."""
        fetched = {target for target in targets if isinstance(target, Tensor)}
        consumed = fetched | self.used | captured
        self.versions = Versions(self.ops, consumed, embedded=self.embedded)
        self.rewritten = {
            target: write
            for target in fetched - self.fed
            if target.op.type == "VariableV2"
            and (write := self.versions.last.get(target.op.attrs["variable"])) is not None
        }
        """The variables that are fetched and written: their last write."""
        self.used |= fetched - self.rewritten.keys()

    def compile(self, targets: Sequence[Tensor | Operation], fed: Sequence[Tensor]) -> Plan:
        plan, values = self.plan, self.values
        plan.feeds = tuple([(Feed(tensor), values.feed(tensor)) for tensor in fed])
        plan.open_feeds = tuple([i for i, x in enumerate(fed) if not is_known(self.facts[x].shape)])
        for tensor, value in self.outer.constants.items():
            self._fold(tensor.op, (value,))
        for tensor, name in self.outer.variables.items():
            values.of[tensor] = self._version(tensor.op, name, required=tensor in self.used)
        stage_of = stages_of(self.ops, self.fed, self.versions.access, self.threaded)
        stages: tuple[dict[Operation, Node], ...] = ({}, {})
        for op in self.ops:
            start, weight = len(plan.code), values.weight
            self._emit(op)
            stage = stage_of.get(op, COMPUTE)
            if stage != COMPUTE:
                stages[stage][op] = Node(op, plan.code[start:], values.weight - weight)
                values.weight = weight
                del plan.code[start:]
        opened = [fed[i] for i in plan.open_feeds]
        given = self.fed | self.folded
        plan.rules = ShapeRules(self.ops, given, opened, self.facts, values.of, self.refs)
        for nodes in stages:
            for node in nodes.values():
                self._complete(node, plan.rules)
        plan.inputs, plan.stage = map(Stage.of, stages)
        for slot, register in values.initial.items():
            plan.reads.append(Read(slot, register, self.store.names[slot], slot in values.required))
        self._finish(targets)
        plan.template, plan.constants = values.template(), values.constants
        plan.iteration = values.iteration
        plan.cost.weight = values.weight
        plan.waits = plan.inputs is not None or plan.stage is not None
        plan.locks = bool(plan.swaps or plan.groups or plan.random)
        return plan

    def _complete(self, node: Node, rules: ShapeRules) -> None:
        """Add the checks to a node of a stage that are needed for any feeds."""
        op = node.op
        computed = [x for x in op.outputs if x not in self.fed]
        unknown = [] if all(is_known(self.facts[x].shape) for x in op.inputs) else [op]
        asserted = [x for x in computed if x in op.graph.asserted]
        node.code = rules.with_checks(node.code, unknown, asserted)
        if op.op_def.awaits or op in self.threaded:
            node.awaited = located_step(op, node.code, self._outputs[op])
            node.code = []

    # Emitting, one method a kind of op.

    def _emit(self, op: Operation) -> None:
        if op.op_def.changes:
            self.plan.changes += (op.name,)
        match op.op_def:
            case OpDef(kernel=None):
                for output in [x for x in op.outputs if x not in self.fed]:
                    if not self.embedded:
                        raise missing_feed(output)
                    self._general(op, missing_step(output), self.values.outputs(op, self.fed))
            case OpDef() if op in self.threaded:
                self._emit_awaited(op, threaded_step)
            case OpDef() as pure:
                self._emit_kernel(op, pure)
            case RandomOpDef():
                self._emit_random(op)
            case VariableOpDef(changes=False) as read:
                self._emit_read(op, read)
            case VariableOpDef() as write:
                self._emit_write(op, write)
            case ControlOpDef() as control:
                self._emit_subgraphs(op, control)
            case AwaitedOpDef():
                self._emit_awaited(op)

    def _emit_kernel(self, op: Operation, op_def: OpDef) -> None:
        values = self.values
        inputs = values.all_of(op.inputs)
        self.plan.foreign |= op_def.foreign
        if not op_def.stateful and self.fed.isdisjoint(op.outputs):
            folded = fold(op, inputs, values.constants, self.facts)
            if folded is not None:
                self._fold(op, folded)
                return
        if op_def.flops is not None:
            self.plan.products += ((op, op_def),)
        self._call(op, op_def, inputs, values.outputs(op, self.fed))

    def _fold(self, op: Operation, values: Sequence[Any]) -> None:
        """Set the outputs of a node to constants."""
        self.values.constant(op, values)
        for tensor, value in zip(op.outputs, values, strict=True):
            self.folded.add(tensor)
            self.facts.note_value(tensor, value)

    def _emit_random(self, op: Operation) -> None:
        values = self.values
        self.plan.random = self.plan.uses_run = True
        inputs, outputs = values.all_of(op.inputs), values.outputs(op, self.fed)
        kernel = _with_attrs(op.op_def.kernel, op)
        self._general(op, random_step(kernel, op, inputs, outputs, values.of_iteration()), inputs)

    def _emit_read(self, op: Operation, op_def: VariableOpDef) -> None:
        output, values = op.outputs[0], self.values
        if output in self.fed:
            return
        (name,) = self.versions.access[op].reads
        required = op_def.kernel is None and output in self.used
        value = self._version(op, name, required=required)
        if op_def.kernel is None:
            values.of[output] = value
            return
        inputs = (value, *values.all_of(op.inputs[op_def.refs :]))
        self._call(op, op_def, inputs, values.outputs(op, self.fed))

    def _version(self, op: Operation, name: str, *, required: bool) -> int:
        """Return the register of a variable's version for a node."""
        write = self.versions.before.get((op, name))
        if write is None:
            return self.values.variable(self._slot(op, name), required=required)
        return self.written[write, name]

    def _slot(self, op: Operation, name: str) -> int:
        """Return the slot of a variable that a node accesses."""
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = self.store.slot(op.graph.root._operations[name])
        return slot

    def _emit_write(self, op: Operation, op_def: VariableOpDef) -> None:
        values = self.values
        size = num_elements(op.inputs[0].spec.shape)
        is_small = size is not None and size <= _IN_PLACE_LIMIT
        update = None if is_small and op_def.kernel is not None else op_def.update
        reads = update is not None or not op_def.initializes
        names = self.versions.access[op].writes
        refs = tuple([self._version(op, name, required=reads) for name in names])
        if reads:
            self.refs[op] = refs
        inputs = values.all_of(op.inputs[op_def.refs :])
        as_built = all(self.facts[x].shape == x.spec.shape for x in self.facts.disproved & {*op.inputs})
        if update is not None and as_built and op not in self.versions.materialised:
            slots = tuple(self._slot(op, name) for name in names)
            function = _with_attrs(update, op)
            self.updates.append(Update(op, function, slots, inputs, op_def.blockwise))
            return
        outputs = tuple(values.new(size) for _ in names)
        self.written.update(((op, name), i) for name, i in zip(names, outputs, strict=True))
        if op.outputs:
            values.of[op.outputs[0]] = outputs[0]
        if update is None:
            self._call(op, op_def, inputs, outputs, refs)
        else:
            function = _with_attrs(update, op)
            step = copy_step(function, refs, inputs, outputs, blockwise=op_def.blockwise)
            self._general(op, step, (*refs, *inputs))

    def _emit_awaited(self, op: Operation, step: Callable[..., AwaitedStep] = awaited_step) -> None:
        self.plan.uses_run = True
        inputs, outputs = self.values.all_of(op.inputs), self.values.outputs(op, self.fed)
        self._outputs[op] = outputs
        self.values.external.update(dict.fromkeys(outputs, frozenset[int]()))
        self._general(op, step(op, inputs), inputs)

    def _emit_subgraphs(self, op: Operation, op_def: ControlOpDef) -> None:
        """Emit a node that runs plans, with the variables that they read and write."""
        values, plan = self.values, self.plan
        plan.uses_run = True
        reads, writes = self.versions.access.get(op, ((), ()))
        state = [
            (self._slot(op, name), self._version(op, name, required=False))
            for name in (*reads, *writes)
        ]
        plans, fed, live = [], self.fed - self.outer.variables.keys(), self.live[op]
        for tensor in op.inputs:
            if tensor not in values.of:  # an ancestor of unused outputs
                values.of[tensor] = values.new()
        taken = split_inputs(op, op.inputs)[1:]
        for i, branch in enumerate(op.attrs["branches"]):
            outer = OuterFacts.of(op, branch, taken[i], values, self.facts, fed)
            plans.append(compile_plan(self.store, live.targets[i], live.parameters[i], outer=outer))
        for inner in plans:
            plan.random |= inner.random
            plan.foreign |= inner.foreign
            plan.changes += inner.changes
            plan.repeats |= inner.repeats or (op_def.loops and bool(inner.products))
        if not op_def.awaits:  # else each plan has its own cost
            values.weight += sum(inf if op_def.loops else inner.cost.weight for inner in plans)
        inputs = values.all_of(op.inputs)
        outputs = values.outputs(op, self.fed)
        written = []
        for name in writes:
            register = self.written[op, name] = values.new()
            written.append((self._slot(op, name), register))
        used = (*inputs, *(register for _, register in state))
        produced = (*outputs, *(register for _, register in written))
        values.external.update(dict.fromkeys(produced, frozenset[int]()))
        values.alias(produced, used)
        step = subgraph_step(live.kernel, op, plans, state, inputs, written, values.of_iteration())
        self._outputs[op] = outputs
        self._general(op, step if op_def.awaits else not_waiting(step, outputs), used)

    def _call(
        self,
        op: Operation,
        op_def: OpDef | VariableOpDef,
        inputs: tuple[int, ...],
        outputs: tuple[int, ...],
        refs: tuple[int, ...] = (),
    ) -> None:
        """Emit a call of a node's kernel. Variables that it writes come first: no output is one."""
        function = _with_attrs(kernel_of(op), op)
        if op_def.aliases:
            self.values.alias(outputs, inputs)
        inputs = refs + inputs
        function = of_scalars(function, op.inputs)
        code = self.plan.code
        if len(outputs) != 1:
            code.append((int(Kind.MULTI), function, inputs, None, outputs, op))
        elif len(inputs) == 2:
            code.append((int(Kind.BINARY), function, inputs[0], inputs[1], outputs[0], op))
        elif len(inputs) == 1:
            code.append((int(Kind.UNARY), function, inputs[0], None, outputs[0], op))
        else:
            code.append((int(Kind.NARY), function, inputs, None, outputs[0], op))

    def _general(self, op: Operation, step: Any, inputs: tuple[int, ...]) -> None:
        self.plan.code.append((int(Kind.GENERAL), step, inputs, None, None, op))

    # The end of a run.

    def _finish(self, targets: Sequence[Tensor | Operation]) -> None:
        plan, values, swaps = self.plan, self.values, list[Swap]()
        for name, op in self.versions.last.items():
            register = self.written.get((op, name))
            if register is None:
                continue  # an update in place
            slot = self._slot(op, name)
            plan.versions[slot] = register
            if not self.embedded:
                variable = op.graph.root.get_operation_by_name(name).attrs
                is_owned = values.give(register)
                if not is_owned:  # the commit copies it
                    values.weight += num_elements(variable["shape"]) or 0
                swaps.append(Swap(slot, register, is_owned, variable["dtype"].numpy))
        plan.swaps = tuple(swaps)
        in_place = {slot for update in self.updates for slot in update.slots}
        shared = {i for i, slots in values.external.items() if not slots.isdisjoint(in_place)}
        self.updates = [
            replace(update, copied=tuple(i for i in update.inputs if i in shared))
            for update in self.updates
        ]
        for target in targets:
            if isinstance(target, Operation):
                plan.fetches.append(None)
                continue
            register = self._fetched(target)
            plan.fetches.append(
                register if register is None else Fetch(register, values.give(register))
            )
        fetched = {fetch.register for fetch in plan.fetches if fetch is not None}
        self._tidy(fetched | set(plan.versions.values()))

    def _fetched(self, target: Tensor) -> int | None:
        """Return the register of a fetch; None for a variable written in place."""
        write = self.rewritten.get(target)
        if write is None:
            return self.values.of[target]
        name = target.op.attrs["variable"]
        register = self.written.get((write, name))
        if register is None:
            self.plan.late += ((len(self.plan.fetches), self.store.slot(target.op)),)
        return register

    def _tidy(self, kept: set[int]) -> None:
        """Remove dead code, plan memory, and free other large values right after their last use."""
        plan, values = self.plan, self.values
        last = {i for update in self.updates for i in update.inputs}
        plan.code = without_dead_code(plan.code, kept | last)
        large = values.large - kept - last
        if not self.embedded:
            plan.groups = tuple(group_updates(self.updates, values.new))
            plan.code, lifetimes = plan_memory(plan.code, values, kept, last)
            large -= lifetimes.keys()
            if lifetimes:
                plan.memory = MemoryPlan(lifetimes, self._flats())
        plan.code = with_frees(plan.code, large)

    def _flats(self) -> Iterable[Flat]:
        """Yield the flat arrays of inputs of update groups."""
        for group in self.plan.groups:
            for position, register in zip(group.per_variable, group.flat_inputs, strict=True):
                members = [update.inputs[position] for update in group.updates]
                yield Flat(register, group.dtype, group.nbytes, group.flat, members)


def _with_attrs(function: Any, op: Operation) -> Any:
    return partial(function, **op.attrs) if op.attrs else function
