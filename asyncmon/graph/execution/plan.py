"""A plan: everything that was worked out once about a set of fetches and feeds, and how it is executed.

Values live in numbered registers. The code is a list of instructions, one or two a node, in an order in
which every input is there before it is needed; an instruction is ``(kind, function, a, b, out, op)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from asyncmon.error_text import add_note, text_of
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.execution.pace import Pace
from asyncmon.graph.execution.state import uninitialized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from asyncmon.graph.core.node import Operation
    from asyncmon.graph.execution.arena import Arena, Layout
    from asyncmon.graph.execution.buffers import Buffers
    from asyncmon.graph.execution.feeds import Feed
    from asyncmon.graph.execution.run_state import Run
    from asyncmon.graph.execution.specialise import Programs
    from asyncmon.graph.execution.stages import Stage
    from asyncmon.graph.execution.update import UpdateGroup

__all__ = [
    "Fetch",
    "Instruction",
    "Kind",
    "Plan",
    "Program",
    "Read",
    "Swap",
    "Update",
    "execute",
    "execute_bare",
    "execute_checked",
    "located",
    "raise_located",
]

Instruction = tuple[int, Any, Any, Any, Any, "Operation | None"]
"""Kind, function (None in a ``FREE``), two inputs, output, the node: what each is, the kind says."""


class Kind(IntEnum):
    """What an instruction does with its function ``f`` and its registers."""

    FREE = 0  # forget the registers in a
    UNARY = 1  # out = f(a)
    BINARY = 2  # out = f(a, b)
    NARY = 3  # out = f(*a)
    MULTI = 4  # *out = f(*a)
    GENERAL = 5  # f(run, registers)
    UNARY_INTO = 6  # out = f(a, out): what out holds is written into, unless it is None
    BINARY_INTO = 7  # out = f(a, b, out)
    NARY_INTO = 8  # out = f(*a, out)


@dataclass(frozen=True, slots=True)
class Read:
    """Load a variable. ``required``: it must be initialised."""

    slot: int
    register: int
    name: str
    required: bool


@dataclass(frozen=True, slots=True)
class Swap:
    """Store a register as the new value of a variable.

    ``owned``: nobody else holds the array, so that it need not be copied.
    """

    slot: int
    register: int
    owned: bool
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None

    def value(self, value: Any) -> Any:
        """Return the array to store.

        Raises:
            InvalidArgumentError: it does not have the variable's shape.
        """
        if value.__class__ is self.dtype.type and self.shape == ():
            return value  # a numpy scalar, which never changes
        if not isinstance(value, np.ndarray | np.generic):
            value = np.array(value, self.dtype)
        shape = self.shape
        if shape is not None and value.shape != shape:
            raise InvalidArgumentError(
                f"Cannot assign a value of shape {value.shape} to variable {self.name!r} "
                f"of shape {shape}."
            )
        if value.dtype != self.dtype:
            return np.array(value, self.dtype, order="C")
        if isinstance(value, np.ndarray) and not (
            self.owned and value.flags.c_contiguous and value.base is None
        ):
            return value.copy()
        return value


@dataclass(frozen=True, slots=True)
class Update:
    """An in-place state op, put off to the apply phase."""

    op: Operation
    function: Callable[..., None]
    slots: tuple[int, ...]
    names: tuple[str, ...]
    inputs: tuple[int, ...]
    blockwise: bool
    copied: tuple[int, ...] = ()
    """Those of ``inputs`` that may share memory with a variable that is updated in place."""

    def but_copying(self, inputs: Sequence[int]) -> Update:
        """Return this update with some of its inputs to be copied first."""
        return replace(self, copied=tuple(inputs))


@dataclass(frozen=True, slots=True)
class Fetch:
    """A register handed out. ``fresh``: as it is, for nobody will write to it or sees it otherwise."""

    register: int
    fresh: bool

    def of(self, array: np.ndarray[Any, Any]) -> Any:
        """Return what is handed out for what is in the register."""
        if array.ndim == 0:
            return array[()]
        return array if self.fresh else array.copy()


@dataclass(frozen=True, slots=True)
class Program:
    """A plan for the shapes that are fed: every rule has accepted them, or its node is checked."""

    code: list[Instruction]
    layout: Layout | None  # None: nothing lies in the arena

    @property
    def heavy(self) -> bool:
        """Whether large products are cut up."""
        return self.layout is not None and self.layout.heavy

    def place(self, arena: Arena, registers: list[Any]) -> None:
        """Put what lies in the arena into registers."""
        if self.layout is not None:
            for register, array in arena.views(self.layout):
                registers[register] = array


@dataclass(slots=True)
class Plan:
    """See the module."""

    template: list[Any] = field(default_factory=list)
    feeds: list[tuple[Feed, int]] = field(default_factory=list)
    open_feeds: list[int] = field(default_factory=list)  # those of no known size, by position
    prelude: Stage | None = None  # before the state is looked at
    reads: list[Read] = field(default_factory=list)
    stage: Stage | None = None  # awaiting nodes that depend on the state
    code: list[Instruction] = field(default_factory=list)
    swaps: list[Swap] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    groups: list[UpdateGroup] = field(default_factory=list)  # of the updates
    fetches: list[Fetch | None] = field(default_factory=list)
    buffers: Buffers | None = None
    programs: Programs | None = None
    versions: dict[int, int] = field(default_factory=dict)  # slot -> register; of a subgraph's plan
    random: bool = False
    uses_run: bool = False
    foreign: bool = False  # calls code of the user's
    iteration: int | None = None  # the register of :meth:`Registers.of_iteration`
    loops: bool = False  # repeats what nobody knows how often
    changes: list[str] = field(default_factory=list)  # names of ops that change what the session holds
    pace: Pace = field(default_factory=Pace)

    @property
    def locks(self) -> bool:
        """Whether runs of this plan must come one after another."""
        return bool(self.swaps or self.updates or self.random)

    @property
    def waits(self) -> bool:
        """Whether something in it is awaited."""
        return self.prelude is not None or self.stage is not None

    @property
    def can_begin_anew(self) -> bool:
        """Whether a run may be left in a loop, before it commits, and begun again."""
        return self.loops and not self.foreign

    def size(self, fed: Sequence[Any]) -> int:
        """Return how many elements are fed where there can be more or fewer."""
        return sum([fed[i].size for i in self.open_feeds]) if self.open_feeds else 0

    def start(self, fed: Sequence[Any]) -> list[Any]:
        """Return registers with constants and fed values in them."""
        registers = self.template.copy()
        if fed:
            for (_feed, register), value in zip(self.feeds, fed, strict=True):
                registers[register] = value
        return registers

    def load(self, registers: list[Any], values: Any) -> None:
        """Put the variables that are read into registers.

        Raises:
            FailedPreconditionError: one is not initialised.
        """
        for read in self.reads:
            value = values[read.slot]
            if value is None and read.required:
                raise uninitialized(read.name)
            registers[read.register] = value

    def for_shapes(self, fed: Sequence[Any]) -> Program:
        """Return the program for the shapes of these values.

        Raises:
            InvalidArgumentError: the rule of a node refuses them.
        """
        assert self.programs is not None, "the compiler sets it"
        return self.programs.of(fed)

    def results(self, registers: list[Any]) -> list[Any]:
        """Return what was fetched; None for operations."""
        results: list[Any] = []
        for fetch in self.fetches:
            value = None if fetch is None else registers[fetch.register]
            if fetch is not None and isinstance(value, np.ndarray):
                value = fetch.of(value)
            results.append(value)
        return results


@np.errstate(all="ignore")
def execute(code: Iterable[Instruction], registers: list[Any], run: Run | None) -> None:
    """Run instructions, without floating point warnings."""
    execute_bare(code, registers, run)


def execute_bare(code: Iterable[Instruction], registers: list[Any], run: Run | None) -> None:
    """Run instructions, as fast as they go. The caller has turned floating point warnings off."""
    op = None
    try:
        for kind, function, a, b, out, op in code:  # noqa: B007  # op: for the error
            if kind == 7:
                registers[out] = function(registers[a], registers[b], registers[out])
            elif kind == 6:
                registers[out] = function(registers[a], registers[out])
            elif kind == 2:
                registers[out] = function(registers[a], registers[b])
            elif kind == 1:
                registers[out] = function(registers[a])
            elif kind == 3:
                registers[out] = function(*[registers[i] for i in a])
            elif kind == 8:
                registers[out] = function(*[registers[i] for i in a], registers[out])
            elif kind == 0:
                for i in a:
                    registers[i] = None
            elif kind == 5:
                function(run, registers)
            else:
                values = function(*[registers[i] for i in a])
                for i, value in zip(out, values, strict=True):
                    registers[i] = value
    except Exception as error:
        raise_located(error, op)


@np.errstate(all="ignore")
def execute_checked(code: list[Instruction], registers: list[Any], run: Run) -> None:
    """Run instructions, stop where the run is aborted, and note what each took if that is asked."""
    if run.trace is None:
        execute_bare(_until_aborted(code, run), registers, run)
        return
    for instruction in _until_aborted(code, run):
        before = perf_counter()
        execute_bare((instruction,), registers, run)
        op, out = instruction[5], instruction[4]
        if op is not None:
            outputs = out if isinstance(out, tuple) else () if out is None else (out,)
            run.note(op, before, [registers[i] for i in outputs])


def _until_aborted(code: Iterable[Instruction], run: Run) -> Iterator[Instruction]:
    for instruction in code:
        if run.error is not None:
            run.error.__dict__["_asyncmon_located"] = True  # it does not come from a node
            raise run.error
        yield instruction


def raise_located(error: Exception, op: Operation | None) -> NoReturn:
    """Raise an error that is being handled, told at which node it arose."""
    found = located(error, op)
    try:
        if found is error:
            raise error
        raise found from error
    finally:
        del error, found  # they refer to this frame, and so to those around it, with all arrays


def located(error: Exception, op: Operation | None) -> Exception:
    """Say at which node an error arose; numpy's complaints about values become InvalidArgumentError."""
    if op is None or getattr(error, "_asyncmon_located", False):
        return error
    where = f"at node {op.name!r} ({op.type})"
    if (
        isinstance(error, ValueError | TypeError | IndexError | ZeroDivisionError)
        and not op.op_def.foreign
    ):
        error = InvalidArgumentError(f"{text_of(error)} [{where}]")
    else:
        add_note(error, f"asyncmon: {where}")
    error.__dict__["_asyncmon_located"] = True  # nested plans say it once
    return error
