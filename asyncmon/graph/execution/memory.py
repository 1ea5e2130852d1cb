"""Memory for the values of a run: planned once for given shapes, used again in every run.

An op that can write into a given array (``out=``) gets one at a fixed offset of an arena if that is
safe: nothing may refer to the value after the run. Values with disjoint lifetimes share memory.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np

from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import OpDef, Spec
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.execution.facts import Facts
from asyncmon.graph.execution.program import Instruction, Kind, Registers, inputs_of
from asyncmon.graph.execution.values import Values

_ALIGN = 64  # bytes: a cache line
_LAYOUTS = 256  # layouts whose views an arena keeps
_INTO = {
    Kind.UNARY: Kind.UNARY_INTO,
    Kind.BINARY: Kind.BINARY_INTO,
    Kind.NARY: Kind.NARY_INTO,
}


# --- lifetimes --------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Lifetime:
    """The lifetime of a value that can be in the arena, from one instruction to another."""

    tensor: Tensor
    start: int
    end: int
    may_reuse: tuple[int, ...] = ()  # registers of inputs that it may overwrite


def plan_memory(
    code: Sequence[Instruction], values: Values, escaping: Iterable[int], last: Iterable[int]
) -> tuple[list[Instruction], dict[int, Lifetime]]:
    """Find the values that can be in the arena.

    Args:
        code: the code of a plan.
        values: the values of the plan.
        escaping: registers whose arrays are returned or stored.
        last: registers that are read after the code.

    Returns:
        Code in which these values are written into the arrays that their registers hold, and their
        lifetimes by register.
    """
    lifetimes = {
        out: Lifetime(op.outputs[0], i, i)
        for i, (kind, _function, _a, _b, out, op) in enumerate(code)
        if kind in _INTO and op is not None and _takes_out(op, out, values.of)
    }
    if not lifetimes:
        return list(code), {}
    roots = {i: frozenset((i,)) for i in lifetimes}  # the candidates of which a register may be a view
    for register, others in values.aliases.items():
        if register not in lifetimes:
            roots[register] = _roots(others, roots)
    # Values that are returned to the user, stored in a variable or passed to foreign code live longer
    # than the run, and are in no arena.
    escaped = set(escaping)
    for i, instruction in enumerate(code):
        inputs, (kind, *_, out, op) = inputs_of(instruction), instruction
        for root in _roots(inputs, roots):
            lifetimes[root].end = i
        if kind == Kind.GENERAL or (op is not None and op.op_def.stateful):
            escaped.update(inputs)  # it may pass them to code that keeps them
        is_elementwise = op is not None and isinstance(op.op_def, OpDef) and op.op_def.elementwise
        if out in lifetimes and is_elementwise:  # it may overwrite an input that dies here
            lifetimes[out].may_reuse = _without_views(inputs, roots)
    for root in _roots(last, roots):
        lifetimes[root].end = len(code)
    for root in _roots(escaped, roots):
        del lifetimes[root]
    into = [(int(_INTO[Kind(x[0])]), *x[1:]) if x[4] in lifetimes else x for x in code]
    return into, lifetimes


def _roots(registers: Iterable[int], roots: Mapping[int, frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*[roots.get(i, frozenset()) for i in registers])


def _takes_out(op: Operation, register: int, of: Mapping[Tensor, int]) -> bool:
    op_def, tensor = op.op_def, op.outputs[0]
    return (
        isinstance(op_def, OpDef)
        and tensor.spec.shape != ()  # a 0-d result is a numpy scalar
        and (op_def.elementwise or op_def.out)
        and not op_def.stateful
        and of.get(tensor) == register
        and tensor.dtype.numpy.kind in "biufc"
    )


def _without_views(registers: Sequence[int], roots: Mapping[int, frozenset[int]]) -> tuple[int, ...]:
    """Return the candidates among these registers of which no other one is a view."""
    return tuple(
        i
        for i in dict.fromkeys(registers)
        if i in roots.get(i, ()) and not any(i in roots.get(j, ()) for j in registers if j != i)
    )


# --- offsets ----------------------------------------------------------------------------------------


class Flat(NamedTuple):
    """A flat array in an arena.

    Attributes:
        register: the register of the result of ``make``.
        dtype: the dtype of its elements.
        nbytes: its size in bytes.
        make: returns an object with ``parts`` for the array.
        members: the register of each part; None for a part that values are copied to.
    """

    register: int
    dtype: np.dtype[Any]
    nbytes: int
    make: Callable[[Any], Any]
    members: Sequence[int | None]


@dataclass(slots=True, eq=False)
class Layout:
    """The offsets of a program's values, and the memory that they need."""

    places: Sequence[tuple[int, int, Spec]]
    flats: Sequence[tuple[Flat, int]]
    nbytes: int

    def views(self, memory: Any) -> list[tuple[int, Any]]:
        """Return registers with the arrays to put there."""
        views: list[tuple[int, Any]] = []
        for register, at, spec in self.places:
            array = memory[at : at + _nbytes(spec)].view(spec.dtype.numpy)
            views.append((register, array.reshape(spec.shape)))
        for flat, at in self.flats:
            found = flat.make(memory[at : at + flat.nbytes].view(flat.dtype))
            views.append((flat.register, found))
            views += [
                (i, part) for i, part in zip(flat.members, found.parts, strict=True) if i is not None
            ]
        return views


class MemoryPlan:
    """The values of a plan in an arena.

    Args:
        lifetimes: the lifetimes of the values, by register, in the order of their starts.
        flats: arrays that contain values. They live for the whole run.
    """

    def __init__(self, lifetimes: Mapping[int, Lifetime], flats: Iterable[Flat]) -> None:
        self._lifetimes = dict(lifetimes)
        self._flats = [flat._replace(members=list(map(self._join, flat.members))) for flat in flats]

    def _join(self, register: int | None) -> int | None:
        """Make a value a part of a flat array, unless it is a part of another one."""
        found = None if register is None else self._lifetimes.pop(register, None)
        return None if found is None else register

    def lay_out(self, facts: Facts) -> Layout:
        """Assign each value of known shape an offset, disjoint from concurrent values."""
        free = FreeList()
        flats = [(flat, free.alloc(flat.nbytes)) for flat in self._flats]
        places: dict[int, tuple[int, Spec]] = {}
        ending: defaultdict[int, list[int]] = defaultdict(list)
        now = 0
        for register, lifetime in self._lifetimes.items():
            spec = facts[lifetime.tensor]
            if not spec.shape or not is_known(spec.shape):
                continue
            for i in range(now, lifetime.start):
                for ended in ending.pop(i, ()):
                    free.free(places[ended][0], _nbytes(places[ended][1]))
            now = lifetime.start
            fitting = (i for i in lifetime.may_reuse if i in ending[now] and places[i][1] == spec)
            reused = next(fitting, None)
            if reused is None:
                at = free.alloc(_nbytes(spec))
            else:
                ending[now].remove(reused)
                at = places[reused][0]
            places[register] = at, spec
            ending[lifetime.end].append(register)
        return Layout([(i, at, spec) for i, (at, spec) in places.items()], flats, free.size)


class FreeList:
    """A free list of memory blocks, in order, and the total size."""

    def __init__(self) -> None:
        self.size = 0
        self._free: list[tuple[int, int]] = []  # from, to

    def alloc(self, size: int) -> int:
        """Return the offset of the smallest block that is large enough."""
        size = _rounded(size)
        fits = [(to - start, i) for i, (start, to) in enumerate(self._free) if to - start >= size]
        if fits:
            _, i = min(fits)
            start, to = self._free.pop(i)
        elif self._free and self._free[-1][1] == self.size:
            start, _ = self._free.pop()
            to = self.size = start + size
        else:
            start = self.size
            to = self.size = start + size
        if to - start > size:
            insort(self._free, (start + size, to))
        return start

    def free(self, start: int, size: int) -> None:
        """Free a block."""
        to = start + _rounded(size)
        i = bisect(self._free, (start, to))
        if i < len(self._free) and self._free[i][0] == to:
            to = self._free.pop(i)[1]
        if i and self._free[i - 1][1] == start:
            i -= 1
            start = self._free.pop(i)[0]
        self._free.insert(i, (start, to))


class Arena:
    """Memory for the values of one run at a time."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._views: dict[Layout, list[tuple[int, Any]]] = {}

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return self._memory.nbytes

    def place(self, layout: Layout, registers: Registers) -> None:
        """Put the arrays of a layout into registers."""
        views = self._views.get(layout)
        if views is None:
            if layout.nbytes > self._memory.nbytes or len(self._views) >= _LAYOUTS:
                self._views.clear()  # they keep the old memory alive
            if layout.nbytes > self._memory.nbytes:
                memory = np.empty(layout.nbytes + _ALIGN, np.uint8)
                self._memory = memory[-memory.ctypes.data % _ALIGN :][: layout.nbytes]
            views = self._views[layout] = layout.views(self._memory)
        for register, array in views:
            registers[register] = array


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _nbytes(spec: Spec) -> int:
    return prod(d for d in spec.shape or () if d is not None) * spec.dtype.numpy.itemsize
