"""A plan: the compiled form of a set of fetches and feeds, for all shapes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.execution.awaits import Stage
from asyncmon.graph.execution.facts import Facts
from asyncmon.graph.execution.feeds import Feed
from asyncmon.graph.execution.memory import Layout, MemoryPlan
from asyncmon.graph.execution.program import Instruction, Registers, outputs_of
from asyncmon.graph.execution.records import Fetch, Read, Swap
from asyncmon.graph.execution.specialise import ShapeRules
from asyncmon.graph.execution.update import UpdateGroup
from asyncmon.graph.numerics.blas import blas_threads
from asyncmon.graph.numerics.parallel import CORES
from asyncmon.system.cost import CostModel

Kernel = Callable[..., Any]

_PROGRAMS = 256  # cached by a plan
_SMALL = 1 << 18  # multiplications of a product: some µs, where looking for another kernel counts
_HEAVY = 1 << 25  # multiplications of a program: about a millisecond of one core


@dataclass(slots=True, eq=False)
class Program:
    """A plan for given shapes of the feeds: every rule has accepted them, or its node is checked.

    Attributes:
        code: computes its values.
        constants: registers and their values that are constant for these shapes.
        layout: the layout of the values in the arena; None if there are none.
        size: the number of elements of feeds of unknown shape.
        splits: whether large products are split, see
            :func:`asyncmon.graph.numerics.parallel.split_products`.
    """

    code: list[Instruction]
    constants: tuple[tuple[int, Any], ...]
    layout: Layout | None
    size: int
    splits: bool


@dataclass(slots=True, eq=False)
class Plan:
    """A compiled plan. Its code computes, then the run commits ``swaps`` and ``groups``.

    Attributes:
        rules: the shape rules of its nodes; None once all possible shapes were seen.
        template: registers filled with constants.
        constants: the constants, by register.
        feeds: the feeds, in order, and their registers.
        open_feeds: positions of the feeds of unknown shape.
        inputs: awaited nodes that do not depend on the state.
        reads: the variables to load.
        stage: awaited nodes that depend on the state.
        code: the instructions of nodes that are not awaited.
        groups: the updates in place.
        fetches: the results, None for operations.
        late: fetched variables that are written in place: the position of each, and its slot.
        memory: the values in the arena.
        products: matrix products.
        repeats: whether matrices are multiplied in a loop. Such products are too small to split between
            threads of the team, which sleep in between; the threads of BLAS spin.
        versions: for the plan of a subgraph, the registers of written variables, by slot.
        waits: whether nodes are awaited.
        locks: whether runs take the session's lock.
        random: whether random numbers are drawn.
        uses_run: whether an instruction uses the run.
        foreign: whether user code is called.
        iteration: see :meth:`asyncmon.graph.execution.values.Values.of_iteration`.
        changes: the names of operations that change the session.
        cost: the cost of its runs.
        resources: the queues and readers of its session; None: those of the executor.
    """

    rules: ShapeRules | None = None
    template: list[Any] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    feeds: Sequence[tuple[Feed, int]] = ()
    open_feeds: Sequence[int] = ()
    inputs: Stage | None = None
    reads: list[Read] = field(default_factory=list)
    stage: Stage | None = None
    code: list[Instruction] = field(default_factory=list)
    swaps: Sequence[Swap] = ()
    groups: Sequence[UpdateGroup] = ()
    fetches: list[Fetch | None] = field(default_factory=list)
    late: tuple[tuple[int, int], ...] = ()
    memory: MemoryPlan | None = None
    products: tuple[tuple[Operation, OpDef], ...] = ()
    repeats: bool = False
    versions: dict[int, int] = field(default_factory=dict)
    waits: bool = False
    locks: bool = False
    random: bool = False
    uses_run: bool = False
    foreign: bool = False
    iteration: int | None = None
    changes: tuple[str, ...] = ()
    cost: CostModel = field(default_factory=CostModel)
    resources: dict[Any, Any] | None = None
    _programs: dict[tuple[Any, ...], Program] = field(default_factory=dict)
    _codes: dict[Any, list[Instruction]] = field(default_factory=dict)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def for_shapes(self, fed: Sequence[Any]) -> Program:
        """Return the program for the shapes of these values.

        Raises:
            InvalidArgumentError: a rule refuses the shapes.
        """
        opened = self.open_feeds
        key = tuple([getattr(fed[i], "shape", ()) for i in opened]) if opened else ()
        return self._programs.get(key) or self._specialised(key, fed)

    def start(self, fed: Sequence[Any]) -> Registers:
        """Return registers with constants and fed values in them."""
        registers = self.template.copy()
        if fed:
            for (_feed, register), value in zip(self.feeds, fed, strict=True):
                registers[register] = value
        return registers

    def load(self, registers: Registers, values: Any) -> None:
        """Load variables into registers.

        Raises:
            FailedPreconditionError: a variable is not initialised.
        """
        for read in self.reads:
            value = registers[read.register] = values[read.slot]
            if value is None and read.required:
                raise read.uninitialized()

    def results(self, registers: Registers) -> list[Any]:
        """Return the fetched values; None for operations and for ``late`` fetches."""
        return [fetch and fetch.of(registers[fetch.register]) for fetch in self.fetches]

    def _specialised(self, key: tuple[Any, ...], fed: Sequence[Any]) -> Program:
        rules = self.rules
        if rules is None:  # another thread has computed it
            return self._programs[key]
        facts, unknown, asserted = rules.run(key)
        layout = None if self.memory is None else self.memory.lay_out(facts)
        size = sum([getattr(fed[i], "size", 1) for i in self.open_feeds])
        may_split = CORES > 1 and blas_threads.is_controllable and not self.repeats
        flops = self._flops(facts)
        splits = may_split and sum(flops.values()) >= _HEAVY
        direct = self._direct(facts, flops)
        folded = rules.fold(self.code, self.constants, facts)
        with self._mutex:  # runs of a plan may begin in several threads
            code = self._code(rules, tuple(unknown), tuple(asserted), frozenset(folded), direct)
            program = Program(code, tuple(folded.items()), layout, size, splits)
            while len(self._programs) >= _PROGRAMS:
                del self._programs[next(iter(self._programs))]
            self._programs[key] = program
            if not self.open_feeds:
                self.rules = None
        return program

    def _code(
        self,
        rules: ShapeRules,
        unknown: tuple[Operation, ...],
        asserted: tuple[Tensor, ...],
        folded: frozenset[int],
        direct: dict[Operation, Kernel],
    ) -> list[Instruction]:
        """Return the code without folded registers, with direct kernels, with the checks of the run."""
        key = unknown, asserted, folded, frozenset(direct)
        if not any(key):
            return self.code
        if key not in self._codes:
            if len(self._codes) >= _PROGRAMS:
                self._codes.clear()
            last = [update.op for group in self.groups for update in group.updates]
            code = rules.with_checks(self.code, unknown, asserted, last)
            self._codes[key] = [
                (x[0], direct[x[5]], *x[2:]) if x[5] in direct else x
                for x in code
                if not x[4] or folded.isdisjoint(outputs_of(x))
            ]
        return self._codes[key]

    def _flops(self, facts: Facts) -> dict[Operation, int]:
        """Return the number of multiplications in each product of known shapes."""
        found = {}
        for op, op_def in self.products:
            specs = [facts[x] for x in (*op.inputs, *op.outputs)]
            if op_def.flops is not None and all(is_known(spec.shape) for spec in specs):
                found[op] = op_def.flops(*specs, **op.attrs)
        return found

    def _direct(self, facts: Facts, flops: dict[Operation, int]) -> dict[Operation, Kernel]:
        """Return the direct kernels of small products."""
        found = {}
        for op, op_def in self.products:
            if op_def.direct is not None and 0 < flops.get(op, 0) <= _SMALL:
                specs = [facts[x] for x in (*op.inputs, *op.outputs)]
                if (kernel := op_def.direct(*specs, **op.attrs)) is not None:
                    found[op] = kernel
        return found
