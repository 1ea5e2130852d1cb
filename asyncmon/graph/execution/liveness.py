"""What the code of a plan need not compute, and when it can forget a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.execution.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncmon.graph.execution.plan import Instruction

__all__ = ["inputs_of", "outputs_of", "with_frees", "without_dead_code"]

# Looked up once: an enum's members take a while, and a plan may have 100,000 instructions.
_OF_ONE = (Kind.UNARY, Kind.UNARY_INTO)
_OF_TWO = (Kind.BINARY, Kind.BINARY_INTO)
_MULTI, _GENERAL = Kind.MULTI, Kind.GENERAL


def without_dead_code(code: list[Instruction], needed: Collection[int]) -> list[Instruction]:
    """Leave out pure instructions whose results nobody uses. Constant folding leaves some behind."""
    used = set(needed)
    kept = []
    for instruction in reversed(code):
        if _is_pure(instruction) and used.isdisjoint(outputs_of(instruction)):
            continue
        used.update(inputs_of(instruction))
        kept.append(instruction)
    kept.reverse()
    return kept


def with_frees(code: list[Instruction], large: set[int]) -> list[Instruction]:
    """Forget each of these registers right after its last use."""
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


def inputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction reads, or forgets."""
    kind, _function, a, b, _out, _op = instruction
    if kind in _OF_TWO:
        return (a, b)
    if kind in _OF_ONE:
        return (a,)
    return tuple(a)


def outputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction sets, as far as it says so."""
    kind, out = instruction[0], instruction[4]
    return tuple(out) if kind == _MULTI else () if out is None else (out,)


def _is_pure(instruction: Instruction) -> bool:
    kind, op = instruction[0], instruction[5]
    return kind != _GENERAL and op is not None and not op.op_def.stateful
