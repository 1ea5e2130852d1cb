"""Partition a run into parts for single tasks: values are pulled, used, and pushed.

A part is the work of one place at one stage. It depends only on parts of earlier stages, so the parts
of a stage run concurrently. An operation is in the last possible stage, which keeps the number of parts
small. A training step on variables of servers has three stages: each server sends values of its
variables, the worker computes, each server applies its updates. Awaited inputs, such as elements of a
queue, have a stage before these.

If an operation only has a control dependency on one of another server, both are in one stage: the
writes of a run are sent to all servers at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncmon.distributed.placement import OWN, Placement, is_constant
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef
from asyncmon.graph.execution.analysis import Access, needed_ops
from asyncmon.graph.execution.awaits import BEFORE_LOCK, stages_of


@dataclass(slots=True, eq=False)
class Part:
    """The work of one place at one stage.

    Attributes:
        place: the place.
        stage: the stage.
        fetches: outputs needed by other parts.
        feeds: inputs from other parts.
        done: dependencies executed earlier by other places.
        plan: the plan of the place's backend.
    """

    place: str
    stage: int
    fetches: list[Tensor | Operation] = field(default_factory=list)
    feeds: list[Tensor] = field(default_factory=list)
    done: list[Operation] = field(default_factory=list)
    plan: Any = None

    def position(self, element: Tensor | Operation) -> int:
        """Return the position of a fetch in the results; add it if it is new."""
        if element not in self.fetches:
            self.fetches.append(element)
        return self.fetches.index(element)


@dataclass(slots=True, eq=False)
class Partition:
    """Attributes:
    stages: the parts, stage by stage.
    sources: for each target: its part and its position in the results; the number of a fed value;
        or None for an operation.
    changes: the names of operations that change the state of a place.
    """

    stages: list[list[Part]]
    sources: list[tuple[Part, int] | int | None]
    changes: list[str]


def partition(
    targets: Sequence[Tensor | Operation], fed: Sequence[Tensor], placement: Placement
) -> Partition:
    """Partition the operations that the targets need.

    Raises:
        InvalidArgumentError: an operation cannot be placed.
    """
    return _Cut(targets, fed, placement).result()


class _Cut:
    def __init__(
        self, targets: Sequence[Tensor | Operation], fed: Sequence[Tensor], placement: Placement
    ) -> None:
        self.targets, self.fed = targets, list(fed)
        given = frozenset(fed)
        self.constants: set[Tensor] = set()
        self.ops: list[Operation] = []
        needed = needed_ops(targets, given)
        for op in needed:
            if is_constant(op, self.constants) and given.isdisjoint(op.outputs):
                self.constants.update(op.outputs)
            else:
                self.ops.append(op)
        self.given = given
        self.ops = [op for op in self.ops if op.type != "NoOp"]  # it only orders others
        self.access = {
            op: found
            for op in needed
            if not isinstance(op.op_def, OpDef) and (found := Access.of(op)) is not None
        }
        waits = stages_of(needed, given, self.access)
        self.ops.sort(key=lambda op: waits.get(op) != BEFORE_LOCK)
        self.inputs = [op for op in self.ops if op.op_def.awaits and waits[op] == BEFORE_LOCK]
        """The awaited operations that do not depend on the state, on all servers."""
        self.places = {op: placement.place(op) for op in self.ops}
        for op in needed:
            placement.check(op)
        self.pulled = {
            x.op.attrs["variable"]: x.op
            for op in self.ops
            for x in op.inputs[op.op_def.refs :]
            if x.op.type == "VariableV2" and self.places.get(x.op, self.places[op]) != self.places[op]
        }
        """The variables whose values before the run's writes are used by other places."""
        self.stage = self._stages()
        self.parts: dict[tuple[int, str], Part] = {}

    # Which stage.

    def _values(self, op: Operation) -> Iterator[Operation]:
        """Yield the producers of an operation's inputs."""
        for tensor in op.inputs[op.op_def.refs :]:
            if tensor not in self.given and tensor not in self.constants:
                yield tensor.op

    def _before(self, op: Operation) -> Iterator[Operation]:
        """Yield the dependencies of an operation, also through operations replicated to each place."""
        stack, seen = self._everywhere(op), set[Any]()
        while stack:
            other = stack.pop()
            if other in seen:
                continue
            seen.add(other)
            if other in self.places:
                yield other
            else:
                stack += self._everywhere(other)

    def _everywhere(self, op: Operation) -> list[Operation]:
        constant = [x.op for x in op.inputs if x in self.constants and x not in self.given]
        return [*op.control, *constant]

    def _step(self, before: Operation, op: Operation, *, is_order: bool) -> int:
        """Return the minimum number of stages between two operations."""
        here, there = self.places[op], self.places[before]
        if here == there or (is_order and OWN not in (here, there)):
            return 0
        return 1

    def _edges(self, op: Operation) -> Iterator[tuple[Operation, int]]:
        for before in self._values(op):
            yield before, self._step(before, op, is_order=False)
        for before in self._before(op):
            yield before, self._step(before, op, is_order=True)
        if op in self.access:
            for before in self.inputs:
                yield before, self._step(before, op, is_order=False)
            for name in self.access[op].writes:
                if name in self.pulled:
                    yield self.pulled[name], 1

    def _stages(self) -> dict[Operation, int]:
        first: dict[Operation, int] = {}
        for op in self.ops:
            first[op] = max([first[x] + step for x, step in self._edges(op)], default=0)
        last: dict[Operation, int] = {}
        for op in reversed(self.ops):  # operations without consumers run as early as possible
            last.setdefault(op, first[op])
            for before, step in self._edges(op):
                last[before] = min(last.get(before, last[op] - step), last[op] - step)
        return last

    # The parts.

    def result(self) -> Partition:
        """Return the parts of the run."""
        changes, used = [], set[Any]()
        for op in self.ops:
            part = self._part(op)
            if op.op_def.changes:
                changes.append(op.name)
            for tensor in op.inputs[op.op_def.refs :]:
                self._use(part, tensor, used)
            for before in self._before(op):
                if self._part(before) is not part:
                    part.done.append(before)
                else:
                    used.add(before)
        sources = [self._source(target) for target in self.targets]
        for op in self.ops:
            part = self._part(op)
            if (
                op.type != "VariableV2"
                and used.isdisjoint((op, *op.outputs))
                and not {op, *op.outputs} & {*part.fetches}
            ):
                part.fetches.append(op)
        stages: dict[int, list[Part]] = defaultdict(list)
        for (stage, _place), part in sorted(self.parts.items(), key=lambda item: item[0]):
            stages[stage].append(part)
        return Partition([stages[stage] for stage in sorted(stages)], sources, changes)

    def _part(self, op: Operation) -> Part:
        key = self.stage[op], self.places[op]
        if key not in self.parts:
            self.parts[key] = Part(key[1], key[0])
        return self.parts[key]

    def _use(self, part: Part, tensor: Tensor, used: set[Any]) -> None:
        """Feed a value to a part."""
        if tensor in self.constants:
            return
        if tensor in self.given:
            if tensor not in part.feeds:
                part.feeds.append(tensor)
            return
        source = self._part(tensor.op)
        if source is part:
            used.add(tensor)
        elif tensor not in part.feeds:
            source.position(tensor)
            part.feeds.append(tensor)

    def _source(self, target: Tensor | Operation) -> tuple[Part, int] | int | None:
        if not isinstance(target, Tensor):
            if target in self.places:
                self._part(target).position(target)
            return None
        if target in self.given:
            return self.fed.index(target)
        if target in self.constants:
            part = self.parts.setdefault((0, OWN), Part(OWN, 0))
            return part, part.position(target)
        part = self._part(target.op)
        if target.op.type == "VariableV2":  # read after the run's writes
            name = target.op.attrs["variable"]
            for op in self.ops:
                if op in self.access and name in self.access[op].writes:
                    part = max(part, self._part(op), key=lambda x: x.stage)
        return part, part.position(target)
