"""Memory that a plan's values lie in: laid out once, used again in every run.

An op that can write into a given array (``out=``) gets one at a fixed place of the session's arena,
where that is safe: nobody may see the value when the run is over. Places are given out by lifetime, so
that values that do not live together share memory, and an elementwise op writes over an input that is
not needed any more. What is handed to the user, stored in a variable or shown to foreign code is never
here.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.graph.core.op import OpDef
from asyncmon.graph.core.shape import is_known
from asyncmon.graph.execution.arena import Layout, Space, numpy_dtype, size_of
from asyncmon.graph.execution.liveness import inputs_of, outputs_of
from asyncmon.graph.execution.plan import Kind
from asyncmon.graph.kernels.blas import blas_threads
from asyncmon.graph.kernels.parallel import CORES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from asyncmon.graph.core.node import Operation, Tensor
    from asyncmon.graph.core.spec import Spec
    from asyncmon.graph.execution.plan import Instruction, Plan
    from asyncmon.graph.execution.registers import Registers
    from asyncmon.graph.execution.update import UpdateGroup

__all__ = ["Buffers", "plan_buffers"]

_HEAVY = 1 << 25  # multiplications of a plan: about a millisecond of one core
_INTO = {
    Kind.UNARY: Kind.UNARY_INTO,
    Kind.BINARY: Kind.BINARY_INTO,
    Kind.NARY: Kind.NARY_INTO,
}


class _Value:
    """A value that can lie in the arena, and when: from one instruction to another."""

    __slots__ = ("end", "over", "start", "tensor")

    def __init__(self, tensor: Tensor, start: int) -> None:
        self.tensor = tensor
        self.start = self.end = start
        self.over: tuple[int, ...] = ()  # registers of inputs that it may be written over


class Buffers:
    """Which values of a plan lie in the arena.

    Attributes:
        code: the plan's code, in which they are written into what their registers hold.
    """

    def __init__(
        self,
        plan: Plan,
        code: list[Instruction],
        values: Mapping[int, _Value],
        ops: Sequence[Operation],
    ) -> None:
        self.code = code
        self._groups = [group for group in plan.groups if group.is_flat]
        self._values = values
        self._ops = ops

    def lay_out(self, specs: Mapping[Tensor, Spec]) -> Layout:
        """Return where values lie, for these specs of tensors."""
        heavy = (
            CORES > 1 and blas_threads.is_controllable and _multiplications(self._ops, specs) >= _HEAVY
        )
        return _laid_out(self._values, specs, self._groups, heavy=heavy)


def plan_buffers(plan: Plan, registers: Registers, stored: set[int], ops: Sequence[Operation]) -> None:
    """Find the values of a plan that can lie in the arena, and have them written into what is there.

    Args:
        plan: complete but for this.
        registers: of the plan.
        stored: registers whose arrays become variables.
        ops: of the plan, in order.
    """
    roots: dict[int, frozenset[int]] = {}
    values, into = _candidates(plan.code, registers, roots)
    if not values:
        return
    escaped = stored | {fetch.register for fetch in plan.fetches if fetch is not None}
    escaped |= {i for instruction in plan.code if _shows(instruction) for i in inputs_of(instruction)}
    for i, instruction in enumerate(plan.code):
        if instruction[0] != Kind.FREE:
            for root in _roots(inputs_of(instruction), roots):
                values[root].end = i
    for update in plan.updates:
        for root in _roots(update.inputs, roots):
            values[root].end = len(plan.code)
    for root in _roots(escaped, roots):
        del values[root]
    if values:
        pairs = list(zip(plan.code, into, strict=True))
        code = [new if new[4] in values else old for old, new in pairs]
        plan.buffers = Buffers(plan, _without_frees(code, values), values, ops)


def _candidates(
    code: Iterable[Instruction], registers: Registers, roots: dict[int, frozenset[int]]
) -> tuple[dict[int, _Value], list[Instruction]]:
    """Return what could lie in the arena, and the code for the case that it does.

    ``roots`` is filled with the candidates that each register may be, or be a view of.
    """
    values: dict[int, _Value] = {}
    into = []
    for i, instruction in enumerate(code):
        kind, function, a, b, out, op = instruction
        for register in outputs_of(instruction):
            if register in registers.views:
                roots[register] = _roots(registers.views[register], roots)
        if kind in _INTO and op is not None and _can_lie_in_arena(op, out, registers.of):
            values[out] = value = _Value(op.outputs[0], i)
            roots[out] = frozenset((out,))
            if isinstance(op.op_def, OpDef) and op.op_def.elementwise:
                value.over = _as_they_are(inputs_of(instruction), roots)
            instruction = (int(_INTO[Kind(kind)]), _into(function, op), a, b, out, op)
        into.append(instruction)
    return values, into


def _roots(registers: Iterable[int], roots: Mapping[int, frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*[roots.get(i, frozenset()) for i in registers])


def _shows(instruction: Instruction) -> bool:
    """Whether an instruction may show its inputs to somebody who keeps them."""
    kind, op = instruction[0], instruction[5]
    return kind == Kind.GENERAL or (op is not None and op.op_def.stateful)


def _can_lie_in_arena(op: Operation, register: int, of: Mapping[Tensor, int]) -> bool:
    op_def, tensor = op.op_def, op.outputs[0]
    return (
        tensor.spec.shape != ()  # a 0-d result is a numpy scalar
        and isinstance(op_def, OpDef)
        and (op_def.elementwise or op_def.out)
        and not op_def.stateful
        and of.get(tensor) == register
        and numpy_dtype(tensor.spec).kind in "biufc"
    )


def _as_they_are(registers: Sequence[int], roots: Mapping[int, frozenset[int]]) -> tuple[int, ...]:
    """Return those that lie in the arena and that no other one is a view of."""
    return tuple(
        i
        for i in dict.fromkeys(registers)
        if i in roots.get(i, ()) and not any(i in roots.get(j, ()) for j in registers if j != i)
    )


def _without_frees(code: Iterable[Instruction], kept: Collection[int]) -> list[Instruction]:
    result = []
    for instruction in code:
        if instruction[0] == Kind.FREE:
            left = tuple(i for i in instruction[2] if i not in kept)
            if not left:
                continue
            instruction = (int(Kind.FREE), None, left, None, None, None)
        result.append(instruction)
    return result


def _into(function: Any, op: Operation) -> Callable[..., Any]:
    """Return a kernel that takes ``out`` after its inputs."""
    if _takes_out_in_place(op.op_def.kernel, len(op.inputs)):
        return function  # type: ignore[no-any-return]
    if len(op.inputs) == 1:
        return lambda x, out: function(x, out=out)
    if len(op.inputs) == 2:
        return lambda x, y, out: function(x, y, out=out)
    return lambda *inputs: function(*inputs[:-1], out=inputs[-1])


@cache
def _takes_out_in_place(kernel: Callable[..., Any], inputs: int) -> bool:
    if isinstance(kernel, np.ufunc):
        return kernel not in (np.maximum, np.minimum)  # these two want the keyword
    parameters = list(inspect.signature(kernel).parameters.values())
    return (
        len(parameters) > inputs
        and parameters[inputs].name == "out"
        and parameters[inputs].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    )


# --- shapes and places ------------------------------------------------------------------------------


def _multiplications(ops: Iterable[Operation], specs: Mapping[Tensor, Spec]) -> int:
    """Return how many there are in products whose shapes are known."""
    total = 0
    for op in ops:
        count = op.op_def.flops if isinstance(op.op_def, OpDef) else None
        if count is not None:
            known = [specs[x] for x in (*op.inputs, *op.outputs)]
            if all(is_known(spec.shape) for spec in known):
                total += count(*known, **op.attrs)
    return total


def _laid_out(
    values: Mapping[int, _Value],
    specs: Mapping[Tensor, Spec],
    groups: Sequence[UpdateGroup],
    *,
    heavy: bool,
) -> Layout:
    """Give each value of a known shape a place that no value has that lives at the same time."""
    space, places = Space(), []
    homes, joined = _homes(values, specs, groups, space)
    at: dict[int, tuple[int, Spec]] = {}
    ending: dict[int, list[int]] = defaultdict(list)
    now = 0
    for register, value in values.items():
        spec = specs[value.tensor]
        if register in joined or not spec.shape or not is_known(spec.shape):
            continue
        for i in range(now, value.start):
            for over in ending.pop(i, ()):
                space.give(at[over][0], size_of(at[over][1]))
        now = value.start
        place = None
        for below in value.over:
            if below in ending[now] and at[below][1] == spec:
                ending[now].remove(below)
                place = at[below][0]
                break
        if place is None:
            place = space.take(size_of(spec))
        at[register] = place, spec
        ending[value.end].append(register)
        places.append((register, place, spec))
    return Layout(places, homes, space.size, heavy=heavy)


def _homes(
    values: Mapping[int, _Value],
    specs: Mapping[Tensor, Spec],
    groups: Sequence[UpdateGroup],
    space: Space,
) -> tuple[list[tuple[UpdateGroup, int, int, list[int | None]]], set[int]]:
    """Give flat arrays of inputs places for the whole run; return also the values that lie there."""
    homes, joined = [], set[int]()
    for group in groups:
        for position, home in zip(group.per_variable, group.flat_inputs, strict=True):
            members: list[int | None] = []
            for update in group.updates:
                register = update.inputs[position]
                value = values.get(register)
                wanted = update.op.inputs[0].spec.shape
                fits = value is not None and specs[value.tensor].shape == wanted
                members.append(register if fits and register not in joined else None)
                if fits:
                    joined.add(register)
            homes.append((group, home, space.take(group.nbytes), members))
    return homes, joined
