"""Which version of a variable each node of a plan sees.

The rules: a read sees the state before the run's writes, unless a data or control dependency puts it
after a write; writes to one variable follow each other in the order in which they were built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.core.op import ControlOpDef, VariableOpDef
from asyncmon.graph.core.walk import predecessors

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from asyncmon.graph.core.node import Operation, Tensor

__all__ = ["Access", "Versions"]


class Access:
    """The variables, by name, that a node reads and those that it writes."""

    __slots__ = ("reads", "writes")

    def __init__(self, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> None:
        self.reads = tuple(reads)
        self.writes = tuple(writes)

    @classmethod
    def of(cls, op: Operation) -> Access | None:
        """Return what an op touches, or None if nothing."""
        op_def = op.op_def
        if isinstance(op_def, VariableOpDef):
            refs = [tensor.op for tensor in op.inputs[: op_def.refs]] or [op]
            names = [ref.attrs["variable"] for ref in refs]
            return cls((), names) if op_def.changes else cls(names)
        if isinstance(op_def, ControlOpDef):
            reads: dict[str, None] = {}
            writes: dict[str, None] = {}
            for branch in op.attrs["branches"]:
                reads.update(dict.fromkeys(branch.variables.values()))
                for inner in branch.get_operations():
                    access = cls.of(inner)
                    if access is not None:
                        reads.update(dict.fromkeys(access.reads))
                        writes.update(dict.fromkeys(access.writes))
            if reads or writes:
                return cls([name for name in reads if name not in writes], writes)
        return None


class Versions:
    """The analysis of one plan.

    Attributes:
        access: what each node touches, for those that touch something.
        before: for each write and name: the write whose result it goes on from; None: the state.
        seen: for each read and name: the write it is ordered after; None: the state.
        early: writes whose result is needed before the run commits.
    """

    def __init__(
        self,
        ops: Sequence[Operation],
        consumed: Collection[Tensor],
        all_early: bool = False,
    ) -> None:
        self.access = {op: access for op in ops if (access := Access.of(op)) is not None}
        writers = [op for op, access in self.access.items() if access.writes]
        self.before: dict[tuple[Operation, str], Operation | None] = {}
        self.seen: dict[tuple[Operation, str], Operation | None] = {}
        self.last: dict[str, Operation] = {}
        for op in writers:
            for name in self.access[op].writes:
                self.before[op, name] = self.last.get(name)
                self.last[name] = op
        self._find_ordered_reads(ops, writers)
        self.early = self._early(writers, consumed, all_early)

    def _find_ordered_reads(self, ops: Sequence[Operation], writers: list[Operation]) -> None:
        readers = [op for op, access in self.access.items() if access.reads]
        ordered = writers and any(map(predecessors, readers))
        ancestors = _ancestor_bits(ops, {op: 1 << i for i, op in enumerate(writers)}) if ordered else {}
        by_name: dict[str, list[int]] = {}
        for i, op in enumerate(writers):
            for name in self.access[op].writes:
                by_name.setdefault(name, []).append(i)
        for op in readers:
            bits = ancestors.get(op, 0)
            for name in self.access[op].reads:
                latest = None
                if bits:
                    before = [i for i in by_name.get(name, ()) if bits >> i & 1]
                    latest = writers[before[-1]] if before else None
                self.seen[op, name] = latest

    def _early(
        self, writers: list[Operation], consumed: Collection[Tensor], all_early: bool
    ) -> set[Operation]:
        """Put off only a variable's one write, and only when nothing in the run needs its result."""
        if all_early:
            return set(writers)
        needed = {write for write in self.seen.values() if write is not None}
        needed.update(op for op in writers if any(output in consumed for output in op.outputs))
        for (op, _name), before in self.before.items():
            if before is not None:
                needed.update((op, before))
        return needed


def _ancestor_bits(ops: Sequence[Operation], own: dict[Operation, int]) -> dict[Operation, int]:
    """Return, for each op, the set of writers among its ancestors and itself, as bits."""
    bits: dict[Operation, int] = {}
    for op in ops:
        found = own.get(op, 0)
        for before in predecessors(op):
            found |= bits.get(before, 0)
        if found:
            bits[op] = found
    return bits
