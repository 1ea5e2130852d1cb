"""What the code of a plan need not compute, and when it can forget a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncmon.graph.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Collection

    from asyncmon.graph.plan import Instruction

__all__ = ["inputs_of", "outputs_of", "with_frees", "without_dead_code"]


def without_dead_code(code: list[Instruction], needed: Collection[int]) -> list[Instruction]:
    """Leave out pure instructions whose results nobody uses. Constant folding leaves some behind."""
    used = set(needed)
    kept = []
    for instruction in reversed(code):
        kind, op = instruction[0], instruction[5]
        pure = kind != Kind.GENERAL and op is not None and not op.op_def.stateful and not op.op_def.refs
        if pure and not any(register in used for register in outputs_of(instruction)):
            continue
        used.update(inputs_of(instruction))
        kept.append(instruction)
    kept.reverse()
    return kept


def with_frees(code: list[Instruction], large: set[int]) -> list[Instruction]:
    """Forget each of these registers right after its last use."""
    result: list[Instruction] = []
    for instruction in reversed(code):
        last = tuple(dict.fromkeys(i for i in inputs_of(instruction) if i in large))
        if last:
            result.append((int(Kind.FREE), None, last, None, None, None))
            large.difference_update(last)
        result.append(instruction)
    result.reverse()
    return result


def inputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction reads, or forgets."""
    kind, _function, a, b, _out, _op = instruction
    if kind in (Kind.UNARY, Kind.UNARY_INTO):
        return (a,)
    if kind in (Kind.BINARY, Kind.BINARY_INTO):
        return (a, b)
    return tuple(a)


def outputs_of(instruction: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction sets, as far as it says so."""
    kind, out = instruction[0], instruction[4]
    return tuple(out) if kind == Kind.MULTI else () if out is None else (out,)
