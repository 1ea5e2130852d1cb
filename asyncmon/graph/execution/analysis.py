"""Analyses of a plan: reachable nodes, versions of variables, dead code.

A read sees the state before the run's writes, unless a data or control dependency orders it after a
write. A variable that is fetched itself is read after all of them. Writes to one variable follow each
other in the order of their construction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from itertools import chain
from typing import NamedTuple

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, OpDef, VariableOpDef
from asyncmon.graph.core.walk import ancestors, predecessors
from asyncmon.graph.execution.program import Instruction, Kind, inputs_of
from asyncmon.graph.execution.records import Live

_GENERAL, _MULTI = Kind.GENERAL, Kind.MULTI  # bound once: a plan may have 100,000 instructions


def needed_ops(
    targets: Sequence[Tensor | Operation],
    fed: Collection[Tensor],
    done: Collection[Operation] = (),
) -> list[Operation]:
    """Return the operations that targets need, in the order of their construction.

    Control dependencies that another plan executes are left out.
    """
    ops = [target.op for target in targets if target not in fed]
    if not done:
        return ancestors(ops, partial(predecessors, fed=fed))
    return ancestors(ops, lambda op: [x for x in predecessors(op, fed) if x not in done])


class Uses(NamedTuple):
    """The operations and tensors that targets need.

    Attributes:
        ops: the operations, in the order of their construction.
        used: the tensors that nodes use.
        captured: the tensors that nodes with subgraphs use.
        lives: the computed parts of those nodes.
    """

    ops: list[Operation]
    used: set[Tensor]
    captured: set[Tensor]
    lives: dict[Operation, Live]

    @classmethod
    def of(
        cls,
        targets: Sequence[Tensor | Operation],
        fed: Collection[Tensor],
        done: Collection[Operation] = (),
    ) -> Uses:
        """Return the needs of targets. A node that runs subgraphs may be needed in part."""
        found = cls([], set(), set(), {})
        ops = needed_ops(targets, fed, done)
        some = any(isinstance(op.op_def, ControlOpDef) for op in ops)
        needed = {target.op for target in targets}
        for op in reversed(ops):  # consumers come first
            if some and op not in needed:
                continue
            inputs: Sequence[Tensor] = op.inputs[op.op_def.refs :]
            if isinstance(op.op_def, ControlOpDef):
                live = op.op_def.live
                wanted = found.used.union(found.captured, targets)
                found.lives[op] = live(op, wanted) if live else Live.all_of(op)
                inputs = found.lives[op].inputs
                found.captured.update(inputs)
            else:
                found.used.update(inputs)
            found.ops.append(op)
            if some:
                needed.update([tensor.op for tensor in inputs if tensor not in fed])
                needed.update(op.control)
        found.ops.reverse()
        return found


# --- versions of variables --------------------------------------------------------------------------


class Access(NamedTuple):
    """The variables, by name, that a node reads and writes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]

    @classmethod
    def of(cls, op: Operation) -> Access | None:
        """Return the variables that an op accesses, or None."""
        op_def = op.op_def
        if isinstance(op_def, VariableOpDef):
            refs = [tensor.op for tensor in op.inputs[: op_def.refs]] or [op]
            names = tuple(ref.attrs["variable"] for ref in refs)
            return cls((), names) if op_def.changes else cls(names, ())
        if not isinstance(op_def, ControlOpDef):
            return None
        reads: dict[str, None] = {}
        writes: dict[str, None] = {}
        for branch in op.attrs["branches"]:
            reads.update(dict.fromkeys(branch.variables.values()))
            for access in filter(None, map(cls.of, branch.get_operations())):
                reads.update(dict.fromkeys(access.reads))
                writes.update(dict.fromkeys(access.writes))
        only_read = tuple(name for name in reads if name not in writes)
        return cls(only_read, tuple(writes)) if reads or writes else None


class Versions:
    """The version of a variable that each node of a plan reads or updates.

    Attributes:
        access: of the nodes that access variables.
        before: for each of these and each name: the write whose result it gets; None: the state.
        last: the last write of each name.
        materialised: writes whose result is needed before the run commits.

    Args:
        ops: of the plan, in order.
        consumed: tensors that nodes use, or that are fetched.
        embedded: whether the plan is that of a subgraph, which commits nothing.
    """

    def __init__(
        self, ops: Sequence[Operation], consumed: AbstractSet[Tensor], *, embedded: bool
    ) -> None:
        self.access = {
            op: access
            for op in ops
            if not isinstance(op.op_def, OpDef) and (access := Access.of(op)) is not None
        }
        self.before: dict[tuple[Operation, str], Operation | None] = {}
        self.last: dict[str, Operation] = {}
        writes: defaultdict[str, list[Operation]] = defaultdict(list)
        for op, access in self.access.items():
            for name in access.writes:
                self.before[op, name] = self.last.get(name)
                self.last[name] = op
                writes[name].append(op)
        bits = {op: 1 << i for i, op in enumerate(dict.fromkeys(chain(*writes.values())))}
        readers = [op for op, access in self.access.items() if access.reads]
        ordered = bits and any(map(predecessors, readers))
        done = _ancestor_bits(ops, bits) if ordered else {}
        for op in readers:
            for name in self.access[op].reads:
                found = (
                    [write for write in writes[name] if bits[write] & done[op]] if op in done else []
                )
                self.before[op, name] = found[-1] if found else None
        # Only a single write whose result is not used in the run is left for the commit.
        self.materialised = {op for op in bits if embedded or not consumed.isdisjoint(op.outputs)}
        for (op, _name), write in self.before.items():
            if write is not None:
                self.materialised.update((op, write))


def _ancestor_bits(ops: Sequence[Operation], own: Mapping[Operation, int]) -> dict[Operation, int]:
    """Return, for each op, the set of writers among its ancestors and itself, as bits."""
    bits: dict[Operation, int] = {}
    for op in ops:
        found = own.get(op, 0)
        for before in predecessors(op):
            found |= bits.get(before, 0)
        if found:
            bits[op] = found
    return bits


# --- liveness ---------------------------------------------------------------------------------------


def without_dead_code(code: Sequence[Instruction], needed: Collection[int]) -> list[Instruction]:
    """Remove pure instructions without consumers, as constant folding produces."""
    used = set(needed)
    kept = []
    for instruction in reversed(code):
        kind, _function, _a, _b, out, op = instruction
        is_used = not used.isdisjoint(out) if kind == _MULTI else out in used
        if is_used or kind == _GENERAL or (op is not None and op.op_def.stateful):
            used.update(inputs_of(instruction))
            kept.append(instruction)
    kept.reverse()
    return kept


def with_frees(code: Sequence[Instruction], large: set[int]) -> list[Instruction]:
    """Free each of these registers right after its last use."""
    if not large:
        return list(code)
    result: list[Instruction] = []
    for instruction in reversed(code):
        inputs = inputs_of(instruction)
        if not large.isdisjoint(inputs):
            last = tuple(dict.fromkeys(i for i in inputs if i in large))
            result.append((int(Kind.FREE), None, last, None, None, None))
            large.difference_update(last)
        result.append(instruction)
    result.reverse()
    return result
