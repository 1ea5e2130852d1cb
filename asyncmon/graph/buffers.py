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

from asyncmon.graph.arena import Layout, Space, is_known, numpy_dtype, size_of
from asyncmon.graph.liveness import inputs_of, outputs_of
from asyncmon.graph.op_def import Spec
from asyncmon.graph.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from asyncmon.graph.arena import Arena
    from asyncmon.graph.feeds import Feed
    from asyncmon.graph.plan import Instruction
    from asyncmon.graph.tensor import Operation, Tensor

__all__ = ["Buffers", "plan_buffers"]

_LAYOUTS = 16  # shapes of feeds whose layouts a plan remembers
_INTO = {Kind.UNARY: Kind.UNARY_INTO, Kind.BINARY: Kind.BINARY_INTO}


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
        code: the plan's code without what frees those values.
    """

    def __init__(
        self,
        values: Mapping[int, _Value],
        code: list[Instruction],
        ops: Sequence[Operation],
        feeds: Sequence[tuple[Feed, int]],
    ) -> None:
        self.code = code
        self._values = values
        self._ops = ops
        self._feeds = [(feed.tensor, i) for feed, i in feeds if not is_known(feed.tensor.spec)]
        self._layouts: dict[tuple[Any, ...], Layout | None] = {}

    def place(self, registers: list[Any], arena: Arena) -> bool:
        """Put arrays where values are going to be; false where shapes are new, and nothing is put."""
        key = tuple([registers[i].shape for _, i in self._feeds])
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._look_at(key)
            if layout is None:
                return False
        for register, array in arena.views(layout):
            registers[register] = array
        return True

    def _look_at(self, key: tuple[Any, ...]) -> Layout | None:
        """Lay out memory for shapes that come a second time."""
        if key not in self._layouts:
            while len(self._layouts) >= _LAYOUTS:
                del self._layouts[next(iter(self._layouts))]
            self._layouts[key] = None
            return None
        given = {tensor: shape for (tensor, _), shape in zip(self._feeds, key, strict=True)}
        layout = self._layouts[key] = _laid_out(self._values, _specs(self._ops, given))
        return layout


def plan_buffers(
    code: list[Instruction],
    of: Mapping[Tensor, int],
    views: Mapping[int, Collection[int]],
    escaping: Iterable[int],
    until_end: Iterable[int],
    ops: Sequence[Operation],
    feeds: Sequence[tuple[Feed, int]],
) -> tuple[list[Instruction], Buffers | None]:
    """Find the values that can lie in the arena.

    Args:
        code: of the plan.
        of: the registers of tensors.
        views: for each register that may hold an array of another one, those others.
        escaping: registers whose arrays are seen after the run.
        until_end: registers that are read when the run is applied.
        ops: of the plan, in order.
        feeds: of the plan.

    Returns:
        The code, in which those values are written into what their registers hold; and them.
    """
    values: dict[int, _Value] = {}
    roots: dict[int, frozenset[int]] = {}
    escaped = set(escaping)
    into: list[Instruction] = []
    for i, instruction in enumerate(code):
        kind, function, a, b, out, op = instruction
        for register in inputs_of(instruction):
            if kind == Kind.GENERAL or (op is not None and op.op_def.stateful):
                escaped.add(register)
            for root in roots.get(register, ()):
                values[root].end = i
        for register in outputs_of(instruction):
            roots[register] = frozenset().union(*[roots.get(j, ()) for j in views.get(register, ())])
        if kind in _INTO and op is not None and _can_lie_in_arena(op, out, of):
            values[out] = value = _Value(op.outputs[0], i)
            roots[out] = frozenset((out,))
            if op.op_def.elementwise:
                value.over = _as_they_are(inputs_of(instruction), roots)
            instruction = (int(_INTO[Kind(kind)]), _into(function, op), a, b, out, op)
        into.append(instruction)
    for register in until_end:
        for root in roots.get(register, ()):
            values[root].end = len(code)
    for register in escaped:
        for root in roots.get(register, ()):
            values.pop(root, None)
    if not values:
        return code, None
    into = [new if new[4] in values else old for new, old in zip(into, code, strict=True)]
    return into, Buffers(values, _without_frees(into, values), ops, feeds)


def _can_lie_in_arena(op: Operation, register: int, of: Mapping[Tensor, int]) -> bool:
    op_def, tensor = op.op_def, op.outputs[0]
    return (
        (op_def.elementwise or op_def.out)
        and not op_def.stateful
        and of.get(tensor) == register
        and tensor.spec.shape != ()  # a 0-d result is a numpy scalar
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
    return lambda x, y, out: function(x, y, out=out)


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


def _specs(ops: Sequence[Operation], given: Mapping[Tensor, tuple[int, ...]]) -> dict[Tensor, Spec]:
    """Return what is known of tensors beyond their static specs when those given have these shapes."""
    specs = {tensor: Spec(tensor.spec.dtype, shape) for tensor, shape in given.items()}
    for op in ops:
        if op.op_def.refs or not any(tensor in specs for tensor in op.inputs):
            continue
        try:
            found = op.op_def.infer(*[specs.get(x, x.spec) for x in op.inputs], **op.attrs)
        except Exception:  # what does not fit is left to fail in the run, at its node
            continue
        for tensor, spec in zip(
            op.outputs, (found,) if isinstance(found, Spec) else found, strict=True
        ):
            if tensor not in given and not is_known(tensor.spec):
                specs[tensor] = _merged(spec, tensor.spec)
    return specs


def _merged(found: Spec, static: Spec) -> Spec:
    if found.shape is None or static.shape is None or None not in found.shape:
        return found if found.shape is not None else static
    shape = tuple(b if a is None else a for a, b in zip(found.shape, static.shape, strict=True))
    return Spec(found.dtype, shape)


def _laid_out(values: Mapping[int, _Value], specs: Mapping[Tensor, Spec]) -> Layout:
    """Give each value of a known shape a place that no value has that lives at the same time."""
    space, places = Space(), []
    at: dict[int, tuple[int, Spec]] = {}
    ending: dict[int, list[int]] = defaultdict(list)
    now = 0
    for register, value in values.items():
        spec = specs.get(value.tensor, value.tensor.spec)
        if not spec.shape or not is_known(spec):
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
    return Layout(places, space.size)
