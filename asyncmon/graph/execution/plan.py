"""A plan: everything that is worked out once about a set of fetches and feeds, whatever their sizes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.execution.awaits import Stage
from asyncmon.graph.execution.cost import CostModel
from asyncmon.graph.execution.facts import Facts
from asyncmon.graph.execution.feeds import Feed
from asyncmon.graph.execution.memory import Layout, MemoryPlan
from asyncmon.graph.execution.program import Instruction, Registers, outputs_of
from asyncmon.graph.execution.records import Fetch, Read, Swap
from asyncmon.graph.execution.run import Run
from asyncmon.graph.execution.specialise import ShapeRules
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.execution.update import UpdateGroup
from asyncmon.graph.numerics.blas import blas_threads
from asyncmon.graph.numerics.parallel import CORES

_PROGRAMS = 256  # that a plan remembers
_HEAVY = 1 << 25  # multiplications of a program: about a millisecond of one core


@dataclass(slots=True, eq=False)
class Program:
    """A plan for the shapes that are fed: every rule has accepted them, or its node is checked.

    Attributes:
        code: computes its values.
        constants: registers with the values that do not change for these shapes.
        layout: of those that lie in the arena; None: nothing does.
        size: how many elements are fed where there can be more or fewer.
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
    """See the module. Its code computes, then the run commits: ``swaps`` and ``groups``.

    Attributes:
        rules: of its nodes, which refuse shapes; None once no shape can be fed that was not.
        template: registers with constants in them.
        constants: these, by register.
        feeds: what is fed, in order, and the registers.
        open_feeds: positions of the feeds whose shapes are not known.
        inputs: awaited nodes that do not depend on the state.
        reads: variables that are loaded.
        stage: awaited nodes that depend on the state.
        code: instructions for what is not awaited.
        groups: of updates in place.
        fetches: what is returned, None for operations.
        late: fetched variables that are written in place: the position of each, and its slot.
        memory: which values lie in the arena.
        products: nodes that multiply matrices, and how many multiplications of numbers they are.
        repeats: whether matrices are multiplied in a loop. Such products are many and too small to be
            split between threads of the team, which sleep. Those of BLAS spin from one to the next.
        versions: of a subgraph's plan, the registers of the variables that it writes, by slot.
        waits: whether something is awaited.
        locks: whether runs must come one after another.
        random: whether random numbers are drawn.
        uses_run: whether an instruction uses the run.
        foreign: whether code of the user's is called.
        iteration: see :meth:`asyncmon.graph.execution.values.Values.of_iteration`.
        changes: the names of operations that change what the session holds.
        cost: of its runs.
        resources: what its session holds beside variables (queues); None: what the executor holds.
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
    products: tuple[tuple[Operation, Callable[..., int]], ...] = ()
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
            InvalidArgumentError: the rule of a node refuses them.
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
        """Put the variables that are read into registers.

        Raises:
            FailedPreconditionError: one is not initialised.
        """
        for read in self.reads:
            value = registers[read.register] = values[read.slot]
            if value is None and read.required:
                raise read.uninitialized()

    def results(self, registers: Registers) -> list[Any]:
        """Return what was fetched; None for operations, and for what is ``late``."""
        return [fetch and fetch.of(registers[fetch.register]) for fetch in self.fetches]

    def _specialised(self, key: tuple[Any, ...], fed: Sequence[Any]) -> Program:
        rules = self.rules
        if rules is None:  # another thread was faster
            return self._programs[key]
        facts, unknown, asserted = rules.run(key)
        layout = None if self.memory is None else self.memory.lay_out(facts)
        size = sum([getattr(fed[i], "size", 1) for i in self.open_feeds])
        may_split = CORES > 1 and blas_threads.is_controllable and not self.repeats
        splits = may_split and self._flops(facts) >= _HEAVY
        folded = rules.fold(self.code, self.constants, facts)
        with self._mutex:  # runs of a plan may begin in several threads
            code = self._code(rules, tuple(unknown), tuple(asserted), frozenset(folded))
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
    ) -> list[Instruction]:
        """Return the code for the registers that are not folded, with the checks left for the run."""
        key = unknown, asserted, folded
        if not any(key):
            return self.code
        if key not in self._codes:
            if len(self._codes) >= _PROGRAMS:
                self._codes.clear()
            last = [update.op for group in self.groups for update in group.updates]
            code = rules.with_checks(self.code, unknown, asserted, last)
            self._codes[key] = [x for x in code if not x[4] or folded.isdisjoint(outputs_of(x))]
        return self._codes[key]

    def _flops(self, facts: Facts) -> int:
        """Return how many multiplications there are in products whose shapes are known."""
        total = 0
        for op, flops in self.products:
            specs = [facts[x] for x in (*op.inputs, *op.outputs)]
            if all(is_known(spec.shape) for spec in specs):
                total += flops(*specs, **op.attrs)
        return total


def can_burst(plan: Plan, program: Program, limit: float) -> bool:
    """Return whether runs of a program, without feeds, may be executed in a burst.

    They wait for something, else they are inline anyway, and see one version of the state.
    """
    consistent = plan.stage is None or plan.locks
    return plan.inputs is not None and consistent and plan.cost.is_short(limit, program.size)


@np.errstate(all="ignore")
def burst(
    plan: Plan,
    program: Program,
    run: Run,
    store: StateStore,
    may_commit: Callable[[bool], bool],
    compute: Callable[[Registers, Run], Any],
    ends: Sequence[Callable[[], bool]],
) -> tuple[Registers, tuple[int, int]] | None:
    """Execute runs as long as none has to wait, on the loop's thread.

    Args:
        plan: what is executed.
        program: its program.
        run: stands for one run after the other, each with its own commit or end.
        store: the state.
        may_commit: whether a run that changes the state or not may commit without waiting.
        compute: computes what does not wait, and commits.
        ends: called after each run; one that is true ends the burst.

    Returns:
        For a run that has to wait: its registers, and how many nodes of its stages are done; else None.
    """
    assert plan.inputs is not None, "see can_burst"
    computes = bool(program.code or program.constants or plan.locks)
    while True:
        registers, staged, run.committed = plan.start(()), 0, False
        run.drew.clear()
        try:
            done = plan.inputs.attempt(run, registers)
            if done == plan.inputs.size and may_commit(plan.locks):
                run.random_state = store.values[0]
                plan.load(registers, store.values)
                if plan.stage is not None:
                    staged = plan.stage.attempt(run, registers)
                if plan.stage is None or staged == plan.stage.size:
                    if computes:
                        compute(registers, run)
                    run.committed = True
        except BaseException:
            run.finish()
            raise
        if not run.committed:
            return registers, (done, staged)
        run.finish()
        if any(end() for end in ends):
            return None
